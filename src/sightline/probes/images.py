"""Opening the images of probes: names stay below the root, size is checked before decoding, evidence can be grayed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from PIL import Image, ImageDraw

from sightline.core.probe import Box
from sightline.errors import SightlineError
from sightline.probes.bit_depth import has_known_white, to_rgb
from sightline.probes.image_name import check_image_name, resolve_image
from sightline.probes.json_lines import file_digest
from sightline.probes.region_records import ImageRegions

__all__ = [
    "RASTER_FORMATS",
    "check_image_name",
    "check_image_sizes",
    "image_digest",
    "image_digests",
    "image_size",
    "occlude_boxes",
    "open_image",
    "pixel_box",
    "resolve_image",
]

MAX_PIXELS = 100_000_000
MAX_RATIO = 200
"""Of the longer side to the shorter: a model's processor that enlarges the shorter would fill all memory beyond it."""
GRAY = (127, 127, 127)
RASTER_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Raster formats only: some of the others hand the file to external programs."""


def open_image(
    root: str | Path,
    name: str,
    *,
    occlude: Sequence[Box] = (),
    strip_prefix: str | None = None,
    max_pixels: int = MAX_PIXELS,
) -> Image.Image:
    """Decodes ``root/name`` to RGB and grays the boxes in ``occlude``.

    The number of pixels is read from the header and compared with ``max_pixels`` before anything is decoded. EXIF
    rotation is not applied: annotations refer to stored pixels.
    """
    path = resolve_image(root, name, strip_prefix=strip_prefix)
    with _opened(path, max_pixels) as stored:
        try:
            image = to_rgb(stored)
        except Exception as problem:  # decoders raise whatever they like on damaged files
            raise SightlineError(f"image {path} is damaged: {problem}") from None
    return occlude_boxes(image, occlude) if occlude else image


def image_size(path: str | Path, *, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """(width, height) from the header."""
    with _opened(Path(path), max_pixels) as stored:
        return stored.size


def image_digest(path: str | Path) -> str:
    """``sha256:`` of the file's bytes, not of its pixels."""
    _refuse_endless(Path(path))
    return file_digest(path)


def image_digests(
    root: str | Path, names: Iterable[str], *, progress: Callable[[Iterable[str]], Iterable[str]] = iter
) -> dict[str, str]:
    """Digest per image name. Headers are read on the way, so that a missing or damaged file is found here."""
    digests = {}
    for name in progress(names):
        path = resolve_image(root, name)
        image_size(path)
        digests[name] = image_digest(path)
    return digests


def pixel_box(box: Box, width: int, height: int) -> tuple[int, int, int, int]:
    """A box in whole pixels: coordinates rounded half to even, at least one pixel wide and high, within the image."""
    left = min(max(round(box[0] * width), 0), width - 1)
    top = min(max(round(box[1] * height), 0), height - 1)
    right = min(max(round(box[2] * width), left + 1), width)
    bottom = min(max(round(box[3] * height), top + 1), height)
    return left, top, right, bottom


def occlude_boxes(image: Image.Image, boxes: Iterable[Box]) -> Image.Image:
    """A copy with the boxes filled by mid gray. Right and bottom edges are inclusive, as in the paper's artifact."""
    filled = image.copy()
    draw = ImageDraw.Draw(filled)
    for box in boxes:
        draw.rectangle(pixel_box(box, *filled.size), fill=GRAY)
    return filled


def check_image_sizes(
    root: str | Path,
    records: Iterable[ImageRegions],
    *,
    progress: Callable[[Iterable[ImageRegions]], Iterable[ImageRegions]] = iter,
) -> None:
    """Refuses a record whose image is missing, unreadable, or of another size than its annotation says."""
    for record in progress(records):
        size = image_size(resolve_image(root, record.image))
        stated = (record.width, record.height)
        if None in stated or size == stated:
            continue
        hint = " (sides swapped: was the image rotated?)" if size == stated[::-1] else ""
        raise SightlineError(
            f"image {record.image!r} is {size[0]} x {size[1]} pixels, "
            f"its annotation says {stated[0]} x {stated[1]}{hint}; mend one of the two or pass --no-check-images"
        )


def _opened(path: Path, max_pixels: int) -> Image.Image:
    """The image with its header read and nothing decoded."""
    _refuse_endless(path)
    try:
        stored = Image.open(path, formats=RASTER_FORMATS)
    except FileNotFoundError:
        raise SightlineError(f"image {path} does not exist") from None
    except Image.DecompressionBombError as problem:
        raise SightlineError(f"image {path} is too large: {problem}") from None
    except Exception as problem:  # decoders raise whatever they like on damaged files
        raise SightlineError(f"image {path} cannot be read: {problem}") from None
    width, height = stored.size
    if width * height > max_pixels:
        stored.close()
        raise SightlineError(f"image {path} has {width} x {height} pixels; the limit is {max_pixels}")
    if max(width, height) > MAX_RATIO * min(width, height):
        stored.close()
        raise SightlineError(
            f"image {path} has {width} x {height} pixels; no side may be more than {MAX_RATIO} times the other"
        )
    if not has_known_white(stored):
        stored.close()
        raise SightlineError(
            f"image {path} has pixel values of mode {stored.mode}, and does not say which is white; "
            "save it with 8 or 16 bits"
        )
    return stored


def _refuse_endless(path: Path) -> None:
    """Refuses a pipe or a device, which could be read for ever; all else is said by whoever opens the file."""
    try:
        special = path.exists() and not path.is_file()
    except OSError:
        return
    if special:
        raise SightlineError(f"image {path} is not a file")
