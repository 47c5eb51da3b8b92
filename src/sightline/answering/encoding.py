"""Images through the vision tower in batches: alike shapes together, halved when memory runs out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sightline.backbones.base import Backbone
from sightline.backbones.pixels import Pixels
from sightline.core.prefix import Encoded
from sightline.device.memory import FEWER, halved, in_halves


def encode_all(
    backbone: Backbone, pixels: Sequence[Pixels], needs: Iterable[str] = (), batch_images: int = 1
) -> list[Encoded]:
    """Every image once, in the order given.

    One image per call (the default) makes an image's tokens independent of its neighbours to the last bit; batches
    are faster on a GPU and differ by rounding. Only images of equal shape share a batch.
    """
    wanted = frozenset(needs)

    def too_large(index: int) -> str:
        size = "x".join(str(edge) for edge in pixels[index].size)
        return f"a single image of {size} pixels; use a smaller image size or dtype{FEWER}"

    def encode(group: list[int]) -> list[Encoded]:
        return backbone.encode([pixels[i] for i in group], wanted)

    def patches(group: list[int]) -> int:
        return sum(math.prod(pixels[i].grid) for i in group)

    groups = _groups(pixels, max(1, batch_images))
    done = in_halves(groups, encode, too_large, patches, backbone.limits["patches"])
    smaller = halved(groups, done)
    encoded = {
        index: replace(item, halved=True) if index in smaller else item
        for group, items in done
        for index, item in zip(group, items, strict=True)
    }
    return [encoded[i] for i in range(len(pixels))]


def _groups(pixels: Sequence[Pixels], batch_images: int) -> list[list[int]]:
    """Indices of images of equal shape to the tower, at most ``batch_images`` together, by first appearance."""
    alike: dict[tuple[int, int, int], list[int]] = {}
    for index, item in enumerate(pixels):
        alike.setdefault(item.grid, []).append(index)
    return [
        members[first : first + batch_images]
        for members in alike.values()
        for first in range(0, len(members), batch_images)
    ]
