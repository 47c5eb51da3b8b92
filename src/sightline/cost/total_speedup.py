"""First token and n more: what is left of a speed-up when answers get longer, and when a detector runs in front."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from sightline.cost.presentation import FurtherTable, Quantity
from sightline.cost.published import TOTAL, TOTAL_WITH_DETECTOR, published_key
from sightline.cost.reading import CONDITIONS, Line, is_full

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
