"""What the tests of page formats share: an image beside a file, and words compared in pixels."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from sightline.errors import SightlineError
from sightline.probes.annotations import load_regions
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


def refused(path: Path, says: str, **options: object) -> None:
    """The file is refused in one line that names it."""
    with pytest.raises(SightlineError, match=says) as caught:
        load_regions(path, **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
