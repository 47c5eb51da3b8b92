"""What the paper printed about cost, to stand beside what is measured.

Its GPU was an A800: times are that machine's, ratios of two times may be compared. Models go by their shape's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sightline.cost.spread import CONDITIONS, FurtherTable, Line, Quantity, is_full

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


# First token and n more: what is left of a speed-up when answers get longer, and when a detector runs in front.

FURTHER = (0, 1, 4, 16, 32, 64, 128)
"""Tokens decoded behind the first one, as in the paper."""


def total_speedup_table(lines: Sequence[Line]) -> FurtherTable | None:
    """A line per arm whose decoding was timed beside that of the full prefix; None where there is no such arm."""
    found = list(_lines(lines))
    if not found:
        return None
    columns = [
        Quantity("execution", "Execution"),
        Quantity("arm", "Arm"),
        Quantity("first_token_ms", "First token, ms", "number", help="Everything up to the first token."),
        Quantity("token_ms", "Per token, ms", "number", help="Each token behind it: mean over the longest decoding."),
        Quantity("detector_ms", "Detector, ms", "number", help="In the first token's time or, as given, added to it."),
        *(Quantity(f"n_{n}", f"n = {n}", "score") for n in FURTHER),
        Quantity("published", "Published", help="On an A800; with one time per token for all models and arms."),
    ]
    return FurtherTable(
        "total_speedup",
        "Speed-up over first token and n further tokens",
        "First token + n x per token: the full prefix's over the arm's, both measured here under the same "
        "conditions; arms that read detected boxes carry the detector's time.",
        [column for column in columns if any(column.key in line for line in found)],
        found,
    )


def _lines(lines: Sequence[Line]) -> Iterator[dict[str, Any]]:
    for line in lines:
        full = next((each for each in lines if is_full(each["arm"]) and _alike(each, line)), None)
        own, of_full = _per_token(line), _per_token(full) if full else None
        if is_full(line["arm"]) or full is None or own is None or of_full is None:
            continue
        given = line.get("given_detector_ms", 0.0)
        detector = line.get("detector_ms", given)
        speedups = {f"n_{n}": (full["ms"] + n * of_full) / (line["ms"] + given + n * own) for n in FURTHER}
        said = _published(line, with_detector=bool(given) or line["box_source"] == "easyocr")
        yield {
            "execution": line["execution"],
            "arm": line["arm"],
            "first_token_ms": line["ms"] + given,
            "token_ms": own,
            **({"detector_ms": detector} if detector else {}),
            **speedups,
            **({"published": said} if said else {}),
        }


def _alike(first: Line, second: Line) -> bool:
    return "ms" in first and "ms" in second and all(first[key] == second[key] for key in CONDITIONS)


def _per_token(line: Line) -> float | None:
    """Milliseconds per token of the longest decoding that was timed."""
    counts = [int(found[1]) for key in line if (found := re.fullmatch(r"decode_(\d+)_ms", str(key)))]
    return line[f"decode_{max(counts)}_ms"] / max(counts) if counts else None


def _published(line: Line, *, with_detector: bool) -> str:
    key = published_key(line["model"], line["arm"])
    printed = (TOTAL_WITH_DETECTOR if with_detector else TOTAL).get(key, {}) if key else {}
    return ", ".join(f"{speedup:.3f} at {n}" for n, speedup in printed.items())
