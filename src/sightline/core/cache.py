"""What is kept on disk from run to run because making it takes long: one folder, and files that are whole or absent."""

from __future__ import annotations

import os
from pathlib import Path

from sightline.errors import SightlineError
from sightline.places.writing import write_whole


def cache_folder() -> Path:
    """Where results are remembered: ``SIGHTLINE_CACHE``, else the user's cache folder."""
    if "SIGHTLINE_CACHE" in os.environ:
        return Path(os.environ["SIGHTLINE_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sightline"


def remember(file: Path, content: bytes) -> None:
    """Whoever reads at the same time sees all of it or nothing."""
    try:
        write_whole(file, content, make_parent=True)
    except SightlineError as error:
        raise SightlineError(
            f"cannot remember a result in {file.parent}: {error}; name another folder in SIGHTLINE_CACHE"
        ) from None
