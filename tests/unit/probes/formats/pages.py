"""What the tests of page formats share: an image beside a file, and words compared in pixels."""

from __future__ import annotations

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
