"""The size of a WebP image from its first bytes. Pillow wants the whole file before it says anything about it."""

from __future__ import annotations

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
