#!/bin/sh
# Installs Chromium and its driver for the browser tests where that is possible, and does nothing where it is not:
# the tests themselves say what is missing.
set -e
if command -v chromium >/dev/null 2>&1 && command -v chromedriver >/dev/null 2>&1; then
    exit 0
fi
if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" -ne 0 ]; then
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
{ apt-get update -q && apt-get install -q -y --no-install-recommends chromium chromium-driver; } >/dev/null 2>&1 ||
    echo "could not install chromium and chromium-driver: the browser tests will not run" >&2
