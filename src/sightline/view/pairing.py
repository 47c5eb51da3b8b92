"""Two arms, of one run or of two, on the probes that both answered: who is right where."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sightline.errors import SightlineError
from sightline.view.asked_rows import AskedRows

OUTCOMES = {
    "only_first": "only the first is right",
    "only_second": "only the second is right",
    "both": "both right",
    "neither": "neither right",
    "other_answer": "different answers",
}


def paired_rows(first: AskedRows, arm: str, second: AskedRows, other: str) -> tuple[NDArray[np.int64], ...]:
    """Places in both runs of the rows about the same probe and view, in the order of the first."""
    places = _of_arm(first, arm)
    there = _of_arm(second, other)
    known = dict(zip(_asked(second, there), there.tolist(), strict=True))
    pairs = [
        (place, known[key]) for key, place in zip(_asked(first, places), places.tolist(), strict=True) if key in known
    ]
    if not pairs:
        raise SightlineError(f"{arm} and {other} have no probe in common; compare runs over the same probes")
    both = np.array(pairs, dtype=np.int64)
    return both[:, 0], both[:, 1]


def _of_arm(rows: AskedRows, arm: str) -> NDArray[np.int64]:
    found = np.flatnonzero(rows.rows.codes("arm")[0] == rows.rows.code("arm", arm))
    if not len(found):
        raise SightlineError(f"no row of arm {arm!r}; it has {', '.join(rows.rows.arms[:8])}")
    return found


def _asked(rows: AskedRows, places: NDArray[np.int64]) -> list[tuple[str, str]]:
    probes, names = rows.rows.codes("probe_id")
    views, called = rows.rows.codes("view")
    return [(names[probe], called[view]) for probe, view in zip(probes[places], views[places], strict=True)]


def compared(
    first: AskedRows, arm: str, second: AskedRows, other: str, outcome: str, offset: int, limit: int
) -> dict[str, Any]:
    """Counts of who is right, and the pairs of one outcome, the most different margins first."""
    a, b = paired_rows(first, arm, second, other)
    right = [_truths(rows, places) for rows, places in ((first, a), (second, b))]
    said = [_texts(rows, places, "predicted") for rows, places in ((first, a), (second, b))]
    masks = {
        "only_first": right[0] & ~right[1],
        "only_second": ~right[0] & right[1],
        "both": right[0] & right[1],
        "neither": ~right[0] & ~right[1],
        "other_answer": np.array([one != two for one, two in zip(*said, strict=True)]),
    }
    if outcome not in masks:
        raise SightlineError(f"no outcome {outcome!r}; choose one of {', '.join(masks)}")
    margins = [_numbers(rows, places, "margin") for rows, places in ((first, a), (second, b))]
    coverage = [_numbers(rows, places, "ecr") for rows, places in ((first, a), (second, b))]
    change = np.abs(np.nan_to_num(margins[1] - margins[0]))
    chosen = np.flatnonzero(masks[outcome])
    chosen = chosen[np.argsort(-change[chosen], kind="stable")]
    shown = chosen[offset : offset + limit]
    columns = [name for name in ("probe_id", "view", "label", "question") if name in first.names]
    told = [name for name in ("predicted", "correct", "margin", "score", "ecr") if name in first.names]
    records = first.records(a[shown], columns)
    sides = [rows.records(places[shown], [name for name in told if name in rows.names]) for rows, places in
             ((first, a), (second, b))]  # fmt: skip
    return {
        "pairs": len(a),
        "counts": {name: int(mask.sum()) for name, mask in masks.items()},
        "accuracy": [float(one.mean()) for one in right],
        "coverage": [_mean(one) for one in coverage],
        "outcome": outcome,
        "total": len(chosen),
        "rows": [{**record, "first": one, "second": two} for record, one, two in zip(records, *sides, strict=True)],
    }


def _truths(rows: AskedRows, places: NDArray[np.int64]) -> NDArray[np.bool_]:
    column: NDArray[np.bool_] = rows.column("correct").fill_null(False).to_numpy(zero_copy_only=False)[places]
    return column


def _texts(rows: AskedRows, places: NDArray[np.int64], name: str) -> list[Any]:
    value = rows.column(name)
    return [value.texts[code] if code >= 0 else None for code in value.codes[places]]


def _numbers(rows: AskedRows, places: NDArray[np.int64], name: str) -> NDArray[np.float64]:
    if name not in rows.names:
        return np.full(len(places), np.nan)
    column: NDArray[np.float64] = rows.column(name).to_numpy(zero_copy_only=False)[places]
    return column


def _mean(values: NDArray[np.float64]) -> float | None:
    return float(np.nanmean(values)) if np.isfinite(values).any() else None
