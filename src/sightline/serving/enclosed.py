"""Files that a request may name: those inside one folder, wherever links lead; pictures as they were audited."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from sightline.core.probe import Box
from sightline.errors import SightlineError
from sightline.probes.images import open_image

SHOWN_AS_THEY_ARE = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp", "GIF": "image/gif"}
"""Formats of files that every browser shows."""
ORIENTATION = 0x0112
"""The mark in a file by which browsers turn a picture; annotations refer to stored pixels."""


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


def picture_bytes(images: Path, name: str, occlude: Sequence[Box] = ()) -> tuple[bytes, str]:
    """A picture with the pixels that probes and boxes are about, and its media type: the file itself where a browser
    shows it so, else a PNG. A browser would turn a photograph that asks for it (EXIF), and boxes with it."""
    file = file_inside(images, name)
    try:
        with Image.open(file) as stored:
            media = SHOWN_AS_THEY_ARE.get(stored.format or "")
            turned = stored.getexif().get(ORIENTATION, 1) != 1
    except (OSError, ValueError, SyntaxError):
        raise SightlineError(f"{name} is no picture that can be shown") from None
    if media and not turned and not occlude:
        return file.read_bytes(), media
    sink = io.BytesIO()
    open_image(images, name, occlude=occlude).save(sink, "PNG", compress_level=1)
    return sink.getvalue(), "image/png"
