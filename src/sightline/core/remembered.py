"""What is remembered from run to run because finding it takes long: one folder, and files that are whole or absent."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from sightline.errors import SightlineError


def cache_folder() -> Path:
    """Where results are remembered: ``SIGHTLINE_CACHE``, else the user's cache folder."""
    if "SIGHTLINE_CACHE" in os.environ:
        return Path(os.environ["SIGHTLINE_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sightline"


def write_whole(file: Path, content: bytes) -> None:
    """Under a name that nobody foresees first: whoever reads at the same time sees all of it or nothing."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.", suffix=".tmp")
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.replace(temporary, file)
    except OSError as error:
        raise SightlineError(
            f"cannot remember a result in {file.parent}: {error.strerror or error}; name another folder in "
            "SIGHTLINE_CACHE"
        ) from None
