"""Policies without a model: what a policy would have chosen, from rows of the fixed budgets that it chooses from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import compress
from typing import Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sightline.arms.arm import Arm, parse_arm
from sightline.core.selection import Budget
from sightline.errors import SightlineError
from sightline.policies import LevelAnswer, Noticed, Policy, Sight, TuningSample
from sightline.probes.probe_file import even_side, hash_side
from sightline.rows.run import Run
from sightline.statistics.arm_rows import plain_rows

ONE_TASK = "all"
"""The task of rows that name none."""


@dataclass(frozen=True)
class AskedProbes:
    """n probes: what they are, whatever was answered."""

    ids: NDArray[np.str_]
    images: NDArray[np.str_]
    tasks: NDArray[np.str_]
    negative: NDArray[np.bool_]
    """Those whose right answer is no, so that yes is a false alarm."""
    yes_or_no: bool

    @staticmethod
    def of(rows: pd.DataFrame) -> AskedProbes:
        """From the rows of one arm, each probe once."""
        open_answers = "score" in rows or not set(rows["label"].astype(str)) <= {"yes", "no"}
        tasks = rows["task"].fillna("").astype(str) if "task" in rows else pd.Series("", index=rows.index)
        return AskedProbes(
            rows["probe_id"].to_numpy(dtype=str),
            rows["image_id"].to_numpy(dtype=str),
            tasks.where(tasks != "", ONE_TASK).to_numpy(dtype=str),
            np.zeros(len(rows), dtype=bool) if open_answers else (rows["label"] == "no").to_numpy(),
            not open_answers,
        )

    def chosen(self, which: NDArray[np.bool_]) -> AskedProbes:
        return replace(self, **{name: getattr(self, name)[which] for name in ("ids", "images", "tasks", "negative")})

    @property
    def sides(self) -> NDArray[np.str_]:
        """(n,) ``dev`` or ``test``, as in the paper's pilots.

        Probes go with their image: yes/no by the SHA-1 of ``textocr-`` and its id, open questions by the MD5 of the
        first of their ids. The pilots divide open questions one by one, which is the same where each has a picture of
        its own; elsewhere it would choose and judge on the same picture.
        """
        if self.yes_or_no:
            return np.array([hash_side(f"textocr-{image}") for image in self.images])
        first = pd.Series(self.ids).groupby(self.images).transform("min")
        return np.array([even_side(probe) for probe in first])


@dataclass(frozen=True)
class Replayed:
    """What became of n probes under one budget or policy."""

    name: str
    asked: AskedProbes
    scores: NDArray[np.float64]
    """(n,) 1 for a right yes or no; of a text what its task gives it."""
    keep: NDArray[np.float64]
    """(n,) kept fraction of the prefix that gave the answer."""
    spent: NDArray[np.float64]
    """(n,) kept fractions of all prefixes that were run for it."""
    levels: tuple[str, ...]
    """Per probe the levels that were run, ``0.3/0.7``."""

    @staticmethod
    def of(name: str, rows: pd.DataFrame) -> Replayed:
        """From the rows of one arm."""
        keep, spent = (rows[column].to_numpy(dtype=np.float64) for column in ("keep", "keep_spent"))
        return Replayed(name, AskedProbes.of(rows), scores_of(rows), keep, spent, tuple(rows["levels"].astype(str)))

    def chosen(self, which: NDArray[np.bool_]) -> Replayed:
        return replace(
            self,
            asked=self.asked.chosen(which),
            scores=self.scores[which],
            keep=self.keep[which],
            spent=self.spent[which],
            levels=tuple(compress(self.levels, which)),
        )


def scores_of(rows: pd.DataFrame) -> NDArray[np.float64]:
    """(n,) the task's score where rows have one, else whether the answer is right."""
    return rows["score" if "score" in rows else "correct"].to_numpy(dtype=np.float64)


@dataclass(frozen=True)
class FixedAnswers:
    """One selector at several fixed budgets over n probes: all that a policy could have chosen from."""

    arm: Arm
    """The selector at the lowest level; its budget is no matter."""
    levels: tuple[Budget, ...]
    asked: AskedProbes
    scores: NDArray[np.float64]
    """(n, levels)"""
    keep: NDArray[np.float64]
    """(n, levels)"""
    passes: Sequence[Mapping[Budget, LevelAnswer]]
    noticed: Sequence[Noticed] = field(default=())
    """Per probe what a policy noticed before any answer."""

    def chosen(self, which: NDArray[np.bool_]) -> FixedAnswers:
        return replace(
            self,
            asked=self.asked.chosen(which),
            scores=self.scores[which],
            keep=self.keep[which],
            passes=list(compress(self.passes, which)),
            noticed=list(compress(self.noticed, which)),
        )

    @property
    def samples(self) -> list[TuningSample]:
        return [
            TuningSample(noticed, passes, dict(zip(self.levels, scores.tolist(), strict=True)))
            for noticed, passes, scores in zip(self.noticed, self.passes, self.scores, strict=True)
        ]

    def fixed(self, level: Budget) -> Replayed:
        place = self.levels.index(level)
        keep = self.keep[:, place]
        name = self.arm.at(level).text
        return Replayed(name, self.asked, self.scores[:, place], keep, keep, (str(level),) * len(keep))

    def replay(self, policy: Policy) -> Replayed:
        """What the policy chooses for every probe, asked as the heart asks it."""
        place = {level: i for i, level in enumerate(self.levels)}
        runs = [self._levels_run(policy, i, place) for i in range(len(self.asked.ids))]
        rows, last = np.arange(len(runs)), np.array([run[-1] for run in runs])
        spent = np.array([self.keep[i, run].sum() for i, run in enumerate(runs)])
        levels = tuple("/".join(str(self.levels[step]) for step in run) for run in runs)
        return Replayed(str(policy), self.asked, self.scores[rows, last], self.keep[rows, last], spent, levels)

    def _levels_run(self, policy: Policy, i: int, place: Mapping[Budget, int]) -> list[int]:
        """Places of the levels that the policy runs for the i-th probe, in order."""
        passes: list[LevelAnswer] = []
        while (budget := policy.decide(self.levels, self.noticed[i], passes)) is not None:
            if budget not in place:
                raise SightlineError(
                    f"{policy.name} wants {budget} for probe '{self.asked.ids[i]}', at which nothing was answered: "
                    "run it as an arm and judge that"
                )
            passes.append(self.passes[i][budget])
        return [place[one.budget] for one in passes]


def fixed_answers(run: Run, selector: str, levels: Sequence[Budget], policy: Policy) -> FixedAnswers:
    """The run's fixed arms of ``selector`` (``target_grid`` or ``target_grid:reserve=0.25``), as ``policy`` sees them.

    What it notices before any answer is computed from masks and questions; token scores are in no row, so a policy that
    reads them must have been run as an arm, with whatever arguments it chooses here.
    """
    arms = [_fixed_arm(run, selector, level) for level in levels]
    frame = plain_rows(run.frame())
    parts = [frame[frame["arm"] == arm.text].set_index("probe_id", drop=False) for arm in arms]
    shared = [probe for probe in parts[0].index if all(probe in part.index for part in parts[1:])]
    if not shared:
        raise SightlineError(f"no probe of {run.path} has rows of all of {', '.join(arm.text for arm in arms)} yet")
    parts = [part.loc[shared] for part in parts]
    records = [part.to_dict("records") for part in parts]
    passes = [
        {level: LevelAnswer.of(level, row) for level, row in zip(levels, each, strict=True)}
        for each in zip(*records, strict=True)
    ]
    if "confidence" in policy.reads and any(one.confidence is None for each in passes for one in each.values()):
        raise SightlineError(f"{policy.name} looks at how sure an answer is, which the rows of {run.path} do not say")
    return FixedAnswers(
        arms[0],
        tuple(levels),
        AskedProbes.of(parts[0]),
        np.stack([scores_of(part) for part in parts], axis=1),
        np.stack([part["keep"].to_numpy(dtype=np.float64) for part in parts], axis=1),
        passes,
        _noticed(run, policy, arms, shared, records),
    )


def _fixed_arm(run: Run, selector: str, level: Budget) -> Arm:
    name, _, arguments = selector.partition(":")
    settings = {key: run.manifest.get(key, "") or "" for key in ("profile", "model_type")}
    arm = parse_arm(
        ":".join(filter(None, (name, str(level), arguments))),
        seed=run.manifest.get("seed"),
        profile=settings["profile"] or "paper",
        model_type=settings["model_type"],
    )
    if arm.text not in run.arms:
        raise SightlineError(f"{run.path} has no arm '{arm.text}'; run it too, or name other --levels")
    return arm


def _noticed(
    run: Run, policy: Policy, arms: Sequence[Arm], probes: Sequence[str], records: Sequence[Sequence[Mapping[Any, Any]]]
) -> list[Noticed]:
    """Per probe what the policy notices, from what an arm of it recorded or from the masks of the fixed arms."""
    if "scores" in policy.reads:
        recorded = _recorded(run, policy, arms)
        absent = next((probe for probe in probes if probe not in recorded), None)
        if absent is not None:
            raise SightlineError(f"the rows of {policy.name} in {run.path} lack probe '{absent}'; finish the run")
        return [recorded[probe] for probe in probes]
    masks = [run.masks(arm.text) for arm in arms] if "masks" in policy.reads else []
    return [
        policy.look(
            Sight(
                probe,
                str(row["question"]),
                run.cells(row) if masks else np.zeros((0, 4), dtype=np.float32),
                tuple(m[probe] for m in masks),
            )
        )
        for probe, row in zip(probes, records[0], strict=True)
    ]


def _recorded(run: Run, policy: Policy, arms: Sequence[Arm]) -> dict[str, Noticed]:
    """By probe id what an arm of the same policy noticed, whatever it then decided."""
    levels = tuple(arm.budget for arm in arms)
    for text in run.arms:
        try:
            arm = parse_arm(text)
        except SightlineError:  # of a package or a file that is not here
            continue
        if arm.levels == levels and arm.selector == arms[0].selector and _looks_alike(arm.policy, policy):
            rows = run.frame(texts=False).query("arm == @text")
            return {
                str(probe): json.loads(seen) for probe, seen in zip(rows["probe_id"], rows["decided_on"], strict=True)
            }
    shown = f"policy:{policy.name}:{arms[0].selector.name}:{'/'.join(map(str, levels))}"
    raise SightlineError(
        f"{policy.name} decides on token scores, which only its own rows hold: add --arm {shown} to the run, with "
        "whatever thresholds"
    )


def _looks_alike(one: Policy | None, other: Policy) -> bool:
    if type(one) is not type(other):
        return False
    names = [each.name for each in fields(cast(Any, other)) if each.name not in other.tuned]
    return all(getattr(one, name) == getattr(other, name) for name in names)
