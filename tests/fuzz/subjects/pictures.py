"""Images of every raster format, damaged, lying about their size, or in a file of another name."""

from __future__ import annotations

import io
import struct
import zlib
from random import Random

import numpy as np
from PIL import Image

from sightline.probes.images import image_size, open_image
from tests.fuzz import mutations
from tests.fuzz.subjects.base import FileSubject

MODES = {
    "PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"),
    "JPEG": ("L", "RGB", "CMYK"),
    "TIFF": ("1", "L", "P", "RGB", "RGBA", "CMYK", "I;16", "I", "F"),
    "GIF": ("L", "P"),
    "BMP": ("1", "L", "RGB"),
    "WEBP": ("RGB", "RGBA"),
    "PPM": ("1", "L", "RGB"),
}
SUFFIXES = ("png", "jpg", "tif", "gif", "bmp", "webp", "eps", "txt", "")


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that says it is this large."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(b"\0" * min(width * 3 + 1, 10_000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


class Pictures(FileSubject):
    name = "images"
    share = 20

    def prepare(self) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, (12, 17, 3), dtype=np.uint8)
        self.good: list[bytes] = []
        for kind, modes in MODES.items():
            for mode in modes:
                sink = io.BytesIO()
                image = Image.fromarray(pixels)
                if mode == "I;16":
                    image = Image.fromarray(pixels[..., 0].astype(np.uint16) * 257)
                elif mode in ("LA", "I", "F"):
                    image = image.convert("L").convert(mode)
                image = image if image.mode == mode else image.convert(mode)
                image.save(sink, kind)
                self.good.append(sink.getvalue())

    def content(self, random: Random) -> bytes:
        self.file_name = f"given.{random.choice(SUFFIXES)}"  # type: ignore[misc]
        if random.random() < 0.1:
            sides = (0, 1, 9_999, 20_000, 65_535, 2**31 - 1)
            return bomb(random.choice(sides), random.choice(sides))
        data = random.choice(self.good)
        return data if random.random() < 0.1 else mutations.bytes_like(data, random)

    def read(self, given: bytes) -> None:
        image_size(self.file)
        image = open_image(self.folder, self.file.name, occlude=[(0.1, 0.1, 0.5, 0.5)])
        assert image.mode == "RGB"
