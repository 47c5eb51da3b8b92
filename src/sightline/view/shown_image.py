"""The bytes that a browser is given of an image: the file itself where it can show it as it was audited."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from sightline.core.probe import ORIGINAL
from sightline.errors import SightlineError
from sightline.probes.images import image_digest
from sightline.serving.enclosed import file_inside, picture_bytes

FILE, PREVIEW = "file", "preview"


def shown_source(record: dict[str, Any], view: str, images: Path | None) -> str:
    """Whether the file itself is shown; a view that an intervention made, or a smaller size, is in no file."""
    if images is None or view != ORIGINAL or "#fit=" in record["image_key"]:
        return PREVIEW
    try:
        file = file_inside(images, record["image"])
    except SightlineError:
        return PREVIEW
    return FILE if _digest(file, file.stat().st_mtime_ns) == record["digest"] else PREVIEW


def shown_bytes(record: dict[str, Any], view: str, images: Path | None, occlude: Any = ()) -> tuple[bytes, str]:
    """The image and its media type."""
    if images is None or shown_source(record, view, images) == PREVIEW:
        return bytes(record["preview"] or b""), "image/jpeg"
    return picture_bytes(images, record["image"], [tuple(box) for box in occlude])


@lru_cache(maxsize=4096)
def _digest(file: Path, changed: int) -> str:
    return image_digest(file)
