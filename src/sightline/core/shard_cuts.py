"""Where a sequence of probes, grouped by image, is cut into shards. Writers and checks of a run share this one rule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Stretch(NamedTuple):
    """Consecutive probes of one image within a shard."""

    image: int
    """Which image, counted from 0."""
    start: int
    stop: int
    """Which of the image's probes."""


def cut_shards(sizes: Iterable[int], images: int, probes: int | None) -> Iterator[list[Stretch]]:
    """Shards of at most so many images and probes, from the number of probes of every image in order.

    An image whose probes fit into one shard is not divided; one with more fills as many shards as it takes. Without
    ``probes`` no image is divided at all, which is how the first release cut.
    """
    shard: list[Stretch] = []
    held = 0
    for image, size in enumerate(sizes):
        start = 0
        while start < size:
            left = size - start
            full = len(shard) == images or (probes is not None and held + left > probes)
            if shard and full:
                yield shard
                shard, held = [], 0
            taken = left if probes is None else min(left, probes)
            shard.append(Stretch(image, start, start + taken))
            start, held = start + taken, held + taken
    if shard:
        yield shard
