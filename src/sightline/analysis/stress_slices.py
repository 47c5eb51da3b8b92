"""Questions that ask for more than one look: what pruning costs the long, the numeric, the constrained ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from sightline.analysis.comparison import Record, by_model, table_of
from sightline.analysis.score_changes import ArmPair, Unit, full_arm, rows_in_words, score_changes
from sightline.statistics.bootstrap import SEED
from sightline.statistics.paired_scores import EXAMPLE_DRAWS

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
    frame: pd.DataFrame,
    probes: Iterable[Mapping[str, Any]],
    *,
    unit: Unit = "example",
    draws: int = EXAMPLE_DRAWS,
    seed: int = SEED,
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
            for record in score_changes(part, pairs, unit=unit, draws=draws, seed=seed):
                record["full_score"] = record.pop("reference_score")
                del record["reference"]
                records.append({"model": model, "slice": tag, **record})
    return table_of(
        records, "Full is the only arm; amend the run with the arms to compare, for example --arm target:0.3"
    )
