"""What the paper printed about cost, to stand beside what is measured.

Its GPU was an A800: times are that machine's, ratios of two times may be compared. Models go by their shape's name.
"""

from __future__ import annotations

from dataclasses import dataclass

MODELS = ("qwen3-vl-8b", "llava-1.5-7b", "internvl3.5-8b")
PREFILL_BATCH = {"qwen3-vl-8b": 32, "llava-1.5-7b": 100, "internvl3.5-8b": 50}

Arm = tuple[str, float]
"""Selector and the share of tokens that it keeps."""


@dataclass(frozen=True)
class PublishedTiming:
    """A row of Table S17: milliseconds of a teacher-forced pass, and against Full."""

    total_ms: float
    speedup: float


@dataclass(frozen=True)
class PublishedEfficiency:
    """A row of the GPU part of Table 2, against Full."""

    single: float
    prefill: float
    memory_saved: float


REPEATED: dict[tuple[str, Arm], PublishedTiming] = {
    ("llava-1.5-7b", ("full", 1.0)): PublishedTiming(75.4, 1.00),
    ("llava-1.5-7b", ("protected", 0.4)): PublishedTiming(55.3, 1.36),
    ("llava-1.5-7b", ("target", 0.4)): PublishedTiming(53.9, 1.40),
    ("llava-1.5-7b", ("anchorprune", 0.4)): PublishedTiming(62.0, 1.22),
    ("llava-1.5-7b", ("scope", 0.4)): PublishedTiming(90.7, 0.83),
    ("llava-1.5-7b", ("coin", 0.4)): PublishedTiming(133.0, 0.57),
}
"""AnchorPrune's selection is there the mean of one that was computed and one that was read from a cache."""

EFFICIENCY: dict[tuple[str, Arm], PublishedEfficiency] = {
    ("qwen3-vl-8b", ("target", 0.2)): PublishedEfficiency(1.45, 4.32, 0.764),
    ("qwen3-vl-8b", ("target", 0.3)): PublishedEfficiency(1.37, 3.12, 0.668),
    ("llava-1.5-7b", ("protected", 0.4)): PublishedEfficiency(1.24, 2.34, 0.564),
    ("internvl3.5-8b", ("target", 0.5)): PublishedEfficiency(1.57, 2.25, 0.498),
    ("internvl3.5-8b", ("soft_evidence", 0.5)): PublishedEfficiency(1.54, 2.24, 0.498),
}

TOTAL: dict[tuple[str, Arm], dict[int, float]] = {("qwen3-vl-8b", ("target", 0.2)): {32: 1.065, 128: 1.018}}
"""Further tokens -> speed-up over the first token and those."""

TOTAL_WITH_DETECTOR: dict[tuple[str, Arm], dict[int, float]] = {
    ("llava-1.5-7b", ("protected", 0.4)): {32: 0.830},
    ("internvl3.5-8b", ("soft_evidence", 0.5)): {32: 0.907},
}
"""The same with EasyOCR's mean time of ``DETECTOR_MS`` in front."""
DETECTOR_MS = 254.4


def published_key(model: str, arm: str) -> tuple[str, Arm] | None:
    """Where an arm stands in these tables; None for models and arms that the paper has not.

    Checkpoints are known by the beginning of their names: ``Qwen3-VL-8B-Instruct``, ``llava-1.5-7b-hf``.
    """
    name = model.lower().replace("_", ".")
    known = next((each for each in MODELS if name.startswith(each)), None)
    selector, _, share = arm.partition(":")
    try:
        kept = float(share or 1.0)
    except ValueError:  # a budget with arguments, or in tokens
        return None
    return (known, (selector, kept)) if known else None
