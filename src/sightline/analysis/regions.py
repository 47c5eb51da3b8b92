"""Questions with several regions and several annotators: agreement, coverage beside score, slices that stress."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from sightline.analysis.comparison import ArmPair, Record, by_model, full_arm, rows_in_words, score_changes, table_of
from sightline.errors import SightlineError
from sightline.places.listing import file_errors, open_file
from sightline.probes.regions import ROLES, four_numbers
from sightline.probes.typed_rows import ANNOTATED, TypedRow
from sightline.statistics.agreement import BoxAgreement, agreement_rate, box_agreement, kappa_interval
from sightline.statistics.bootstrap import DRAWS
from sightline.statistics.paired import EXAMPLE_DRAWS

# How far two annotators agree, field by field: labels by rate and kappa, boxes by matched and joint overlap.

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
        with file_errors(f"cannot read {path}"), open_file(path) as raw:
            lines = io.TextIOWrapper(raw, encoding="utf-8", newline="")
            rows = list(csv.DictReader(lines)) if path.suffix == ".csv" else [json.loads(line) for line in lines]
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


# How far two people agree on the evidence of open questions: number, place and roles of the regions that each drew.


class DrawnTwice(NamedTuple):
    """One question that both people annotated."""

    first: TypedRow
    second: TypedRow

    @property
    def boxes(self) -> BoxAgreement:
        sides = [[(box.x, box.y, box.x + box.w, box.y + box.h) for box in row.boxes] for row in self]
        labels = [[box.label for box in row.boxes] for row in self]
        return box_agreement(sides[0], sides[1], labels[0], labels[1])

    @property
    def same_count(self) -> bool:
        return len(self.first.boxes) == len(self.second.boxes)


def drawn_twice(first: Sequence[TypedRow], second: Sequence[TypedRow]) -> list[DrawnTwice]:
    """The questions that both annotated, in the order of the first; pixels are those of the image as both saw it."""
    others = {row.sample_id: row for row in second if row.status == ANNOTATED}
    return [
        DrawnTwice(row, others[row.sample_id]) for row in first if row.status == ANNOTATED and row.sample_id in others
    ]


def region_agreement(rows: Sequence[DrawnTwice]) -> Mapping[str, float]:
    """Counts of questions and means over them.

    ``n`` questions; ``same_count``, ``same_roles`` and ``all_matched`` (equally many boxes, every pair at IoU >= 0.5)
    count them. ``matched_iou`` is the mean over questions of that of their matched pairs, 0 where nothing is matched;
    ``union_iou`` compares the areas that each marked, ``first_covered`` is the share of the first's in the second's.
    """
    if not rows:
        raise SightlineError("the two annotators have no annotated question in common")
    found = [row.boxes for row in rows]
    return {
        "n": len(rows),
        "same_count": sum(row.same_count for row in rows),
        "same_roles": sum(each.same_types for each in found),
        "all_matched": sum(each.all_matched for each in found),
        "matched_iou": float(np.mean([np.mean(each.matched_iou or [0.0]) for each in found])),
        "union_iou": float(np.mean([each.union_iou for each in found])),
        "first_covered": float(np.mean([each.first_covered for each in found])),
        "second_covered": float(np.mean([each.second_covered for each in found])),
    }


@dataclass(frozen=True)
class RoleAgreement:
    """Questions in which a role was used: by the first person, by the second, by both."""

    first: int
    second: int
    both: int

    @property
    def f1(self) -> float:
        """2 both / (first + second); nan for a role that nobody used."""
        used = self.first + self.second
        return 2 * self.both / used if used else math.nan


def role_agreement(rows: Sequence[DrawnTwice]) -> dict[str, RoleAgreement]:
    """By role, over the questions that both annotated."""
    if not rows:
        raise SightlineError("the two annotators have no annotated question in common")
    used = [tuple({box.role for box in side.boxes} for side in row) for row in rows]
    return {
        role: RoleAgreement(
            sum(role in first for first, _ in used),
            sum(role in second for _, second in used),
            sum(role in first & second for first, second in used),
        )
        for role in ROLES
    }


# Questions that ask for more than one look: what pruning costs the long, the numeric, the constrained ones.

_CONSTRAINTS = re.compile(r"\b(?:and|both|between|during|from|to|per|versus|vs|respectively)\b")
_FIELDS = frozenset(
    {
        "account", "address", "amount", "company", "date", "form", "invoice", "name", "number", "organization", "page",
        "price", "table", "total", "value", "year",
    }
)  # fmt: skip
UNTAGGED = "none of these"


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


STRESS_TAGS: Mapping[str, Callable[[str, Sequence[str]], bool]] = {
    "multi-token answer": lambda question, answers: max((len(_words(each)) for each in answers), default=0) >= 3,
    "long question": lambda question, answers: len(_words(question)) >= 10,
    "several constraints": lambda question, answers: bool(_CONSTRAINTS.search(question.lower())),
    "numeric answer": lambda question, answers: any(character.isdigit() for each in answers for character in each),
    "field word": lambda question, answers: not _FIELDS.isdisjoint(_words(question)),
}
"""Tag -> whether a question with these accepted answers has it."""


def stress_tags(question: str, answers: Sequence[str]) -> tuple[str, ...]:
    """The tags of one question, in the order of ``STRESS_TAGS``."""
    return tuple(tag for tag, holds in STRESS_TAGS.items() if holds(question, answers))


def stress_slices(
    frame: pd.DataFrame, probes: Iterable[Mapping[str, Any]], *, draws: int = EXAMPLE_DRAWS
) -> pd.DataFrame:
    """Score changes against Full by tag of the question, benchmark by benchmark; ``probes`` are ``run.probes``.

    A question stands in the slice of each of its tags, one without any in a slice of its own. A slice that has none of
    an arm's questions is left out.
    """
    tagged = {str(probe["id"]): stress_tags(str(probe["question"]), probe.get("answers") or ()) for probe in probes}
    records: list[Record] = []
    for model, rows in by_model(rows_in_words(frame)):
        full = full_arm(rows)
        pairs = [ArmPair(str(arm), full) for arm in rows["arm"].unique() if arm != full]
        tags = rows["probe_id"].astype(str).map(lambda probe: tagged.get(probe, ()))
        for tag in (*STRESS_TAGS, UNTAGGED):
            part = rows[tags.map(lambda own, tag=tag: tag in own if own else tag == UNTAGGED)]
            if part.empty or not pairs:
                continue
            for record in score_changes(part, pairs, draws=draws):
                record["full_score"] = record.pop("reference_score")
                del record["reference"]
                records.append({"model": model, "slice": tag, **record})
    return table_of(
        records, "Full is the only arm; amend the run with the arms to compare, for example --arm target:0.3"
    )
