from __future__ import annotations

import io
from typing import Any

import pytest
from PIL import Image

from sightline.probes.images import webp_size


def webp(width: int, height: int, mode: str = "RGB", **how: Any) -> bytes:
    packed = io.BytesIO()
    Image.effect_noise((width, height), 60).convert(mode).save(packed, format="WEBP", **how)
    return packed.getvalue()


@pytest.mark.parametrize("size", [(1, 1), (3, 700), (1000, 17)])
@pytest.mark.parametrize(
    ("kind", "mode", "how"),
    [(b"VP8 ", "RGB", {}), (b"VP8L", "RGB", {"lossless": True}), (b"VP8X", "RGB", {"exif": b"Exif\0\0MM"})],
)
def test_all_three_kinds_tell_their_size(size: tuple[int, int], kind: bytes, mode: str, how: dict[str, Any]) -> None:
    data = webp(*size, mode, **how)
    assert data[12:16] == kind
    assert webp_size(data[:30]) == size


def test_other_bytes_tell_nothing() -> None:
    assert webp_size(b"") is None
    assert webp_size(b"RIFF\0\0\0\0WAVE" + bytes(30)) is None
    assert webp_size(b"RIFF\0\0\0\0WEBPABCD" + bytes(30)) is None
    assert webp_size(webp(8, 8)[:20]) is None
