"""An arm whose policy gives every probe its own budget: pass after pass, until each has an answer that counts.

All probes whose next level is the same are answered together, so a cascade costs one call of the heart per level. What
counts is the last answer of each; what was spent is all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from sightline.answering.before import KeptTokens
from sightline.answering.select_step import Selected, SelectStep
from sightline.arms.arm import Arm
from sightline.core.prefix import Encoded, Prompt
from sightline.core.probe import Probe
from sightline.core.selection import Budget
from sightline.policies import LevelAnswer, Noticed, Policy, Sight

if TYPE_CHECKING:
    from sightline.answering.answerer import Answered, Answerer, Collect


@dataclass(frozen=True)
class Spending:
    """Every pass over one probe, in the order in which they were run, and what the policy went by."""

    levels: tuple[Budget, ...]
    kept: tuple[int, ...]
    """K of each."""
    noticed: Noticed
    confidences: tuple[float | None, ...]

    @property
    def decided_on(self) -> str:
        """As JSON: what was noticed before any answer, and how sure each answer was."""
        sure = {"confidence": self.confidences} if None not in self.confidences else {}
        return json.dumps({**self.noticed, **sure})


class SpendingPass:
    """One arm with a policy over some probes, each about the image beside it."""

    def __init__(
        self,
        answerer: Answerer,
        arm: Arm,
        policy: Policy,
        probes: Sequence[Probe],
        encoded: Sequence[Encoded],
        batch_tokens: int,
    ) -> None:
        arm.refuse_answers({column.name for column in answerer.scorer.columns})
        self._answerer, self._arm, self._policy = answerer, arm, policy
        self._probes, self._encoded, self._batch_tokens = probes, encoded, batch_tokens
        self._looks = Looks(answerer, arm, policy, probes, encoded)
        self._run: list[list[tuple[Budget, Answered]]] = [[] for _ in probes]
        self._launched = self._launch(range(len(probes)))

    def _launch(self, waiting: Iterable[int]) -> list[tuple[Budget, list[int], Collect]]:
        """Hands the next pass of these probes to the device, those of one level together; some may need none."""
        groups: dict[Budget, list[int]] = {}
        for i in waiting:
            passes = [LevelAnswer.of(budget, answered.values) for budget, answered in self._run[i]]
            chosen = self._policy.decide(self._arm.levels, self._looks.noticed[i], passes)
            if chosen is not None:
                groups.setdefault(chosen, []).append(i)
        return [(budget, members, self._collector(budget, members)) for budget, members in groups.items()]

    def _collector(self, budget: Budget, members: Sequence[int]) -> Collect:
        probes, images = [self._probes[i] for i in members], [self._encoded[i] for i in members]
        step = self._looks.step_at(budget, members)
        return self._answerer.launch(self._arm.at(budget), probes, images, self._batch_tokens, step=step)

    def collect(self) -> list[Answered]:
        """Runs what is left to run; waits for the device between passes, since answers decide about the next."""
        while self._launched:
            answered_now: list[int] = []
            for budget, members, collect in self._launched:
                for i, answered in zip(members, collect(), strict=True):
                    self._run[i].append((budget, answered))
                answered_now += members
            self._launched = self._launch(answered_now)
        return [self._summed(i) for i in range(len(self._probes))]

    def _summed(self, i: int) -> Answered:
        """The last answer with the times of all passes; signals of an image are kept, and so computed once."""
        levels = tuple(budget for budget, _ in self._run[i])
        answers = [answered for _, answered in self._run[i]]
        traces = [answered.trace for answered in answers]
        unrun = sum(ms for level, ms in self._looks.select_ms[i].items() if level not in levels)
        trace = replace(
            traces[-1],
            select_ms=sum(trace.select_ms for trace in traces) + unrun + self._looks.look_ms[i],
            materialise_ms=sum(trace.materialise_ms for trace in traces),
        )
        passes = [LevelAnswer.of(budget, answered.values) for budget, answered in self._run[i]]
        spent = Spending(
            levels,
            tuple(trace.k for trace in traces),
            self._looks.noticed[i],
            tuple(one.confidence for one in passes),
        )
        language_ms = sum(answered.language_ms for answered in answers)
        halved = any(answered.halved for answered in answers)
        return replace(answers[-1], trace=trace, language_ms=language_ms, spent=spent, halved=halved)


class Looks:
    """What a policy notices about probes before any answer; selections made for that are not made again."""

    def __init__(
        self, answerer: Answerer, arm: Arm, policy: Policy, probes: Sequence[Probe], encoded: Sequence[Encoded]
    ) -> None:
        self._step = answerer.step
        self._selected: dict[Budget, list[Selected]] = {}
        prompts = [answerer.scorer.prompt(answerer.backbone, probe) for probe in probes]
        masks = self._masks(arm, probes, encoded, prompts) if "masks" in policy.reads else [()] * len(probes)
        self.noticed: list[Noticed] = []
        self.look_ms: list[float] = []
        """Per probe what looking took beside the selections: scores and the policy itself."""
        for i, (probe, image, prompt) in enumerate(zip(probes, encoded, prompts, strict=True)):
            begun = perf_counter()
            scores = self._step.scores(image, prompt, probe, arm) if "scores" in policy.reads else None
            self.noticed.append(
                policy.look(Sight(probe.id, probe.question, image.cells.astype(np.float32), masks[i], scores))
            )
            self.look_ms.append((perf_counter() - begun) * 1e3)

    def _masks(
        self, arm: Arm, probes: Sequence[Probe], encoded: Sequence[Encoded], prompts: Sequence[Prompt]
    ) -> list[tuple[np.ndarray, ...]]:
        """Per probe the (N,) bool mask of every level; waits for the chosen indices."""
        columns = []
        for level in arm.levels:
            chosen = self._selected[level] = self._step.many(encoded, prompts, probes, arm.at(level))
            kept = KeptTokens([image.n for image in encoded], [one.selection for one in chosen])
            columns.append([anchors for anchors, _, _ in kept.read(arm.selector.name)])
        return list(zip(*columns, strict=True))

    @property
    def select_ms(self) -> list[Mapping[Budget, float]]:
        """Per probe what the selection of every level that was looked at took."""
        return [
            {level: chosen[i].select_ms for level, chosen in self._selected.items()} for i in range(len(self.noticed))
        ]

    def step_at(self, budget: Budget, members: Sequence[int]) -> SelectStep | None:
        """What selects for a pass over these probes: what has been selected already, if it has."""
        known = self._selected.get(budget)
        return None if known is None else Reselecting(self._step, [known[i] for i in members])


class Reselecting(SelectStep):
    """A select step that gives what was selected before, to the very probes that it was selected for."""

    def __init__(self, step: SelectStep, selected: list[Selected]) -> None:
        super().__init__(step.backbone, step.clip, keeps_scores=step.keeps_scores)
        self._known = selected

    def many(
        self, encoded: Sequence[Encoded], prompts: Sequence[Prompt], probes: Sequence[Probe], arm: Arm
    ) -> list[Selected]:
        return self._known
