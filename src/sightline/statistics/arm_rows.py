"""The rows of one arm as arrays: what every metric reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from sightline.errors import SightlineError
from sightline.statistics.arrays import AnyArray, BoolArray, FloatArray, IntArray, flags


@dataclass(frozen=True)
class ArmRows:
    """One arm over n probes of m images, in any order. Build it with ``ArmRows.of``."""

    labels: BoolArray
    """(n,) True where the right answer is yes."""
    predicted: BoolArray | None
    """(n,) True where the arm answered yes; None when neither margins nor answers are known."""
    margins: FloatArray | None
    """(n,) loss_no - loss_yes."""
    has_regions: BoolArray
    """(n,) True where the probe has at least one annotated region; geometry is read nowhere else."""
    image_index: IntArray
    """(n,) which of the m images a probe belongs to; images are numbered in the order of their sorted ids."""
    image_ids: AnyArray
    """(m,) sorted ids."""
    columns: Mapping[str, FloatArray] = field(default_factory=dict)
    """Per-probe values by row-schema name (``ecr``, ``anchor_ecr``, ``lpp``, ...), each (n,)."""
    yes_or_no: bool = True
    """False where answers are something else: ``predicted`` then says whether the answer is right."""

    @property
    def n_images(self) -> int:
        return len(self.image_ids)

    @classmethod
    def of(
        cls,
        labels: ArrayLike,
        margins: ArrayLike | None = None,
        images: ArrayLike | None = None,
        *,
        threshold: float = 0.0,
        predicted: ArrayLike | None = None,
        has_regions: ArrayLike | None = None,
        yes_or_no: bool = True,
        **columns: ArrayLike,
    ) -> ArmRows:
        """Checks lengths and fills in what follows from the rest.

        Without ``predicted`` an answer is yes iff margin >= threshold; without ``images`` every probe is its own image;
        without ``has_regions`` a probe has regions where ``ecr`` is finite.
        """
        label = flags(labels, "labels")
        count = len(label)
        if count == 0:
            raise SightlineError("there are no rows to compute statistics from")
        margin = None if margins is None else np.asarray(margins, dtype=np.float64)
        values = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
        answered: BoolArray | None = None
        if predicted is not None:
            answered = flags(predicted, "predicted")
        elif margin is not None:
            answered = margin >= threshold
        if has_regions is not None:
            regions = flags(has_regions, "has_regions")
        else:
            regions = np.isfinite(values["ecr"]) if "ecr" in values else np.zeros(count, dtype=bool)
        ids = np.arange(count) if images is None else np.asarray(images)
        ids = ids.astype(str) if ids.dtype == object else ids
        lengths = {"margins": margin, "predicted": answered, **values, "has_regions": regions, "images": ids}
        for name, column in lengths.items():
            if column is not None and column.shape != (count,):
                raise SightlineError(f"{name} has shape {column.shape}, expected one value for each of {count} labels")
        image_ids, image_index = np.unique(ids, return_inverse=True)
        return cls(label, answered, margin, regions, image_index.astype(np.int64), image_ids, values, yes_or_no)
