"""How far two annotators agree: on labels (kappa) and on boxes (matched and union overlap)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sightline.errors import SightlineError
from sightline.statistics.arm_rows import FloatArray
from sightline.statistics.bootstrap import DRAWS, count_blocks
from sightline.statistics.intervals import (
    Estimate,
    ImageShares,
    dirichlet,
    interval,
    percentile_interval,
    unseen_weights,
    wilson,
)

MATCH_IOU = 0.5


def _kappa(tables: FloatArray) -> FloatArray:
    """(d, c, c) contingency tables -> (d,) (po - pe) / (1 - pe); 1 (or 0) where pe = 1 and po = 1 (or not)."""
    total = tables.sum(axis=(1, 2))
    observed = np.einsum("dii->d", tables) / total
    expected = np.einsum("dij,dki->d", tables, tables) / total**2
    certain = expected == 1.0
    chance_free = (observed - expected) / np.where(certain, 1.0, 1.0 - expected)
    return np.asarray(np.where(certain, observed == 1.0, chance_free), dtype=np.float64)


def _codes(first: ArrayLike, second: ArrayLike) -> tuple[FloatArray, int]:
    """(n, c * c) one-hot cell of the contingency table of each row, and c."""
    one, two = np.asarray(first), np.asarray(second)
    if one.shape != two.shape or one.ndim != 1 or len(one) == 0:
        raise SightlineError(f"two annotators must label the same rows, got {one.shape} and {two.shape}")
    categories, codes = np.unique(np.concatenate([one, two]), return_inverse=True)
    size = len(categories)
    cell = codes[: len(one)] * size + codes[len(one) :]
    return (cell[:, None] == np.arange(size * size)).astype(np.float64), size


def kappa_draws(first: ArrayLike, second: ArrayLike, counts: FloatArray) -> FloatArray:
    """(d, n) counts of rows -> (d,) kappa of each resample: its contingency table is counts @ one-hot cells."""
    cells, size = _codes(first, second)
    return _kappa((counts @ cells).reshape(-1, size, size))


def kappa_interval(first: ArrayLike, second: ArrayLike, *, draws: int = DRAWS) -> Estimate:
    """Cohen's kappa with a bootstrap over annotated rows.

    Where the annotators disagree, or agree, on too few rows for that, the bounds allow for one more row, labelled in
    the worst and the best way for them.
    """
    blocks = count_blocks(len(np.asarray(first)), draws, purpose="annotated rows")
    drawn = np.concatenate([kappa_draws(first, second, counts) for counts in blocks])
    cells, size = _codes(first, second)
    table = cells.sum(axis=0)
    value = float(_kappa(table.reshape(1, size, size))[0])
    with np.errstate(invalid="ignore", divide="ignore"):
        without = cells @ _kappa((table - np.eye(size * size)).reshape(-1, size, size))
    shares = ImageShares(value, value - without, np.ones(len(cells), dtype=bool), limits=(-1.0, 1.0))
    found = interval(drawn, shares)
    if found.kind == "percentile":
        return found
    padded = np.zeros((max(size, 2),) * 2)  # there is another label, even where nobody has used it
    padded[:size, :size] = table.reshape(size, size)
    used = padded.ravel() > 0
    weights = dirichlet(tuple(padded.ravel()[used].tolist()))
    unseen = unseen_weights(len(weights), len(cells))
    bounds = []
    for cell in range(padded.size):
        tables = np.zeros((len(weights), padded.size))
        tables[:, used] = (1.0 - unseen)[:, None] * weights
        tables[:, cell] += unseen
        bounds.append(percentile_interval(_kappa(tables.reshape(-1, *padded.shape))))
    return Estimate(value, min(low for low, _ in bounds), max(high for _, high in bounds), draws, kind="unseen")


def agreement_rate(first: ArrayLike, second: ArrayLike) -> Estimate:
    """Share of rows with equal labels, with Wilson's interval."""
    cells, size = _codes(first, second)
    same = int(cells.sum(axis=0).reshape(size, size).trace())
    return Estimate(same / len(cells), *wilson(same, len(cells)))


def _union_area(boxes: FloatArray) -> float:
    """Exact area of a union of a few (x1, y1, x2, y2) boxes, on the grid that their edges span."""
    if len(boxes) == 0:
        return 0.0
    x, y = np.unique(boxes[:, [0, 2]]), np.unique(boxes[:, [1, 3]])
    inside_x = (boxes[:, :1] <= x[:-1]) & (x[1:] <= boxes[:, 2:3])
    inside_y = (boxes[:, 1:2] <= y[:-1]) & (y[1:] <= boxes[:, 3:])
    covered = (inside_x[:, :, None] & inside_y[:, None, :]).any(axis=0)
    return float(np.diff(x) @ covered @ np.diff(y))


def _iou(first: FloatArray, second: FloatArray) -> FloatArray:
    """(a, 4), (b, 4) -> (a, b) intersection over union."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = np.clip(high - low, 0.0, None).prod(axis=2)
    sizes = [(b[:, 2:] - b[:, :2]).prod(axis=1) for b in (first, second)]
    return np.asarray(shared / (sizes[0][:, None] + sizes[1] - shared))


@dataclass(frozen=True)
class BoxAgreement:
    """Two annotators' boxes of one question."""

    matched_iou: tuple[float, ...]
    """IoU of each matched pair, best first; pairs may be disjoint (0)."""
    union_iou: float
    """Area that both marked over area that either marked."""
    first_covered: float
    """Share of the first annotator's area that the second marked too."""
    second_covered: float
    same_types: bool
    """Whether both used the same set of label types (the text before a colon)."""
    all_matched: bool
    """Equally many boxes and every pair at IoU >= 0.5."""

    @property
    def needs_adjudication(self) -> bool:
        return not (self.all_matched and self.same_types)


def box_agreement(
    first: Sequence[Sequence[float]],
    second: Sequence[Sequence[float]],
    first_labels: Sequence[str] = (),
    second_labels: Sequence[str] = (),
) -> BoxAgreement:
    """Greedy one-to-one matching by IoU (best pair first, later indices first on ties) and overlap of the unions.

    |A and B| = |A| + |B| - |A or B|, all three exact.
    """
    one, two = (np.asarray(boxes, dtype=np.float64).reshape(-1, 4) for boxes in (first, second))
    iou = _iou(one, two)
    pairs = sorted(((iou[i, j], i, j) for i in range(len(one)) for j in range(len(two))), reverse=True)
    taken: tuple[set[int], set[int]] = (set(), set())
    matched: list[float] = []
    for value, i, j in pairs:
        if i not in taken[0] and j not in taken[1]:
            taken[0].add(i)
            taken[1].add(j)
            matched.append(float(value))
    area_one, area_two, either = _union_area(one), _union_area(two), _union_area(np.concatenate([one, two]))
    both = max(0.0, area_one + area_two - either)
    types = [{label.split(":", 1)[0].strip() for label in labels} for labels in (first_labels, second_labels)]
    return BoxAgreement(
        matched_iou=tuple(matched),
        union_iou=both / either if either else 0.0,
        first_covered=both / area_one if area_one else 0.0,
        second_covered=both / area_two if area_two else 0.0,
        same_types=types[0] == types[1],
        all_matched=len(one) == len(two) and all(value >= MATCH_IOU for value in matched),
    )
