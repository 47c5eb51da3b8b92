"""The heart: a probe under an arm becomes an answer.

An arm's pass makes the prefixes (and knows what cuts them), the scorer puts them to the language model and judges what
comes back. Launching and reading are apart, so that the device can be given other work before an arm is read. ``ask``
puts one question about one image file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import numpy as np
import torch

from sightline.answering.materialise import ArmPass, BeforePass, Selected, SelectStep, Trace, materialise, salt
from sightline.answering.scorers import Launched, Scorer
from sightline.answering.scorers.spoken import MAX_NEW_TOKENS, Generation
from sightline.arms.arm import Arm, parse_arm
from sightline.backbones.base import Backbone
from sightline.backbones.clip import ClipSpace
from sightline.backbones.cuts import LayerCuts
from sightline.backbones.loading import Served, checkpoint_folder, load_backbone
from sightline.core.prefix import Encoded, Prefix, Prompt
from sightline.core.probe import Probe
from sightline.core.selection import Budget, LayerSelector, PositionPolicy, Selection, TwoStages
from sightline.core.selection_rules import KeptTokens, errors_named, index_mask, parts_of
from sightline.device.work import FEWER, Stopwatch, halved, in_halves
from sightline.errors import SightlineError
from sightline.policies import LevelAnswer, Noticed, Policy, Sight
from sightline.probes.images import open_image

# A method that cuts between language layers: one batch per number of visual tokens.


@dataclass
class InsidePass(ArmPass):
    """The choice is made while the layers run; whoever cuts has to look at values and waits for the device.

    Separators are text to such a method: all that reach the model stay. Prefixes start full, or, of a method in two
    stages, with what its first one selects.
    """

    step: SelectStep
    _before: BeforePass | None = field(init=False, default=None)
    _cuts: dict[int, tuple[LayerCuts, int]] = field(init=False, default_factory=dict)
    """Of every probe the cutter of its batch, and its place there."""
    _rehearsed_ms: dict[int, float] = field(init=False, default_factory=dict)
    """Of every probe what reading its prompt once before took."""

    def __post_init__(self) -> None:
        if isinstance(self.selector, TwoStages):
            arm = replace(self.arm, budget=self.selector.reaching(self.arm.budget, self.depth))
            self._before = BeforePass(
                self.backbone, arm, self.probes, self.encoded, self.prompts, self.positions, self.step
            )

    @property
    def selector(self) -> LayerSelector:
        return cast(LayerSelector, self.arm.selector)

    @property
    def depth(self) -> int:
        return len(self.backbone.language.layers)

    def _slots(self, i: int) -> int:
        """Slots of the image that reach the language model."""
        return self.encoded[i].slots if self._before is None else self._before.slots(i)

    @cached_property
    def lengths(self) -> list[int]:
        return [prompt.length(self._slots(i)) for i, prompt in enumerate(self.prompts)]

    @property
    def groups(self) -> list[list[int]]:
        kinds = [(self._sizes(i), self._slots(i)) for i in range(len(self.encoded))]
        return [[i for i, kind in enumerate(kinds) if kind == each] for each in sorted(set(kinds))]

    def _sizes(self, i: int) -> tuple[int, ...]:
        """Tokens of every part that the budget is counted over, as they reach the language model."""
        if self._before is not None:
            return (len(self._before.selections[i].anchors),)
        return tuple(part.n for part in parts_of(self.encoded[i].layout, self.arm.budget))

    def batch_tokens(self, limit: int) -> int:
        """In half precision every probe runs alone, and under a method whose counts depend on the question.

        Rounding depends on the shape of a batch, and there it is coarse enough to change which tokens such a method
        keeps.
        """
        return limit if self.backbone.language.dtype == torch.float32 and not self.selector.varies else 0

    def prefix(self, i: int) -> Prefix:
        if self._before is not None:
            return self._before.prefix(i)
        image = self.encoded[i]
        selection = Selection(torch.arange(image.n, device=image.tokens.device))
        return materialise(self.backbone, image, self.prompts[i], selection, self.positions)

    def cutter(self, group: Sequence[int], prefixes: Sequence[Prefix]) -> LayerCuts:
        schedule = self._schedule(group[0])
        cutter = LayerCuts(
            self.selector,
            {layer: sum(left) for layer, left in schedule.items()},
            prefixes,
            [self.encoded[i].layout for i in group],
            [salt(self.probes[i], self.arm) for i in group],
            self.arm.budget.resolve(self.encoded[group[0]].n),
            self.depth,
            [] if self._before is None else [self._before.checked[i] for i in group],
            schedule if len(self._sizes(group[0])) > 1 else {},
            vision=lambda place, name: self.step.signal(name, self.encoded[group[place]], self.probes[group[place]])[0],
        )
        self._cuts.update({i: (cutter, place) for place, i in enumerate(group)})
        if self.selector.rehearses:
            watch = Stopwatch(self.backbone.language.device)
            self.backbone.language.launch(prefixes, cutter.rehearsal())
            watch.stop()
            self._rehearsed_ms.update(dict.fromkeys(group, watch.ms / len(group)))
        return cutter

    def _schedule(self, i: int) -> dict[int, list[int]]:
        """Layer -> how many visual tokens of every part continue past it."""
        sizes, budget = self._sizes(i), self.arm.budget
        whole = (self.encoded[i].n,) if self._before is not None else sizes
        with errors_named(self.selector.name):
            own = [
                self.selector.schedule(n, budget.resolve(of), self.depth) for n, of in zip(sizes, whole, strict=True)
            ]
        left, schedule = list(sizes), {}
        for layer in sorted({layer for each in own for layer in each}):
            left = [min(n, each.get(layer, n)) for n, each in zip(left, own, strict=True)]
            schedule[layer] = left
        return schedule

    def _counts(self, i: int) -> list[int]:
        """Visual tokens that each layer reads: a cut after layer l takes effect from l + 1 on.

        What the cuts were, if they have been made, else what they are planned to be.
        """
        counts = [sum(self._sizes(i))]
        planned = {layer: sum(left) for layer, left in self._schedule(i).items()}
        done = self._cuts[i][0].counts if i in self._cuts else {}
        for layer in range(self.depth - 1):
            counts.append(min(counts[-1], (done or planned).get(layer, counts[-1])))
        return counts

    def layer_lengths(self, i: int) -> list[int]:
        counts = self._counts(i)
        return [self.lengths[i] - counts[0] + count for count in counts]

    def traces(self) -> list[Trace]:
        traces = []
        for i, (prompt, image) in enumerate(zip(self.prompts, self.encoded, strict=True)):
            cutter, place = self._cuts[i]
            parts = cutter.parts[place].double()
            shares = torch.cat([parts, parts.new_zeros(1, parts.shape[1])]).amax(dim=0).numpy()  # nothing may be left
            lineage = shares > 0
            anchors = index_mask(cutter.anchors[place], image.n)
            k, batch, counts = len(cutter.anchors[place]), len(cutter.keys), self._counts(i)
            signal_ms, select_ms = cutter.signal_ms / batch, cutter.select_ms / batch
            first = None if self._before is None else self._before.selected[i]
            traces.append(
                Trace(
                    anchors=anchors,
                    lineage=lineage,
                    shares=shares if (lineage != anchors).any() else None,
                    k=k,
                    k_layers=counts,
                    sequence_full=prompt.full_length(image.slots),
                    sequence_pruned=prompt.prompt_length(k + self._slots(i) - counts[0]),
                    signal_ms=signal_ms + (self._rehearsed_ms.get(i, 0.0) if first is None else first.signal_ms),
                    select_ms=select_ms + (0.0 if first is None else first.select_ms),
                    materialise_ms=0.0 if self._before is None else self._before.materialise_ms(i),
                    inside_ms=signal_ms + select_ms,
                    halved=first is not None and first.halved,
                )
            )
        return traces


# Puts many prefixes to the language model in few forwards: longest first, a token budget per batch, halved when memory
# runs out.


def batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices grouped longest first so that (items x longest) stays within the budget; a single item always fits."""
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    groups: list[list[int]] = []
    for index in order:
        if groups and (len(groups[-1]) + 1) * lengths[groups[-1][0]] <= budget:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


@dataclass(frozen=True)
class LaunchedBatches:
    """Batches that the device may still be working on, each with the indices of its prefixes and its time."""

    batches: list[tuple[list[int], tuple[Launched, Stopwatch]]]
    halved: frozenset[int] = frozenset()
    """Prefixes that share a batch with fewer others than planned, since memory ran out."""

    def read(self) -> tuple[list[Any], list[float]]:
        """Results in the order of the prefixes, and each one's share of its batch's milliseconds; waits for them."""
        results: dict[int, Any] = {}
        shares: dict[int, float] = {}
        for group, (reading, watch) in self.batches:
            results.update(zip(group, reading.read(), strict=True))
            spent = getattr(reading, "spent_ms", None)
            shares.update(zip(group, [watch.ms] * len(group) if spent is None else spent, strict=True))
        return [results[i] for i in range(len(results))], [shares[i] for i in range(len(shares))]


def launch_batches(scorer: Scorer, passed: ArmPass, batch_tokens: int) -> LaunchedBatches:
    """Hands all batches of an arm to the device.

    Only a batch's own prefixes exist at a time. Batch composition depends on lengths and budget alone, so the same call
    gives the same bits.
    """
    backbone, lengths = passed.backbone, passed.lengths
    budget = passed.batch_tokens(batch_tokens)

    def launch(group: list[int]) -> tuple[Launched, Stopwatch]:
        prefixes = [passed.prefix(i) for i in group]
        cutter = passed.cutter(group, prefixes)  # which may read the prompts first: that is billed as a signal
        watch = Stopwatch(backbone.language.device, shared_by=len(group))
        reading = scorer.launch(backbone, prefixes, cutter)
        watch.stop()
        return reading, watch

    def too_large(index: int) -> str:
        return f"a single prefix of {lengths[index]} tokens; use a smaller model, dtype or image size{FEWER}"

    def tokens(group: list[int]) -> int:
        return len(group) * max(lengths[i] for i in group)

    groups = []
    for members in passed.groups:
        groups += [[members[i] for i in group] for group in batches([lengths[i] for i in members], budget)]
    launched = in_halves(groups, launch, too_large, tokens, backbone.limits["tokens"])
    return LaunchedBatches(launched, frozenset(halved(groups, launched)))


# An arm whose policy gives every probe its own budget: pass after pass, until each has an answer that counts.
#
# All probes whose next level is the same are answered together, so a cascade costs one call of the heart per level.
# What counts is the last answer of each; what was spent is all of them.


@dataclass(frozen=True)
class ProbePasses:
    """Every pass over one probe, in the order in which they were run, and what the policy went by."""

    levels: tuple[Budget, ...]
    kept: tuple[float, ...]
    """K of each, or what else its budget counts."""
    noticed: Noticed
    confidences: tuple[float | None, ...]

    @property
    def decided_on(self) -> str:
        """As JSON: what was noticed before any answer, and how sure each answer was."""
        sure = {"confidence": self.confidences} if None not in self.confidences else {}
        return json.dumps({**self.noticed, **sure})


class PolicyPass:
    """One arm with a policy over some probes, each about the image beside it.

    What the policy notices about a probe before any answer is looked at first; selections made for that are not made
    again.
    """

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
        self._selected: dict[Budget, list[Selected]] = {}
        prompts = [answerer.scorer.prompt(answerer.backbone, probe) for probe in probes]
        masks = self._masks(prompts) if "masks" in policy.reads else [()] * len(probes)
        self._noticed: list[Noticed] = []
        self._look_ms: list[float] = []
        """Per probe what looking took beside the selections: scores and the policy itself."""
        for probe, image, prompt, kept in zip(probes, encoded, prompts, masks, strict=True):
            begun = perf_counter()
            scores = answerer.step.scores(image, prompt, probe, arm) if "scores" in policy.reads else None
            sight = Sight(probe.id, probe.question, image.cells.astype(np.float32), kept, scores)
            self._noticed.append(policy.look(sight))
            self._look_ms.append((perf_counter() - begun) * 1e3)
        self._run: list[list[tuple[Budget, Answered]]] = [[] for _ in probes]
        self._launched = self._launch(range(len(probes)))

    def _masks(self, prompts: Sequence[Prompt]) -> list[tuple[np.ndarray, ...]]:
        """Per probe the (N,) bool mask of every level; waits for the chosen indices."""
        columns = []
        for level in self._arm.levels:
            chosen = self._answerer.step.many(self._encoded, prompts, self._probes, self._arm.at(level))
            self._selected[level] = chosen
            kept = KeptTokens([image.n for image in self._encoded], [one.selection for one in chosen])
            columns.append([anchors for anchors, _, _ in kept.read(self._arm.selector.name)])
        return list(zip(*columns, strict=True))

    def _launch(self, waiting: Iterable[int]) -> list[tuple[Budget, list[int], Collect]]:
        """Hands the next pass of these probes to the device, those of one level together; some may need none."""
        groups: dict[Budget, list[int]] = {}
        for i in waiting:
            passes = [LevelAnswer.of(budget, answered.values) for budget, answered in self._run[i]]
            chosen = self._policy.decide(self._arm.levels, self._noticed[i], passes)
            if chosen is not None:
                groups.setdefault(chosen, []).append(i)
        launched = []
        for budget, members in groups.items():
            probes, images = [self._probes[i] for i in members], [self._encoded[i] for i in members]
            known = self._selected.get(budget)
            step = RepeatedSelection(self._answerer.step, [known[i] for i in members]) if known else None
            collect = self._answerer.launch(self._arm.at(budget), probes, images, self._batch_tokens, step=step)
            launched.append((budget, members, collect))
        return launched

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
        unrun = sum(chosen[i].select_ms for level, chosen in self._selected.items() if level not in levels)
        trace = replace(
            traces[-1],
            select_ms=sum(trace.select_ms for trace in traces) + unrun + self._look_ms[i],
            materialise_ms=sum(trace.materialise_ms for trace in traces),
        )
        passes = [LevelAnswer.of(budget, answered.values) for budget, answered in self._run[i]]
        kept, sure = tuple(each.spent(self._arm) for each in traces), tuple(one.confidence for one in passes)
        return replace(
            answers[-1],
            trace=trace,
            language_ms=sum(answered.language_ms for answered in answers),
            spent=ProbePasses(levels, kept, self._noticed[i], sure),
            halved=any(answered.halved for answered in answers),
        )


class RepeatedSelection(SelectStep):
    """A select step that gives what was selected before, to the very probes that it was selected for."""

    def __init__(self, step: SelectStep, selected: list[Selected]) -> None:
        super().__init__(step.backbone, step.clip, keeps_scores=step.keeps_scores)
        self._known = selected

    def many(
        self, encoded: Sequence[Encoded], prompts: Sequence[Prompt], probes: Sequence[Probe], arm: Arm
    ) -> list[Selected]:
        return self._known


@dataclass(frozen=True)
class Answered:
    """What became of one probe under one arm, apart from its geometry."""

    values: Mapping[str, Any]
    """The scorer's columns: ``predicted``, ``correct`` and its own."""
    trace: Trace
    language_ms: float
    spent: ProbePasses | None = None
    """Of an arm with a policy what its passes cost, all of whose times are in ``trace`` and ``language_ms``."""
    query_found: bool | None = None
    """Whether what the selector looks for stands in the question; None where it looks for nothing."""
    halved: bool = False
    """Whether memory ran out for a batch that it was to be part of."""
    positions: str | None = None
    """How an engine numbers kept tokens; None where the run decides that, or nobody knows."""


Collect = Callable[[], list[Answered]]
"""Reads what was launched, in the order of the probes; waits for the device."""


class Answerer:
    """A model and a scorer. The only place that knows whether a method works before or inside the language model.

    Parameters
    ----------
    positions: the usual position policy; None is the paper's for the architecture. An arm's intervention may swap it.
    keeps_scores: whether traces of scored selectors hold what they ranked tokens by.
    """

    def __init__(
        self,
        backbone: Backbone,
        scorer: Scorer,
        *,
        clip: ClipSpace | None = None,
        positions: PositionPolicy | None = None,
        keeps_scores: bool = False,
    ) -> None:
        self.backbone = backbone
        self.scorer = scorer
        self.step = SelectStep(backbone, clip, keeps_scores=keeps_scores)
        self.positions: PositionPolicy = positions or backbone.paper_positions

    def over(
        self, arm: Arm, probes: Sequence[Probe], encoded: Sequence[Encoded], step: SelectStep | None = None
    ) -> ArmPass:
        """The arm's prefixes for these probes, each about the image beside it.

        An arm that shows images smaller needs them encoded so: ``backbone.preprocess(image, budget=arm.image_budget)``.
        ``step`` is what selects where that is not the answerer's own.
        """
        if arm.policy is not None:
            raise SightlineError(
                f"{arm.text} has no one prefix: its budget differs from probe to probe; name a fixed budget, "
                f"for example {arm.at(arm.budget).text}"
            )
        if arm.image_budget is not None and any(image.usual_n is None for image in encoded):
            raise SightlineError(f"{arm.text} reads smaller images, and was given one in its usual size")
        prompts = [self.scorer.prompt(self.backbone, probe) for probe in probes]
        positions = arm.positions(self.positions)
        kind = InsidePass if arm.inside else BeforePass
        return kind(self.backbone, arm, probes, encoded, prompts, positions, step or self.step)

    def launch(
        self,
        arm: Arm,
        probes: Sequence[Probe],
        encoded: Sequence[Encoded],
        batch_tokens: int,
        step: SelectStep | None = None,
    ) -> Collect:
        """Selects, materialises and hands all batches to the device. On a GPU this waits for nothing.

        Three kinds of arms have to look at values in between and do wait: those that prune between layers,
        interventions on the mask, and policies that look at masks; a cascade waits while it is read.
        """
        if arm.policy is not None:
            return PolicyPass(self, arm, arm.policy, probes, encoded, batch_tokens).collect
        passed = self.over(arm, probes, encoded, step)
        launched = launch_batches(self.scorer, passed, batch_tokens)

        def collect() -> list[Answered]:
            results, shares = launched.read()
            read = zip(probes, passed.prompts, results, passed.traces(), shares, strict=True)
            return [
                Answered(
                    self.scorer.judge(probe, result, arm.text),
                    trace,
                    share - trace.inside_ms,
                    query_found=prompt.found(getattr(arm.selector, "query", "none")),
                    halved=i in launched.halved or trace.halved,
                )
                for i, (probe, prompt, result, trace, share) in enumerate(read)
            ]

        return collect

    def answer(
        self, arm: Arm, probes: Sequence[Probe], encoded: Sequence[Encoded], batch_tokens: int = 16384
    ) -> list[Answered]:
        """Launched and read at once."""
        return self.launch(arm, probes, encoded, batch_tokens)()


# One question about one image file.


@dataclass(frozen=True)
class Reply:
    text: str
    kept: int
    full: int


def ask(
    model: str,
    image: Path,
    question: str,
    arm: str,
    *,
    target: str = "",
    max_new_tokens: int = MAX_NEW_TOKENS,
    dtype: str = "auto",
    device: str = "auto",
    clip: str | None = None,
) -> Reply:
    """Loads a model and answers greedily."""
    parsed = parse_arm(arm)
    opened = open_image(image.parent, image.name)
    Served.by_description(checkpoint_folder(model)).refuse(parsed.selector, clip=clip is not None)
    backbone = load_backbone(model, dtype=dtype, device=device)
    space = ClipSpace(clip, backbone.language.device) if clip else None
    answerer = Answerer(backbone, Generation(max_new_tokens), clip=space)
    answerer.step.refuse_unserved([parsed])
    pixels = backbone.preprocess(opened, budget=parsed.image_budget)
    encoded = backbone.encode([pixels], backbone.form(parsed.selector).needs)
    probe = Probe("ask", image.name, image.name, question, "yes", target_text=target, source_text=target, regions=())
    (answered,) = answerer.answer(parsed, [probe], encoded)
    return Reply(answered.values["answer"], answered.trace.k, encoded[0].full_n)
