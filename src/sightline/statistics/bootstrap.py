"""The image-cluster bootstrap as matrix products with seeded counts.

A draw resamples images with replacement; it is a row of counts. All arms of a run see the same draws, so differences
are paired by construction, and the draws depend on the seed and the number of images alone: adding an arm or a metric
cannot move anybody's interval.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import ContextDecorator
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from importlib import import_module
from threading import Lock
from typing import Any

import numpy as np

from sightline.errors import SightlineError
from sightline.statistics.arm_rows import ArmRows, FloatArray, IntArray
from sightline.statistics.intervals import LEVEL, Estimate, ImageShares, interval
from sightline.statistics.metrics import POPULATIONS, Metric, finish, probe_sums, why_not
from sightline.statistics.ranks import RankedMargins

DRAWS = 10_000
SEED = 17
_BLOCK_CELLS = 1 << 18  # counts held at once: 2 MB of float64, about one processor cache
_FEWEST_AT_ONCE = 16  # draws of a block however many images there are: a product with fewer reads all sums for little
RANKED_ROWS = 2_000_000_000
"""Rows times draws that ranks are resampled for. Sums per image do for every other metric; AUROC walks through all rows
of an arm in every draw, so that of arms with more than 200,000 rows fewer than 10,000 draws are ranked."""
FEWEST_RANKED = 1_000
"""Draws of AUROC that are ranked in any case."""


def generator(seed: int, purpose: str) -> np.random.Generator:
    """PCG64 seeded by (seed, purpose), so that no two purposes share a stream."""
    key = int.from_bytes(sha256(purpose.encode()).digest()[:4], "big")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(key,))))


def count_blocks(
    units: int, draws: int = DRAWS, seed: int = SEED, purpose: str = "images", block: int | None = None
) -> Iterator[FloatArray]:
    """Yields (b, units) counts until ``draws`` rows are out: how often each unit was drawn among ``units`` draws.

    The stream does not depend on the block size.
    """
    if units < 2:
        raise SightlineError(f"an interval needs at least two {purpose} to resample, got {units}")
    if draws < 1:
        raise SightlineError(f"an interval needs at least one draw, got {draws}")
    rng = generator(seed, purpose)
    step = block or max(_FEWEST_AT_ONCE, _BLOCK_CELLS // units)
    at_once = max(1, _BLOCK_CELLS // units)
    for start in range(0, draws, step):
        counts = np.empty((min(step, draws - start), units))
        for first in range(0, len(counts), at_once):
            rows = min(at_once, len(counts) - first)
            drawn = rng.integers(0, units, size=(rows, units))
            drawn += np.arange(rows)[:, None] * units
            counts[first : first + rows] = np.bincount(drawn.ravel(), minlength=rows * units).reshape(rows, units)
        yield counts


def mean_draws(values: FloatArray, units: IntArray, draws: int, seed: int, purpose: str = "images") -> FloatArray:
    """(n, p) values of (n,) numbered units -> (draws, p) their means over resampled units."""
    sums = np.stack([np.bincount(units, column) for column in (*values.T, np.ones(len(values)))], axis=1)
    blocks = count_blocks(int(units.max()) + 1, draws, seed, purpose)
    totals: FloatArray = np.concatenate([counts @ sums for counts in blocks])
    return totals[:, :-1] / totals[:, -1:]


def ranked_draws(rows: int, draws: int) -> int:
    """How many of the draws AUROC is computed on, for an arm of that many rows: the first ones, or all of them."""
    return min(draws, max(FEWEST_RANKED, RANKED_ROWS // max(1, rows)))


def ranked_words(rows: int, draws: int) -> str:
    """Says that AUROC has fewer draws than everything else, where the largest arm has so many rows; else ""."""
    ranked = ranked_draws(rows, draws)
    if ranked == draws:
        return ""
    return (
        f"intervals of AUROC rest on the first {ranked:,} of {draws:,} draws: every one of them ranks the up to "
        f"{rows:,} rows of an arm anew"
    )


@dataclass(frozen=True)
class ImageSums:
    """What an arm's metrics need per image; ``at`` evaluates them all for any weighting of images."""

    metrics: tuple[Metric, ...]
    sums: FloatArray
    """(m, C) sums per image, those of all metrics side by side; equal ones, such as the probes that several metrics
    are about, are one column."""
    columns: tuple[IntArray | None, ...]
    """Per metric which of the C it is made from; None where the metric is AUROC or has no value."""
    ranked: RankedMargins | None
    """For AUROC, when asked for and defined."""
    n_rows: int
    certain: frozenset[str] = frozenset()
    """Names of metrics that hold by construction: they are numbers without an interval."""

    @classmethod
    def of(cls, rows: ArmRows, metrics: Sequence[Metric]) -> ImageSums:
        by_image: IntArray | None = None
        if (np.diff(rows.image_index) < 0).any():
            by_image = np.argsort(rows.image_index, kind="stable")
        ascending = rows.image_index if by_image is None else rows.image_index[by_image]
        firsts = np.searchsorted(ascending, np.arange(rows.n_images))
        sums: list[FloatArray] = []
        known: dict[bytes, int] = {}  # by content, which of the sums it is
        columns: list[IntArray | None] = []
        ranked: RankedMargins | None = None
        for metric in metrics:
            if why_not(metric, rows):
                columns.append(None)
            elif metric.form == "auroc":
                assert rows.margins is not None  # why_not has seen to it
                ranked = RankedMargins.of(rows.labels, rows.margins, rows.image_index)
                columns.append(None)
            else:
                places = []
                for added in probe_sums(metric, rows):
                    column = np.add.reduceat(added if by_image is None else added[by_image], firsts)
                    place = known.setdefault(sha256(column.data).digest(), len(sums))
                    if place == len(sums):
                        sums.append(column)
                    places.append(place)
                columns.append(np.array(places))
        together = np.stack(sums, axis=1) if sums else np.zeros((rows.n_images, 0))
        certain = frozenset(
            metric.name for metric in metrics if not why_not(metric, rows) and _is_certain(metric, rows)
        )
        return cls(tuple(metrics), together, tuple(columns), ranked, len(rows.labels), certain)

    def at(self, counts: FloatArray, *, ranked: int | None = None) -> FloatArray:
        """(b, m) counts of images -> (b, M) metrics of each weighting; NaN where a metric has no value.

        ``ranked`` limits AUROC to the first weightings.
        """
        totals: FloatArray = counts @ self.sums
        values = np.full((len(counts), len(self.metrics)), np.nan)
        for index, (metric, columns) in enumerate(zip(self.metrics, self.columns, strict=True)):
            if columns is not None:
                values[:, index] = finish(metric, totals[:, columns])
            elif metric.form == "auroc" and self.ranked is not None:
                chosen = counts[:ranked]
                if len(chosen):
                    values[: len(chosen), index] = self.ranked.auroc(chosen)
        return values

    @cached_property
    def point(self) -> FloatArray:
        """(M,) the metrics of the rows as they are: every image counted once."""
        values: FloatArray = self.at(np.ones((1, len(self.sums))))[0]
        return values

    def pseudo_values(self) -> FloatArray:
        """(m, M) jackknife pseudo-values m theta - (m - 1) theta_without_i: each image's share in the metric.

        Equal to the per-image value for a mean with the same number of probes in every image; their variance / m is the
        variance of the metric for any of the forms.
        """
        images = len(self.sums)
        without = np.stack([self._without_each(metric) for metric in self.metrics], axis=1)
        shares: FloatArray = images * self.point - (images - 1) * without
        return shares

    def _without_each(self, metric: Metric) -> FloatArray:
        """(m,) the metric without each image; NaN where nothing is left, or where it has no value at all."""
        columns = self.columns[self.metrics.index(metric)]
        if columns is not None:
            mine = self.sums[:, columns]
            return finish(metric, mine.sum(axis=0) - mine)
        return self._auroc_without_each if metric.form == "auroc" else np.full(len(self.sums), np.nan)

    @cached_property
    def _auroc_without_each(self) -> FloatArray:
        images = len(self.sums)
        return np.full(images, np.nan) if self.ranked is None else self.ranked.without_each(images)

    def shares(self, metric: Metric) -> ImageShares:
        """What each image has in a metric that has a value."""
        value = float(self.point[self.metrics.index(metric)])
        sizes = self._sizes(metric)  # of each class of probes (m,) how many an image has
        parts = [float(size.max() / size.sum()) for size in sizes]
        # A pair of AUROC is touched through its positive or through its negative.
        heaviest = sum(parts) if metric.form == "auroc" else max(parts)
        concerned = np.sum(sizes, axis=0) > 0
        return ImageShares(value, value - self._without_each(metric), concerned, heaviest, metric.limits)

    def probes(self, metric: Metric) -> int:
        """How many probes a metric that has a value is about."""
        return int(sum(size.sum() for size in self._sizes(metric)))

    def _sizes(self, metric: Metric) -> list[FloatArray]:
        if metric.form == "auroc":
            assert self.ranked is not None
            return self.ranked.sizes(len(self.sums))
        columns = self.columns[self.metrics.index(metric)]
        assert columns is not None
        own = {"mean": columns[1:], "macro": columns[1::2], "ece": columns[-1:]}[metric.form]
        return [self.sums[:, column] for column in own]

    def estimate(self, metric: Metric, draws: FloatArray, level: float = LEVEL) -> Estimate:
        """A metric that has a value, with the interval that its (draws,) draws and the number of images allow.

        Every table takes the interval of an arm's metric from here, so that one number has one interval.
        """
        if metric.name in self.certain:
            return Estimate(float(self.point[self.metrics.index(metric)]), np.nan, np.nan, kind="certain")
        return interval(draws, self.shares(metric), level)

    def difference(self, other: ImageSums, metric: Metric, draws: FloatArray, level: float = LEVEL) -> Estimate:
        """metric(self) - metric(other) over the same images, from (draws,) paired draws of it."""
        if self is other or metric.name in self.certain & other.certain:
            value = self.estimate(metric, draws).value - other.estimate(metric, draws).value
            return Estimate(value, np.nan, np.nan, kind="certain")
        return interval(draws, self.shares(metric).minus(other.shares(metric)), level)


def _is_certain(metric: Metric, rows: ArmRows) -> bool:
    """Whether a value holds by construction: a budget that was asked for, or the coverage of what keeps every token.

    Where the vision tower does not see all of the evidence, Full's coverage is measured like any other.
    """
    if not metric.with_interval:
        return True
    keep = rows.columns.get("keep")
    if metric.of_all_tokens is None or keep is None or not (keep == 1.0).all():
        return False
    return bool(np.allclose(metric.value(rows)[POPULATIONS[metric.over](rows)], metric.of_all_tokens, atol=1e-9))


def replicate(rows: ArmRows, metrics: Sequence[Metric], *, draws: int = DRAWS, seed: int = SEED) -> FloatArray:
    """(draws, M) bootstrap draws of an arm's metrics; draw d resamples the same images in all arms that have them.

    AUROC is NaN behind the draws that it is ranked for (``ranked_draws``).
    """
    return replicate_all([ImageSums.of(rows, metrics)], draws=draws, seed=seed)[0]


def replicate_all(arms: Sequence[ImageSums], *, draws: int = DRAWS, seed: int = SEED) -> list[FloatArray]:
    """``replicate`` of several arms: those with equally many images share the counts, which are drawn once."""
    found: list[FloatArray] = [np.empty((draws, len(arm.metrics))) for arm in arms]
    for images in dict.fromkeys(len(arm.sums) for arm in arms):
        alike = [place for place, arm in enumerate(arms) if len(arm.sums) == images]
        start = 0
        for counts in count_blocks(images, draws, seed):
            for place in alike:
                left = max(0, ranked_draws(arms[place].n_rows, draws) - start)
                found[place][start : start + len(counts)] = arms[place].at(counts, ranked=left)
            start += len(counts)
    return found


def metric_interval(rows: ArmRows, metric: Metric, *, draws: int = DRAWS, seed: int = SEED) -> Estimate:
    """One metric of one arm with its image-cluster interval."""
    sums = _sums(rows, metric)
    return sums.estimate(metric, replicate_all([sums], draws=draws, seed=seed)[0][:, 0])


def difference_interval(
    arm: ArmRows, reference: ArmRows, metric: Metric, *, draws: int = DRAWS, seed: int = SEED
) -> Estimate:
    """metric(arm) - metric(reference) with its paired image-cluster interval."""
    left, right, drawn = paired_draws(arm, reference, metric, draws=draws, seed=seed)
    return left.difference(right, metric, drawn)


def paired_draws(
    arm: ArmRows, reference: ArmRows, metric: Metric, *, draws: int = DRAWS, seed: int = SEED
) -> tuple[ImageSums, ImageSums, FloatArray]:
    """Both arms per image, and (draws,) of metric(arm) - metric(reference).

    For a p-value: ``p_above(drawn, left.shares(metric).minus(right.shares(metric)))``.
    """
    left = _sums(arm, metric)
    right = left if arm is reference else _sums(reference, metric)
    if not np.array_equal(arm.image_ids, reference.image_ids):
        raise SightlineError("a paired difference needs both arms on the same images")
    drawn = replicate_all([left, right], draws=draws, seed=seed)
    return left, right, drawn[0][:, 0] - drawn[1][:, 0]


def _sums(rows: ArmRows, metric: Metric) -> ImageSums:
    reason = why_not(metric, rows)
    if reason:
        raise SightlineError(f"{metric.name} cannot be computed: {reason}")
    return ImageSums.of(rows, [metric])


# Products on one thread while reports, comparisons and gates are made. They are small, and there are thousands: several
# threads gain little on an idle machine, and on a busy one each product waits for the slowest of them.

NAMES = ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads", "openblas_{}_num_threads")
"""What OpenBLAS calls it, in NumPy's own wheels and elsewhere."""


@cache
def _openblas() -> tuple[Any, Any] | None:
    """What sets and what tells the number of threads; None where NumPy multiplies by something else."""
    try:
        library = ctypes.CDLL(import_module("numpy._core._multiarray_umath").__file__)
    except (ImportError, OSError):
        return None
    found = next((name for name in NAMES if hasattr(library, name.format("set"))), None)
    return None if found is None else (getattr(library, found.format("set")), getattr(library, found.format("get")))


class OneThread(ContextDecorator):
    """A context, also above a function; within another, or in several threads at a time, the last to leave restores."""

    _lock, _inside, _before = Lock(), 0, 1

    def __enter__(self) -> None:
        with OneThread._lock:
            if OneThread._inside == 0 and (known := _openblas()) is not None:
                OneThread._before = int(known[1]())
                known[0](1)
            OneThread._inside += 1

    def __exit__(self, *_: object) -> None:
        with OneThread._lock:
            OneThread._inside -= 1
            if OneThread._inside == 0 and (known := _openblas()) is not None:
                known[0](OneThread._before)
