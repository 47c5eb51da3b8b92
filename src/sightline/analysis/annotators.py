"""How far two annotators agree, field by field: labels by rate and kappa, boxes by matched and joint overlap."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sightline.errors import SightlineError
from sightline.places import open_file
from sightline.probes.box_format import four_numbers
from sightline.statistics.agreement import agreement_rate, box_agreement, kappa_interval
from sightline.statistics.bootstrap import DRAWS

KEYS = ("probe_id", "sample_id", "id")
"""What may name a row, the first that both files have."""

Decisions = dict[str, dict[str, Any]]
"""Row id -> field -> what the annotator entered: a text, or a list of boxes."""


def agreement_table(first: Path, second: Path, *, fields: Iterable[str] = (), draws: int = DRAWS) -> pd.DataFrame:
    """One line per field that both annotators filled, over the rows that both of them have."""
    files = read_decisions(first), read_decisions(second)
    rows = [row for row in files[0] if row in files[1]]
    if not rows:
        raise SightlineError(f"{first} and {second} have no row in common (compared by {', '.join(KEYS)})")
    common = [name for name in files[0][rows[0]] if name in files[1][rows[0]]]
    wanted = list(fields) or common
    unknown = [name for name in wanted if name not in common]
    if unknown:
        raise SightlineError(f"field '{unknown[0]}' is not in both files; they share {', '.join(common) or 'none'}")
    lines = []
    for name in wanted:
        one, two = ([file[row].get(name) for row in rows] for file in files)
        for path, answers in ((first, one), (second, two)):
            _refuse_odd_boxes(path, name, rows, answers)
        boxes = all(isinstance(value, list) for value in one + two)
        compared = _boxes(one, two) if boxes else label_agreement(one, two, draws)
        lines.append({"field": name, "n": len(rows), **compared})
    return pd.DataFrame(lines)


def label_agreement(one: Sequence[Any], two: Sequence[Any], draws: int = DRAWS) -> Mapping[str, float]:
    """Rate with Wilson's interval and kappa with a bootstrap's, of two people's labels of the same rows."""
    first, second = ([str(value) for value in answers] for answers in (one, two))
    rate, kappa = agreement_rate(first, second), kappa_interval(first, second, draws=draws)
    return {
        "agreement": rate.value, "agreement_low": rate.low, "agreement_high": rate.high,
        "kappa": kappa.value, "kappa_low": kappa.low, "kappa_high": kappa.high,
    }  # fmt: skip


def _refuse_odd_boxes(path: Path, field: str, rows: Iterable[str], answers: Iterable[Any]) -> None:
    """A list in an annotator's file is a list of boxes, each of four finite numbers."""
    for row, boxes in zip(rows, answers, strict=True):
        for box in boxes if isinstance(boxes, list) else ():
            if four_numbers(box) is None or len(box) != 4:
                raise SightlineError(f"{path}: '{field}' of row {row} has {box!r}, which is no box of four numbers")


def _boxes(one: list[Any], two: list[Any]) -> Mapping[str, float]:
    found = [box_agreement(a, b) for a, b in zip(one, two, strict=True)]
    matched = [value for each in found for value in each.matched_iou]
    return {
        "agreement": float(np.mean([not each.needs_adjudication for each in found])),
        "matched_iou": float(np.mean(matched)) if matched else float("nan"),
        "union_iou": float(np.mean([each.union_iou for each in found])),
        "first_covered": float(np.mean([each.first_covered for each in found])),
        "second_covered": float(np.mean([each.second_covered for each in found])),
    }


def read_decisions(path: Path) -> Decisions:
    """An annotator's file: CSV, or JSON lines (a probe file will do), one row per question."""
    try:
        with io.TextIOWrapper(open_file(path), encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream)) if path.suffix == ".csv" else [json.loads(line) for line in stream]
    except OSError as error:
        raise SightlineError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError, csv.Error) as error:
        raise SightlineError(f"{path} is neither CSV nor JSON lines: {error}") from None
    decisions: Decisions = {}
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or "sightline_probes" in row:
            continue
        key = next((name for name in KEYS if row.get(name)), None)
        if key is None:
            raise SightlineError(f"{path}: row {number} has none of {', '.join(KEYS)}")
        if str(row[key]) in decisions:
            raise SightlineError(f"{path}: row {number} decides {row[key]} a second time")
        decisions[str(row[key])] = {name: value for name, value in row.items() if name not in KEYS}
    return decisions
