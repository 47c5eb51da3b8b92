#!/bin/sh
# Installs TeX for the test of the LaTeX that tables write, and does nothing where that is not possible: the test itself
# says what is missing.
set -e
if command -v pdflatex >/dev/null 2>&1; then
    exit 0
fi
if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" -ne 0 ]; then
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
{ apt-get update -q && apt-get install -q -y --no-install-recommends texlive-latex-base texlive-latex-recommended; } \
    >/dev/null 2>&1 || echo "could not install TeX: the LaTeX of tables will not be compiled" >&2
