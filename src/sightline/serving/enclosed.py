"""Files that a request may name: those inside one folder, wherever links lead."""

from __future__ import annotations

from pathlib import Path

from sightline.errors import SightlineError


def file_inside(folder: Path, name: str) -> Path:
    """The file of this name; refused in one line where it is not inside the folder once all links are followed."""
    root = folder.resolve()
    try:
        file = (root / name).resolve()
        found = file.is_relative_to(root) and file.is_file()
    except (OSError, ValueError):  # a name that no file can have
        found = False
    if not found:
        raise SightlineError(f"{folder.name} has no file {name!r}")
    return file
