"""How far two people agreed before anybody decided between them: fields, validity, boxes, roles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from sightline.analysis.annotators import label_agreement
from sightline.analysis.region_agreement import DrawnTwice, drawn_twice, region_agreement, role_agreement
from sightline.annotate.journal import FIRST, SECOND
from sightline.annotate.readings import ItemReadings
from sightline.annotate.task_kinds import TaskKind
from sightline.annotate.typed_answers import typed_answer
from sightline.errors import SightlineError
from sightline.statistics.agreement import agreement_rate
from sightline.statistics.bootstrap import DRAWS

VALIDITY, EVERY_FIELD, ALL = "valid or not", "all fields alike", "all"


@dataclass(frozen=True)
class AgreementReport:
    """The tables of one task."""

    kind: TaskKind
    people: tuple[tuple[str, ...], tuple[str, ...]]
    """Who read first, who second."""
    fields: pd.DataFrame
    boxes: pd.DataFrame
    """Empty where nobody drew boxes, like the next."""
    roles: pd.DataFrame
    disputed: int
    adjudicated: int

    @property
    def tables(self) -> Mapping[str, pd.DataFrame]:
        named = {"fields": self.fields, "boxes": self.boxes, "roles": self.roles}
        return {name: table for name, table in named.items() if not table.empty}


def agreement_report(kind: TaskKind, readings: Sequence[ItemReadings], *, draws: int = DRAWS) -> AgreementReport:
    """Over the items that two people read, as they left them."""
    both = [each for each in readings if each.twice is not None]
    if not both:
        raise SightlineError("no item has been read by two people yet; 'sightline annotate TASK --as NAME --second'")
    first, second = (tuple(sorted({each.given[name].who for each in both})) for name in (FIRST, SECOND))
    drawn = [each for each in both if kind.draws_boxes]
    return AgreementReport(
        kind,
        (first, second),
        pd.DataFrame(_field_lines(kind, both, draws)),
        pd.DataFrame(_box_lines(drawn)),
        pd.DataFrame(_role_lines(drawn)),
        disputed=sum(bool(each.differing) for each in both),
        adjudicated=sum(bool(each.differing) and not each.disputed for each in both),
    )


def _field_lines(kind: TaskKind, both: Sequence[ItemReadings], draws: int) -> list[dict[str, object]]:
    answers = [each.twice for each in both if each.twice is not None]
    columns: dict[str, tuple[list[str], list[str]]] = {
        field.name: ([a[field.name] for a, _ in answers], [b[field.name] for _, b in answers]) for field in kind.fields
    }
    valid = [[str(kind.is_valid(pair[side])) for pair in answers] for side in (0, 1)]
    columns[VALIDITY] = (valid[0], valid[1])
    lines: list[dict[str, object]] = [
        {"field": name, "n": len(one), **label_agreement(one, two, draws)} for name, (one, two) in columns.items()
    ]
    alike = agreement_rate(["alike"] * len(both), ["differ" if each.differing else "alike" for each in both])
    rate = {"agreement": alike.value, "agreement_low": alike.low, "agreement_high": alike.high}
    return [*lines, {"field": EVERY_FIELD, "n": len(both), **rate}]


def _box_lines(drawn: Sequence[ItemReadings]) -> list[dict[str, object]]:
    lines: list[dict[str, object]] = []
    for scope, own in _scopes(drawn).items():
        pairs = _pairs(own)
        if pairs:
            lines.append({"scope": scope, **region_agreement(pairs)})
    return lines


def _role_lines(drawn: Sequence[ItemReadings]) -> list[dict[str, object]]:
    lines: list[dict[str, object]] = []
    for scope, own in _scopes(drawn).items():
        pairs = _pairs(own)
        for role, found in role_agreement(pairs).items() if pairs else ():
            if found.first or found.second:
                counts = {"first": found.first, "second": found.second, "both": found.both}
                lines.append({"scope": scope, "role": role, "n": len(pairs), **counts, "f1": found.f1})
    return lines


def _scopes(drawn: Sequence[ItemReadings]) -> dict[str, Sequence[ItemReadings]]:
    """All, and every benchmark of its own where there are several."""
    tasks = sorted({each.item.task for each in drawn})
    apart = {task: [each for each in drawn if each.item.task == task] for task in tasks} if len(tasks) > 1 else {}
    return {ALL: drawn, **apart}


def _pairs(drawn: Sequence[ItemReadings]) -> list[DrawnTwice]:
    rows = [tuple(typed_answer(each.item, fields) for fields in each.twice) for each in drawn if each.twice is not None]
    return drawn_twice([row[0] for row in rows], [row[1] for row in rows])
