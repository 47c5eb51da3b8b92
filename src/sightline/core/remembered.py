"""What is remembered from run to run because finding it takes long: one folder, and files that are whole or absent."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Where results are remembered: ``SIGHTLINE_CACHE``, else the user's cache folder."""
    if "SIGHTLINE_CACHE" in os.environ:
        return Path(os.environ["SIGHTLINE_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sightline"


def write_whole(file: Path, content: bytes) -> None:
    """Under another name first: whoever reads at the same time sees all of it or nothing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    temporary.write_bytes(content)
    os.replace(temporary, file)
