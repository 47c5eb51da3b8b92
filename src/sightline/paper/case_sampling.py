"""Which open questions are looked at closely: chosen by what became of their answers, or drawn by lot.

The paper's 96 cases were chosen by outcome: Full answers every one of them, and most lost their answer to pruning.
Their scores are therefore facts about the choice. The rule is repeated here as it was, next to a stratified sample of
the same size, which is what the same benchmarks say when nobody looked at the answers first.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from sightline.errors import SightlineError

CASES = 48
"""Of each task, from 500 questions."""
ANSWERED = 0.80
"""Full's score from which on a question may become a case."""
LARGE_DROP, SMALL_DROP = 0.50, 0.20
STRATIFIED_SEED = 20_260_728
_ROUNDING = 1e-9
"""Scores are means of a few tenths: 0.9 - 0.4 is a drop of a half."""


@dataclass(frozen=True)
class OpenCase:
    """A question, what pruning did to its answer, and what makes it hard."""

    id: str
    task: str
    full: float
    """Score with all tokens."""
    drops: tuple[float, float, float]
    """Score lost at 30, 50 and 70 % of them; negative where pruning helped."""
    tags: tuple[str, ...] = ()
    """Stress tags of the question."""

    @property
    def low(self) -> bool:
        return self.drops[0] >= LARGE_DROP - _ROUNDING

    @property
    def mid(self) -> bool:
        return self.drops[1] >= LARGE_DROP - _ROUNDING

    @property
    def persistent(self) -> bool:
        return self.drops[2] >= LARGE_DROP - _ROUNDING

    @property
    def recovered(self) -> bool:
        """Lost at 30 %, and back at 70 %."""
        return self.low and self.drops[2] <= SMALL_DROP + _ROUNDING

    @property
    def control(self) -> bool:
        """A hard question whose answer survived 30 %."""
        return bool(self.tags) and self.drops[0] <= SMALL_DROP + _ROUNDING

    @property
    def candidate(self) -> bool:
        kinds = self.low, self.mid, self.persistent, self.recovered, self.control
        return self.full >= ANSWERED - _ROUNDING and any(kinds)

    @property
    def place(self) -> tuple[float, int, str]:
        """What cases are sorted by: the greatest drop first, then the most tags, then the id."""
        return -max(self.drops), -len(self.tags), self.id


QUOTAS: tuple[Callable[[OpenCase], bool], ...] = (
    lambda case: case.persistent,
    lambda case: case.mid,
    lambda case: case.recovered,
    lambda case: case.control,
)
"""A quarter of a task's cases each, in this order; whoever was taken for one is not taken for the next."""


def cases_of(rows: pd.DataFrame, arms: Sequence[str], tags: Mapping[str, Sequence[str]]) -> list[OpenCase]:
    """One case per question that has a score under all four arms, by id.

    Parameters
    ----------
    rows: columns ``probe_id``, ``task``, ``arm``, ``score``.
    arms: Full, then 30, 50 and 70 %, as the column names them.
    tags: by question id.
    """
    if len(arms) != 4:
        raise SightlineError(f"cases are chosen by Full and three budgets, got {', '.join(arms) or 'none'}")
    own = rows[rows["arm"].isin(arms)]
    scores = own.pivot(index="probe_id", columns="arm", values="score").reindex(columns=list(arms)).dropna()
    tasks = own.drop_duplicates("probe_id").set_index("probe_id")["task"]
    found = []
    for probe, *line in scores.sort_index().itertuples(name=None):
        low, mid, high = (float(line[0] - score) for score in line[1:])
        found.append(
            OpenCase(str(probe), str(tasks[probe]), float(line[0]), (low, mid, high), tuple(tags.get(probe, ())))
        )
    return found


def case_count(questions: int) -> int:
    """How many cases a task with so many questions gives: 48, or half of a small set."""
    return min(CASES, questions // 2)


def chosen_by_outcome(cases: Iterable[OpenCase], *, fill: bool = False) -> list[OpenCase]:
    """The paper's rule: a quarter each persistent, mid, recovered and control, topped up with other candidates.

    ``fill`` goes on with questions that are no candidates where those do not suffice, for demonstrations alone.
    """
    found: list[OpenCase] = []
    for own in _by_task(cases).values():
        wanted = case_count(len(own))
        ordered = sorted((case for case in own if case.candidate), key=lambda case: case.place)
        chosen: dict[str, OpenCase] = {}
        for quota in QUOTAS:
            free = [case for case in ordered if case.id not in chosen and quota(case)]
            chosen |= {case.id: case for case in free[: wanted // len(QUOTAS)]}
        rest = [case for case in ordered if case.id not in chosen]
        if fill:
            rest += sorted((case for case in own if not case.candidate), key=lambda case: case.place)
        chosen |= {case.id: case for case in rest[: wanted - len(chosen)]}
        found += chosen.values()
    return found


def stratified_sample(cases: Iterable[OpenCase], *, seed: int = STRATIFIED_SEED) -> list[OpenCase]:
    """As many cases of each task by lot, every set of stress tags in its share; answers are not looked at.

    A stratum gets the whole part of its share; what is left goes to the largest remainders, ties by name. One
    generator draws from the strata in the order of their names.
    """
    rng = random.Random(seed)
    found: list[OpenCase] = []
    for _, own in sorted(_by_task(cases).items()):
        wanted = case_count(len(own))
        strata: dict[tuple[str, ...], list[OpenCase]] = {}
        for case in sorted(own, key=lambda case: case.id):
            strata.setdefault(case.tags, []).append(case)
        shares = {tags: wanted * len(members) / len(own) for tags, members in strata.items()}
        counts = {tags: int(share) for tags, share in shares.items()}
        left = wanted - sum(counts.values())
        for tags in sorted(shares, key=lambda tags: (counts[tags] - shares[tags], tags))[:left]:
            counts[tags] += 1
        found += [case for tags in sorted(strata) for case in rng.sample(strata[tags], counts[tags])]
    return found


def _by_task(cases: Iterable[OpenCase]) -> dict[str, list[OpenCase]]:
    found: dict[str, list[OpenCase]] = {}
    for case in cases:
        found.setdefault(case.task, []).append(case)
    return found
