"""The image-cluster bootstrap as matrix products with seeded counts.

A draw resamples images with replacement; it is a row of counts. All arms of a run see the same draws, so differences
are paired by construction, and the draws depend on the seed and the number of images alone: adding an arm or a metric
cannot move anybody's interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from sightline.errors import SightlineError
from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.arrays import FloatArray
from sightline.statistics.intervals import LEVEL, Estimate, percentile_interval, share_interval
from sightline.statistics.metrics import POPULATIONS, Metric, finish, point, probe_sums, why_not
from sightline.statistics.ranks import RankedMargins

DRAWS = 10_000
SEED = 17
_BLOCK_CELLS = 1 << 18  # counts held at once: 2 MB of float64, about one processor cache


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
    step = block or max(1, _BLOCK_CELLS // units)
    for start in range(0, draws, step):
        rows = min(step, draws - start)
        drawn = rng.integers(0, units, size=(rows, units))
        drawn += np.arange(rows)[:, None] * units
        yield np.bincount(drawn.ravel(), minlength=rows * units).reshape(rows, units).astype(np.float64)


@dataclass(frozen=True)
class ImageSums:
    """What an arm's metrics need per image; ``at`` evaluates them all for any weighting of images."""

    metrics: tuple[Metric, ...]
    sums: FloatArray
    """(m, C) sums per image, the columns of all metrics side by side."""
    spans: tuple[tuple[int, int] | None, ...]
    """Per metric its columns; None where the metric is AUROC or has no value."""
    ranked: RankedMargins | None
    """For AUROC, when asked for and defined."""

    @classmethod
    def of(cls, rows: ArmRows, metrics: Sequence[Metric]) -> ImageSums:
        parts: list[FloatArray] = []
        spans: list[tuple[int, int] | None] = []
        ranked: RankedMargins | None = None
        width = 0
        for metric in metrics:
            if why_not(metric, rows):
                spans.append(None)
            elif metric.form == "auroc":
                assert rows.margins is not None  # why_not has seen to it
                ranked = RankedMargins.of(rows.labels, rows.margins, rows.image_index)
                spans.append(None)
            else:
                parts.append(probe_sums(metric, rows))
                start, width = width, width + parts[-1].shape[1]
                spans.append((start, width))
        by_image = np.argsort(rows.image_index, kind="stable")
        firsts = np.searchsorted(rows.image_index[by_image], np.arange(rows.n_images))
        everything = np.concatenate(parts, axis=1)[by_image] if parts else np.zeros((len(rows.labels), 0))
        return cls(tuple(metrics), np.add.reduceat(everything, firsts, axis=0), tuple(spans), ranked)

    def at(self, counts: FloatArray) -> FloatArray:
        """(b, m) counts of images -> (b, M) metrics of each weighting; NaN where a metric has no value."""
        totals: FloatArray = counts @ self.sums
        values = np.full((len(counts), len(self.metrics)), np.nan)
        for index, (metric, span) in enumerate(zip(self.metrics, self.spans, strict=True)):
            if span is not None:
                values[:, index] = finish(metric, totals[:, slice(*span)])
            elif metric.form == "auroc" and self.ranked is not None:
                values[:, index] = self.ranked.auroc(np.ascontiguousarray(counts.T))
        return values

    def point(self) -> FloatArray:
        """(M,) the metrics of the rows as they are: every image counted once."""
        values: FloatArray = self.at(np.ones((1, len(self.sums))))[0]
        return values

    def per_image(self) -> FloatArray:
        """(m, M) the metrics of each image alone; NaN where an image has no probe concerned, and for AUROC."""
        values = np.full((len(self.sums), len(self.metrics)), np.nan)
        for index, (metric, span) in enumerate(zip(self.metrics, self.spans, strict=True)):
            if span is not None:
                values[:, index] = finish(metric, self.sums[:, slice(*span)])
        return values

    def pseudo_values(self) -> FloatArray:
        """(m, M) jackknife pseudo-values m theta - (m - 1) theta_without_i: each image's share in the metric.

        Equal to the per-image value for a mean with the same number of probes in every image; their variance / m is the
        variance of the metric for any of the forms.
        """
        images = len(self.sums)
        whole = self.point()
        step = max(1, _BLOCK_CELLS // images)
        without = [
            self.at(1.0 - (np.arange(start, min(start + step, images))[:, None] == np.arange(images)))
            for start in range(0, images, step)
        ]
        shares: FloatArray = images * whole - (images - 1) * np.concatenate(without)
        return shares


def replicate(rows: ArmRows, metrics: Sequence[Metric], *, draws: int = DRAWS, seed: int = SEED) -> FloatArray:
    """(draws, M) bootstrap draws of an arm's metrics; draw d resamples the same images in all arms that have them."""
    sums = ImageSums.of(rows, metrics)
    return np.concatenate([sums.at(counts) for counts in count_blocks(rows.n_images, draws, seed)])


def metric_interval(
    rows: ArmRows, metric: Metric, *, draws: int = DRAWS, seed: int = SEED, level: float = LEVEL
) -> Estimate:
    """One metric of one arm with its image-cluster interval."""
    reason = why_not(metric, rows)
    if reason:
        raise SightlineError(f"{metric.name} cannot be computed: {reason}")
    values = replicate(rows, [metric], draws=draws, seed=seed)[:, 0]
    return estimate(rows, metric, values, level)


def estimate(rows: ArmRows, metric: Metric, draws: FloatArray, level: float = LEVEL) -> Estimate:
    """A metric that has a value on these rows, with the interval that its (draws,) draws allow.

    Every table takes the interval of an arm's metric from here, so that one share has one interval.
    """
    value, valid = point(metric, rows), int(np.isfinite(draws).sum())
    if not metric.is_share:
        return Estimate(value, *percentile_interval(draws, level), valid)
    concerned = POPULATIONS[metric.over](rows)
    probes, images = int(concerned.sum()), len(np.unique(rows.image_index[concerned]))
    low, high, kind = share_interval(value, draws, probes, images, level)
    return Estimate(value, low, high, valid, kind=kind)


def difference_interval(
    arm: ArmRows, reference: ArmRows, metric: Metric, *, draws: int = DRAWS, seed: int = SEED, level: float = LEVEL
) -> Estimate:
    """metric(arm) - metric(reference) with its paired image-cluster interval."""
    for rows in (arm, reference):
        reason = why_not(metric, rows)
        if reason:
            raise SightlineError(f"the difference in {metric.name} cannot be computed: {reason}")
    if not np.array_equal(arm.image_ids, reference.image_ids):
        raise SightlineError("a paired difference needs both arms on the same images")
    left, right = (replicate(rows, [metric], draws=draws, seed=seed)[:, 0] for rows in (arm, reference))
    low, high = percentile_interval(left - right, level)
    value = point(metric, arm) - point(metric, reference)
    return Estimate(value, low, high, int(np.isfinite(left - right).sum()))
