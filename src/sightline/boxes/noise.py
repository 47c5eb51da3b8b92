"""Simulated detectors: annotated boxes that are lost, moved and joined by spurious ones, by a stated noise model."""

from __future__ import annotations

import random
from dataclasses import dataclass
from hashlib import sha256

from sightline.core.probe import Box

SEED = 31
_LEAST = 1e-6


@dataclass(frozen=True)
class Noise:
    """One variant: every box is found with probability ``recall``, jittered, and joined by ``spurious`` others."""

    recall: float
    jitter: float
    spurious: int


VARIANTS = {
    "gt": Noise(1.0, 0.0, 0),
    "jitter_light": Noise(1.0, 0.15, 0),
    "jitter_heavy": Noise(1.0, 0.35, 0),
    "detected_like": Noise(0.85, 0.20, 1),
    "low_recall": Noise(0.60, 0.20, 1),
    "missing": Noise(0.0, 0.0, 0),
}


@dataclass(frozen=True)
class Simulated:
    boxes: tuple[Box, ...]
    found: int
    """How many of the annotated boxes were kept."""


def twister(*parts: object) -> random.Random:
    """Mersenne Twister seeded by the first 64 bits of SHA-256 over the parts joined by colons."""
    return random.Random(int(sha256(":".join(map(str, parts)).encode()).hexdigest()[:16], 16))


def simulate(oracle: tuple[Box, ...], probe_id: str, variant: str, seed: int = SEED) -> Simulated:
    """What a detector with this noise would show for one probe; drawn from (seed, probe, variant) alone."""
    noise = VARIANTS[variant]
    rng = twister(seed, probe_id, variant)
    boxes = [_jittered(box, noise.jitter, rng) for box in oracle if rng.random() <= noise.recall]
    found = len(boxes)
    boxes += [_spurious(oracle, rng) for _ in range(noise.spurious)]
    return Simulated(tuple(boxes), found)


def _jittered(box: Box, jitter: float, rng: random.Random) -> Box:
    """Centre moved by U(-j, j) of each side, sides scaled by max(1/4, 1 + U(-j, j)), clipped to the image."""
    if jitter <= 0.0:
        return box
    width, height = max(_LEAST, box[2] - box[0]), max(_LEAST, box[3] - box[1])
    x = (box[0] + box[2]) / 2.0 + rng.uniform(-jitter, jitter) * width
    y = (box[1] + box[3]) / 2.0 + rng.uniform(-jitter, jitter) * height
    width *= max(0.25, 1.0 + rng.uniform(-jitter, jitter))
    height *= max(0.25, 1.0 + rng.uniform(-jitter, jitter))
    return clipped((x - width / 2.0, y - height / 2.0, x + width / 2.0, y + height / 2.0))


def _spurious(oracle: tuple[Box, ...], rng: random.Random) -> Box:
    """A box about the size of a drawn annotated one, anywhere in the image."""
    reference = rng.choice(oracle) if oracle else (0.0, 0.0, 0.04, 0.04)
    width = min(0.30, max(0.01, reference[2] - reference[0]) * rng.uniform(0.7, 1.8))
    height = min(0.30, max(0.01, reference[3] - reference[1]) * rng.uniform(0.7, 1.8))
    x = rng.uniform(width / 2.0, 1.0 - width / 2.0)
    y = rng.uniform(height / 2.0, 1.0 - height / 2.0)
    return clipped((x - width / 2.0, y - height / 2.0, x + width / 2.0, y + height / 2.0))


def clipped(box: Box) -> Box:
    """Within the unit square and at least 1e-6 wide and high."""
    left = min(max(box[0], 0.0), 1.0 - _LEAST)
    top = min(max(box[1], 0.0), 1.0 - _LEAST)
    return left, top, min(max(box[2], left + _LEAST), 1.0), min(max(box[3], top + _LEAST), 1.0)
