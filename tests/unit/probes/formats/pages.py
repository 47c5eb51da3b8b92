"""What the tests of page formats share: an image beside a file, and words compared in pixels."""

import struct
import zlib
from pathlib import Path

from PIL import Image

from sightline.probes.regions import ImageRegions

WIDTH, HEIGHT = 1000, 800


def paint(path: Path, size: tuple[int, int] = (WIDTH, HEIGHT)) -> Path:
    """An empty image of this size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, 255).save(path)
    return path


def in_pixels(record: ImageRegions) -> list[tuple[str, tuple[int, ...]]]:
    """Texts and boxes of an image that is WIDTH by HEIGHT."""
    sides = (WIDTH, HEIGHT, WIDTH, HEIGHT)
    return [
        (word.text, tuple(round(value * side) for value, side in zip(word.box, sides, strict=True)))
        for word in record.words
    ]


def png_of(width: int, height: int, bits: int, lines: bytes) -> bytes:
    """A PNG of three channels with these packed lines, if any."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    size = struct.pack(">IIBBBBB", width, height, bits, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", lines) + chunk(b"IEND", b"")
