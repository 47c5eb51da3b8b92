"""Some image records of a run, and what all of them say of their cells: never all pictures at once."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sightline.store.marks import unpack_cells
from sightline.store.migrations import migrated_images

if TYPE_CHECKING:
    from sightline.store.load import Run


def image_records(run: Run, keys: Collection[str]) -> dict[str, dict[str, Any]]:
    """The records of some images by their keys; a key that the run has no record of is left out."""
    wanted, found = pa.array(sorted(keys), pa.string()), dict[str, dict[str, Any]]()
    owner = run.owner()
    for piece in run.image_pieces():
        places = np.flatnonzero(pc.is_in(owner.read(piece, ["image_key"]).column(0), wanted))
        if len(places):
            for record in migrated_images(owner.read(piece)).take(pa.array(places)).to_pylist():
                found.setdefault(record["image_key"], record)
    return found


def image_cells(run: Run) -> tuple[dict[str, int], list[NDArray[np.float32]]]:
    """Image key -> which set of cells it has, and the sets: images of one size share theirs."""
    sets: dict[bytes, int] = {}
    of_image: dict[str, int] = {}
    owner = run.owner()
    for piece in run.image_pieces():
        for chunk in owner.read(piece, ["image_key", "cells"]).to_batches():
            packed = chunk.column("cells").dictionary_encode()
            numbers = np.array([sets.setdefault(one, len(sets)) for one in packed.dictionary.to_pylist()])
            keys = chunk.column("image_key").to_pylist()
            of_image.update(zip(keys, numbers[packed.indices.to_numpy()].tolist(), strict=True))
    return of_image, [unpack_cells(packed) for packed in sets]
