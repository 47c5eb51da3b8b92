"""Which cells are kept, and where tokens would stand if nothing were pruned: nothing here knows vLLM."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

KEPT = "kept_cells"
"""The processor argument of a request, and the field that travels with its image."""


def read_masks(file: str | Path) -> dict[str, list[int]]:
    """Kept cells by probe id, from a file of ``sightline masks export``."""
    path = Path(file)
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines if line.strip()]
    if any("kept_indices" not in row for row in rows):
        raise ValueError(f"{path} has masks that merge tokens: a cell is kept or dropped here")
    return {row["sample_id"]: row["kept_indices"] for row in rows}


def cells_of(given: Sequence[Sequence[int]] | None, counts: Sequence[int]) -> list[Tensor]:
    """Per image (K,) int64, rising; all of its cells if none are given. ``counts`` are the images' numbers of cells."""
    if given is None:
        return [torch.arange(count) for count in counts]
    _refuse_other_number(given, len(counts))
    for cells, count in zip(given, counts, strict=True):
        if not cells or list(cells) != sorted(set(cells)) or cells[0] < 0 or cells[-1] >= count:
            raise ValueError(f"{KEPT} must be rising cells of 0..{count - 1}, at least one; was the image resized?")
    return [torch.tensor(cells, dtype=torch.long) for cells in given]


def of_missing(given: Sequence[Sequence[int]], cached: Sequence[bool]) -> list[Sequence[int]]:
    """The lists of images that no cache has."""
    _refuse_other_number(given, len(cached))
    return [cells for cells, hit in zip(given, cached, strict=True) if not hit]


def _refuse_other_number(given: Sequence[Sequence[int]], images: int) -> None:
    if len(given) != images:
        raise ValueError(f"{KEPT} has {len(given)} lists for {images} images")


def unpruned(spans: Sequence[tuple[int, int, Tensor]], length: int) -> tuple[list[int], Tensor]:
    """Where things stand in the prompt without pruning.

    ``spans`` has offset, number of cells N and kept cells (K,) of each image in a prompt of ``length`` tokens, in the
    order of offsets. Returns the offset of each image in the longer prompt, and (length,) for each token of the short
    one its place there.
    """
    offsets, places, done, more = [], [], 0, 0
    for offset, cells, kept in spans:
        places += [torch.arange(done, offset) + more, offset + more + kept]
        offsets.append(offset + more)
        done = offset + len(kept)
        more += cells - len(kept)
    return offsets, torch.cat([*places, torch.arange(done, length) + more])
