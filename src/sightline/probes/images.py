"""Opening the images of probes: names stay below the root, size is checked before decoding, evidence can be grayed."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path

from PIL import Image, ImageDraw

from sightline.core.probe import Box
from sightline.errors import SightlineError
from sightline.places import Place, is_remote, place
from sightline.probes.bit_depth import has_known_white, pages, to_rgb
from sightline.probes.fetched_images import first_bytes
from sightline.probes.image_files import image_file
from sightline.probes.image_name import check_image_name, image_url, resolve_image, strip_image_prefix
from sightline.probes.json_lines import file_digest
from sightline.probes.region_records import ImageRegions
from sightline.probes.webp_header import webp_size

__all__ = [
    "RASTER_FORMATS",
    "check_image_name",
    "check_image_sizes",
    "image_digest",
    "image_digests",
    "image_size",
    "occlude_boxes",
    "open_image",
    "open_image_file",
    "pixel_box",
    "pixel_digest",
    "resolve_image",
    "size_from_header",
]

MAX_PIXELS = 100_000_000
MAX_RATIO = 200
"""Of the longer side to the shorter: a model's processor that enlarges the shorter would fill all memory beyond it."""
GRAY = (127, 127, 127)
RASTER_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Raster formats only: some of the others hand the file to external programs."""


def open_image(
    root: str | Place,
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
    name = strip_image_prefix(name, strip_prefix) if strip_prefix else name
    with image_file(root, name) as path:
        return open_image_file(path, image_place(root, name), occlude=occlude, max_pixels=max_pixels)


def open_image_file(
    path: Path | io.BytesIO, called: Place, *, occlude: Sequence[Box] = (), max_pixels: int = MAX_PIXELS
) -> Image.Image:
    """Likewise of a file, which errors call by the place that it was fetched from."""
    with _opened(path, called, max_pixels) as stored:
        try:
            image = to_rgb(stored)
        except SightlineError as problem:
            raise SightlineError(f"image {called} {problem}") from None
        except Exception as problem:  # decoders raise whatever they like on damaged files
            raise SightlineError(f"image {called} is damaged: {problem}") from None
    return occlude_boxes(image, occlude) if occlude else image


def image_place(root: str | Place, name: str) -> Place:
    """Where an image lies: what errors call it."""
    where = place(root)
    return image_url(where, name) if is_remote(where) else where / name


def size_from_header(root: str | Place, name: str, *, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """(width, height) of an image below a root. Of a URL its first bytes are fetched, all only where they say nothing.

    That is so where a file keeps what it says elsewhere, as some TIFFs do, or behind much else.
    """
    called = image_place(root, name)
    if not is_remote(called):
        return image_size(resolve_image(root, name), max_pixels=max_pixels)
    begins = first_bytes(called)
    size = webp_size(begins)
    if size is not None:
        _refuse_large(size, called, max_pixels)
        return size
    try:
        with _opened(io.BytesIO(begins), called, max_pixels) as stored:
            return stored.size
    except SightlineError:
        with image_file(root, name) as path, _opened(path, called, max_pixels) as stored:
            return stored.size


def image_size(path: str | Path, *, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """(width, height) from the header."""
    with _opened(Path(path), Path(path), max_pixels) as stored:
        return stored.size


def image_digest(path: str | Path) -> str:
    """``sha256:`` of the file's bytes, not of its pixels."""
    _refuse_endless(Path(path), Path(path))
    return file_digest(path)


def pixel_digest(image: Image.Image) -> str:
    """``sha256:`` of an image as it was decoded, its size included: the same for copies of any name and format."""
    digest = sha256(f"{image.mode} {image.width} {image.height} ".encode())
    digest.update(image.tobytes())
    return f"sha256:{digest.hexdigest()}"


def image_digests(
    root: str | Place, names: Iterable[str], *, progress: Callable[[Iterable[str]], Iterable[str]] = iter
) -> dict[str, str]:
    """Digest per image name. Headers are read on the way, so that a missing or damaged file is found here."""
    digests = {}
    for name in progress(names):
        with image_file(root, name) as path:
            with _opened(path, image_place(root, name), MAX_PIXELS):
                pass
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
    root: str | Place,
    records: Iterable[ImageRegions],
    *,
    progress: Callable[[Iterable[ImageRegions]], Iterable[ImageRegions]] = iter,
) -> None:
    """Refuses a record whose image is missing, unreadable, or of another size than its annotation says."""
    for record in progress(records):
        size = size_from_header(root, record.image)
        stated = (record.width, record.height)
        if None in stated or size == stated:
            continue
        hint = " (sides swapped: was the image rotated?)" if size == stated[::-1] else ""
        raise SightlineError(
            f"image {record.image!r} is {size[0]} x {size[1]} pixels, "
            f"its annotation says {stated[0]} x {stated[1]}{hint}; mend one of the two or pass --no-check-images"
        )


def _opened(source: Path | io.BytesIO, called: Place, max_pixels: int) -> Image.Image:
    """The image with its header read and nothing decoded; errors call it by its place."""
    if isinstance(source, Path):
        _refuse_endless(source, called)
    try:
        stored = Image.open(source, formats=RASTER_FORMATS)
    except FileNotFoundError:
        raise SightlineError(f"image {called} does not exist") from None
    except Image.DecompressionBombError as problem:
        raise SightlineError(f"image {called} is too large: {problem}") from None
    except Exception as problem:  # decoders raise whatever they like on damaged files
        raise SightlineError(f"image {called} cannot be read: {problem}") from None
    try:
        _refuse_large(stored.size, called, max_pixels)
    except SightlineError:
        stored.close()
        raise
    try:
        count = pages(stored)
    except Exception as problem:  # of a file that is cut off between its pages
        raise SightlineError(f"image {called} cannot be read: {problem}") from None
    if count > 1:
        stored.close()
        raise SightlineError(
            f"image {called} has {count} pages or frames and a question is about one image; save the one that is asked "
            "about as an image of its own"
        )
    if not has_known_white(stored):
        stored.close()
        raise SightlineError(
            f"image {called} has pixel values of mode {stored.mode}, and does not say which is white; "
            "save it with 8 or 16 bits"
        )
    return stored


def _refuse_endless(path: Path, called: Place) -> None:
    """Refuses a pipe or a device, which could be read for ever; all else is said by whoever opens the file."""
    try:
        special = path.exists() and not path.is_file()
    except OSError:
        return
    if special:
        raise SightlineError(f"image {called} is not a file")


def _refuse_large(size: tuple[int, int], called: Place, max_pixels: int) -> None:
    width, height = size
    if width * height > max_pixels:
        raise SightlineError(f"image {called} has {width} x {height} pixels; the limit is {max_pixels}")
    if max(size) > MAX_RATIO * min(size):
        raise SightlineError(
            f"image {called} has {width} x {height} pixels; no side may be more than {MAX_RATIO} times the other"
        )
