"""Opening the images of probes: names stay below the root, size is checked before decoding, evidence can be grayed."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, UnidentifiedImageError

from sightline.core.probe import Box
from sightline.errors import SightlineError
from sightline.places.listing import Place, is_remote, place
from sightline.probes.data_rows import file_digest
from sightline.probes.fetched_images import (
    NO_IMAGE,
    RASTER_FORMATS,
    HeldImage,
    check_image_name,
    first_bytes,
    hold_image,
    image_url,
    resolve_image,
)

__all__ = [
    "check_image_name", "image_digest", "image_digests", "image_size", "occlude_boxes", "open_image",
    "open_image_file", "pixel_box", "pixel_digest", "resolve_image", "size_from_header", "stored_as",
]  # fmt: skip

# What Pillow would lose on the way to RGB: values above 255, so that a page of 16 bits comes out white, alpha, and all
# pages but the first.

_BITS_PER_SAMPLE = 258
_PHOTOMETRIC = 262
_WHITE_IS_ZERO = 0
_KIND_OF_PAGE = 254
_NO_PAGE = 0b101
"""Bits of that tag: a smaller copy of another page, or a mask for one."""
_PAGED = ("GIF", "PNG", "TIFF", "WEBP")
"""Formats whose frames are pictures of their own; what a JPEG has behind its first are previews and depth maps."""
_TWELVE_BITS = 4095


def page_frames(stored: Image.Image) -> list[int]:
    """Which frames of a file are pages; a smaller copy of a page, or a mask for one, is none."""
    count = int(getattr(stored, "n_frames", 1)) if stored.format in _PAGED else 1
    if stored.format != "TIFF" or count == 1:
        return list(range(count))
    kinds = []
    for page in range(count):
        stored.seek(page)
        kinds.append(getattr(stored, "tag_v2", {}).get(_KIND_OF_PAGE, 0))
    stored.seek(0)
    return [page for page, kind in enumerate(kinds) if not kind & _NO_PAGE] or [0]


def has_known_white(stored: Image.Image) -> bool:
    """Whether the file says which value is white: not with floats, nor with the signed or 32-bit integers of TIFF."""
    return stored.mode != "F" and not (stored.mode == "I" and stored.format == "TIFF")


STRIP = 256
"""Rows that are converted at a time: what conversion needs beside the two images is bounded, whatever their size."""


def to_rgb(stored: Image.Image) -> Image.Image:
    """RGB of 8 bits; a deeper gray goes to the nearest of the 256, so 16 bits are divided by 257.

    What is transparent lies on white paper, as viewers show it. Values of 12 bits that fill no more of 16 are refused:
    they would come out nearly black.
    """
    deep = stored.mode == "I" or stored.mode.startswith("I;16")
    tiles = getattr(stored, "tile", None)
    decoding = str(tiles[0][3]) if tiles else ""  # which tells how the file holds its values: RGB;16B
    upper = not deep and ";16" in decoding  # of which Pillow keeps the upper 8
    stored.load()
    width, height = stored.size
    strips = [(0, top, width, min(height, top + STRIP)) for top in range(0, height, STRIP)]
    white = 2 ** getattr(stored, "tag_v2", {}).get(_BITS_PER_SAMPLE, (16,))[0] - 1 if deep else 255
    if deep or upper:
        highest = (np.asarray(part if deep else part.convert("RGB")).max() for part in map(stored.crop, strips))
        _refuse_dark(int(max(highest)), white)
    if stored.mode == "RGB" and not stored.has_transparency_data:
        return stored.copy() if stored.readonly else stored
    inverted = deep and getattr(stored, "tag_v2", {}).get(_PHOTOMETRIC) == _WHITE_IS_ZERO
    image = Image.new("RGB", stored.size)
    for strip in strips:
        part = stored.crop(strip)
        if deep:
            values = np.asarray(part).astype(np.int32)
            values = white - values if inverted else values
            part = Image.fromarray(((values * 255 + white // 2) // white).astype(np.uint8))
        image.paste(_on_white(part) if part.has_transparency_data else part.convert("RGB"), strip)
    return image


def _refuse_dark(highest: int, white: int) -> None:
    """Refuses values of 12 bits in 16; a picture that is black all over is black in any depth."""
    if white in (255, 65535) and 0 < highest <= _TWELVE_BITS * (white + 1) // 65536:
        raise SightlineError(
            f"holds values up to {highest} of {white}, as 12 bits in a file of 16 do, and would be nearly black; "
            "save it with 8 bits, or scaled to 16"
        )


def _on_white(stored: Image.Image) -> Image.Image:
    clear = stored.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear).convert("RGB")


# The size of a WebP image from its first bytes. Pillow wants the whole file before it says anything about it.

SIDE = 0x3FFF
"""Sides have 14 bits where the image is not an extended one."""


def webp_size(begins: bytes) -> tuple[int, int] | None:
    """(width, height); None of bytes that do not begin a WebP image, or not one of the three kinds."""
    if len(begins) < 30 or begins[:4] != b"RIFF" or begins[8:12] != b"WEBP":
        return None
    kind, content = begins[12:16], begins[20:30]
    if kind == b"VP8X":  # extended: flags, then each side less one
        return 1 + int.from_bytes(content[4:7], "little"), 1 + int.from_bytes(content[7:10], "little")
    if kind == b"VP8L" and content[0] == 0x2F:  # lossless: both sides less one behind a signature
        sides = int.from_bytes(content[1:5], "little")
        return 1 + (sides & SIDE), 1 + (sides >> 14 & SIDE)
    if kind == b"VP8 " and content[3:6] == b"\x9d\x01\x2a":  # lossy: a frame, its start code, the sides with a scale
        return int.from_bytes(content[6:8], "little") & SIDE, int.from_bytes(content[8:10], "little") & SIDE
    return None


# Images as files of this machine for as long as they are used, wherever they lie; several fetched at a time.

AT_ONCE = 16
"""Images that are fetched, or are fetched and not used yet."""


def image_file(root: str | Place, name: str) -> AbstractContextManager[Path]:
    """The image's file; one that had to be fetched stays at least until the context is left."""
    root = place(root)
    return hold_image(image_url(root, name)) if is_remote(root) else nullcontext(resolve_image(root, name))


def image_files(
    root: str | Place, names: Sequence[str]
) -> Generator[tuple[str, Callable[[], AbstractContextManager[Path]]], None, None]:
    """Each name with what gives its file, or raises what is wrong with it. The next ones are fetched meanwhile."""
    root = place(root)
    if not is_remote(root):
        yield from ((name, partial(image_file, root, name)) for name in names)
        return
    url = root

    def fetch(name: str) -> HeldImage:
        return hold_image(image_url(url, name))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        coming: deque[tuple[str, Future[HeldImage]]] = deque()
        left = iter(names)
        try:
            while True:
                for name in left:
                    coming.append((name, pool.submit(fetch, name)))
                    if len(coming) == AT_ONCE:
                        break
                if not coming:
                    return
                name, future = coming.popleft()
                yield name, future.result
        finally:
            for _, future in coming:  # nobody will use them
                if not future.cancel() and future.exception() is None:
                    with future.result():
                        pass


MAX_PIXELS = 100_000_000
MAX_RATIO = 200
"""Of the longer side to the shorter: a model's processor that enlarges the shorter would fill all memory beyond it."""
GRAY = (127, 127, 127)


def open_image(root: str | Place, name: str, *, occlude: Sequence[Box] = ()) -> Image.Image:
    """Decodes ``root/name`` to RGB and grays the boxes in ``occlude``.

    The number of pixels is read from the header and compared with ``MAX_PIXELS`` before anything is decoded. EXIF
    rotation is not applied: annotations refer to stored pixels.
    """
    with image_file(root, name) as path:
        return open_image_file(path, image_place(root, name), occlude=occlude)


def open_image_file(path: Path | io.BytesIO, called: Place, *, occlude: Sequence[Box] = ()) -> Image.Image:
    """Likewise of a file, which errors call by the place that it was fetched from."""
    with _opened(path, called) as stored:
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


def size_from_header(root: str | Place, name: str) -> tuple[int, int]:
    """(width, height) of an image below a root. Of a URL its first bytes are fetched, all only where they say nothing.

    That is so where a file keeps what it says elsewhere, as some TIFFs do, or behind much else.
    """
    called = image_place(root, name)
    if not is_remote(called):
        return image_size(resolve_image(root, name))
    begins = first_bytes(called)
    size = webp_size(begins)
    if size is not None:
        _refuse_large(size, called)
        return size
    try:
        with _opened(io.BytesIO(begins), called) as stored:
            return stored.size
    except SightlineError:
        with image_file(root, name) as path, _opened(path, called) as stored:
            return stored.size


def image_size(path: str | Path) -> tuple[int, int]:
    """(width, height) from the header."""
    with _opened(Path(path), Path(path)) as stored:
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
            with _opened(path, image_place(root, name)):
                pass
            digests[name] = image_digest(path)
    return digests


def stored_as(image: Image.Image, kind: str, **how: Any) -> bytes:
    """What a file of that kind holds of an image; ``how`` is what Pillow may be told of it."""
    stored = io.BytesIO()
    image.save(stored, kind, **how)
    return stored.getvalue()


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


def _opened(source: Path | io.BytesIO, called: Place) -> Image.Image:
    """The image with its header read and nothing decoded; errors call it by its place."""
    if isinstance(source, Path):
        _refuse_endless(source, called)
    try:
        stored = Image.open(source, formats=RASTER_FORMATS)
    except FileNotFoundError:
        raise SightlineError(f"image {called} does not exist") from None
    except Image.DecompressionBombError as problem:
        raise SightlineError(f"image {called} is too large: {problem}") from None
    except UnidentifiedImageError:  # Pillow's words may hold an address in memory
        raise SightlineError(f"image {called} cannot be read: {NO_IMAGE}") from None
    except Exception as problem:  # decoders raise whatever they like on damaged files
        raise SightlineError(f"image {called} cannot be read: {problem}") from None
    try:
        _refuse_large(stored.size, called)
        try:
            count = len(page_frames(stored))
        except Exception as problem:  # of a file that is cut off between its pages
            raise SightlineError(f"image {called} cannot be read: {problem}") from None
        if count > 1:
            raise SightlineError(
                f"image {called} has {count} pages or frames and a question is about one image; save the one that is "
                "asked about as an image of its own"
            )
        if not has_known_white(stored):
            raise SightlineError(
                f"image {called} has pixel values of mode {stored.mode}, and does not say which is white; "
                "save it with 8 or 16 bits"
            )
    except SightlineError:
        stored.close()
        raise
    return stored


def _refuse_endless(path: Path, called: Place) -> None:
    """Refuses a pipe or a device, which could be read for ever; all else is said by whoever opens the file."""
    try:
        special = path.exists() and not path.is_file()
    except OSError:
        return
    if special:
        raise SightlineError(f"image {called} is not a file")


def _refuse_large(size: tuple[int, int], called: Place) -> None:
    width, height = size
    if width * height > MAX_PIXELS:
        raise SightlineError(f"image {called} has {width} x {height} pixels; the limit is {MAX_PIXELS}")
    if max(size) > MAX_RATIO * min(size):
        raise SightlineError(
            f"image {called} has {width} x {height} pixels; no side may be more than {MAX_RATIO} times the other"
        )
