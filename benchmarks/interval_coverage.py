"""How often 95% intervals hold the truth, at sizes where percentiles of resamples do not.

    OMP_NUM_THREADS=1 python benchmarks/interval_coverage.py

Draws samples of images from populations whose truth is known, takes of each the interval that every table and verdict
would give it, and prints in how many samples it holds the truth, how wide it is on average, and the same of plain
percentiles. About a minute on one core; `--trials 400` is quicker and coarser.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.stats import norm

from sightline.statistics.arm_rows import ArmRows, FloatArray
from sightline.statistics.bootstrap import ImageSums, count_blocks
from sightline.statistics.intervals import Estimate, percentile_interval
from sightline.statistics.metrics import METRICS

IMAGES = (20, 50, 200)
DISCORDANT = (0.0, 0.01, 0.05)
DRAWS = 1000
TRIALS = 3000
Sample = tuple[ArmRows, ArmRows | None]
"""One arm, or an arm and its reference."""


@dataclass(frozen=True)
class Population:
    """Where samples come from, and what is true of it."""

    name: str
    metric: str
    truth: float
    sample: Callable[[np.random.Generator, int], Sample]
    cheap: bool = True
    """Whether few different samples occur, so that many trials cost little."""


@dataclass(frozen=True)
class Coverage:
    """Of one population at one size."""

    population: Population
    images: int
    trials: int
    covered: float
    width: float
    plain_covered: float
    plain_width: float

    def __str__(self) -> str:
        pairs = ((self.covered, self.width), (self.plain_covered, self.plain_width))
        return "; ".join(f"{100 * covered:.1f} % ({width:.3f})" for covered, width in pairs)


def paired(losses: float, gains: float, probes: int) -> Callable[[np.random.Generator, int], Sample]:
    """Two arms: an image's answers are lost or gained together half of the time, else each by itself."""

    def sample(rng: np.random.Generator, images: int) -> Sample:
        chance = rng.random((images, probes))
        together = rng.random((images, 1)) < 0.5
        chance = np.where(together, chance[:, :1], chance)
        lost, gained = chance < losses, chance > 1.0 - gains
        index = np.repeat(np.arange(images), probes)
        # Sorted images make equal samples recognisable; resampling images does not care for their order.
        order = np.lexsort((gained.sum(axis=1), lost.sum(axis=1)))
        before, after = np.ones((images, probes)), np.ones((images, probes))
        after[lost[order]], before[gained[order]] = 0.0, 0.0
        right = [np.where(one.ravel() > 0, 1.0, -1.0) for one in (after, before)]
        return ArmRows.of(np.ones(len(index)), right[0], index), ArmRows.of(np.ones(len(index)), right[1], index)

    return sample


def shares(right: float) -> Callable[[np.random.Generator, int], Sample]:
    """One arm, right on so many images."""

    def sample(rng: np.random.Generator, images: int) -> Sample:
        wrong = np.sort(rng.random(images) >= right)
        return ArmRows.of(np.ones(images), np.where(wrong, -1.0, 1.0), np.arange(images)), None

    return sample


def coverages(none: float, whole: float) -> Callable[[np.random.Generator, int], Sample]:
    """Coverage of evidence: 0 of some images, 1 of others, anything between of the rest."""

    def sample(rng: np.random.Generator, images: int) -> Sample:
        chance, between = rng.random(images), rng.random(images)
        ecr = np.where(chance < none, 0.0, np.where(chance > 1.0 - whole, 1.0, between))
        return ArmRows.of(np.ones(images), np.ones(images), np.arange(images), ecr=ecr), None

    return sample


def heights(rng: np.random.Generator, images: int) -> Sample:
    """Pixels of character height, without an upper limit and skewed."""
    pixels = 12.0 * rng.exponential(size=images)
    return ArmRows.of(np.ones(images), np.ones(images), np.arange(images), legibility=pixels, ecr=np.ones(images)), None


def margins(apart: float) -> Callable[[np.random.Generator, int], Sample]:
    """A yes and a no per image, with normal margins so many standard deviations apart; 0 stands for constant ones."""

    def sample(rng: np.random.Generator, images: int) -> Sample:
        labels = np.tile([True, False], images)
        values = rng.normal(size=2 * images) + apart * labels if apart else np.ones(2 * images)
        return ArmRows.of(labels, values, np.repeat(np.arange(images), 2)), None

    return sample


def populations() -> Iterator[Population]:
    for share in DISCORDANT:
        yield Population(f"difference, {share:g} lost", "accuracy", -share, paired(share, 0.0, 1))
        yield Population(f"difference, {share:g} lost, two probes", "accuracy", -share, paired(share, 0.0, 2))
        yield Population(f"difference, {share:g} lost or gained", "accuracy", 0.0, paired(share / 2, share / 2, 1))
        both = f"difference, {share:g} lost or gained, two probes"
        yield Population(both, "accuracy", 0.0, paired(share / 2, share / 2, 2))
        yield Population(f"share, {share:g} wrong", "accuracy", 1.0 - share, shares(1.0 - share))
    yield Population("difference, 0.2 lost", "accuracy", -0.2, paired(0.2, 0.0, 1))
    yield Population("PosECR, 0.95 whole", "pos_ecr", 0.975, coverages(0.0, 0.95), cheap=False)
    yield Population("PosECR, a quarter gone, half whole", "pos_ecr", 0.625, coverages(0.25, 0.5), cheap=False)
    yield Population("legibility, skewed", "legibility", 12.0, heights, cheap=False)
    yield Population("AUROC, constant margins", "auroc", 0.5, margins(0.0))
    for apart in (1.0, 2.0, 4.0):
        truth = float(norm.cdf(apart / np.sqrt(2.0)))
        yield Population(f"AUROC {truth:.3f}", "auroc", truth, margins(apart), cheap=False)


@lru_cache(maxsize=4)
def resamples(images: int) -> FloatArray:
    return np.concatenate(list(count_blocks(images, DRAWS)))


def intervals(sample: Sample, metric: str) -> tuple[Estimate, tuple[float, float]]:
    """The interval of the rule, and plain percentiles of the same draws."""
    known = METRICS[metric]
    sums = [ImageSums.of(rows, [known]) for rows in sample if rows is not None]
    counts = resamples(len(sums[0].sums))
    drawn = [each.at(counts)[:, 0] for each in sums]
    if len(sums) == 1:
        return sums[0].estimate(known, drawn[0]), percentile_interval(drawn[0])
    change = drawn[0] - drawn[1]
    return sums[0].difference(sums[1], known, change), percentile_interval(change)


def measure(population: Population, images: int, trials: int) -> Coverage:
    rng = np.random.default_rng((17, images, *population.name.encode()))
    known: dict[bytes, tuple[Estimate, tuple[float, float]]] = {}
    covered, widths = np.zeros((trials, 2), dtype=bool), np.zeros((trials, 2))
    for trial in range(trials):
        sample = population.sample(rng, images)
        key = b"".join(rows.margins.tobytes() for rows in sample if rows is not None and rows.margins is not None)
        found, plain = known.get(key) or intervals(sample, population.metric)
        if population.cheap:
            known[key] = found, plain
        for column, (low, high) in enumerate(((found.low, found.high), plain)):
            # Without an interval nothing is claimed.
            covered[trial, column] = not (population.truth < low - 1e-12 or population.truth > high + 1e-12)
            widths[trial, column] = high - low
    (ours, plainly), (width, plain_width) = covered.mean(axis=0), np.nanmean(widths, axis=0)
    return Coverage(population, images, trials, ours, width, plainly, plain_width)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS)
    trials = parser.parse_args().trials
    print("covered (mean width); percentiles alone: covered (mean width)\n")
    print(f"| population | {' | '.join(f'{images} images' for images in IMAGES)} |")
    print("| --- " * (1 + len(IMAGES)) + "|")
    least = 1.0
    for population in populations():
        found = [measure(population, images, trials if population.cheap else trials // 2) for images in IMAGES]
        least = min(least, *(each.covered for each in found))
        print(f"| {population.name} | {' | '.join(map(str, found))} |", flush=True)
    print(f"\nnominal 95 %, least measured {100 * least:.1f} %")


if __name__ == "__main__":
    main()
