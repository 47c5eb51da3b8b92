"""One arm over many probes: select, materialise, score in batches. Methods before and inside the LLM alike.

Launching and reading are apart, so that the device can be given other work before the answers of an arm are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import numpy as np
import torch
from torch import Tensor

from sightline.answering.batching import LaunchedBatches, launch_prefixes
from sightline.answering.materialise import materialise
from sightline.answering.select import SelectStep
from sightline.arms.arm import Arm
from sightline.backbones.cuts import LayerCuts
from sightline.backbones.language import Answer
from sightline.core.prefix import Encoded, PositionPolicy, Prefix, Prompt
from sightline.core.probe import Probe
from sightline.core.selection import LayerSelector, Selection
from sightline.core.selection_rules import check_anchors, contributing
from sightline.device.stopwatch import Stopwatch
from sightline.device.transfer import Arriving, on_device
from sightline.errors import SightlineError
from sightline.interventions import Intervention


@dataclass(frozen=True)
class Scored:
    """All that scoring one probe under one arm produced, apart from its geometry."""

    answer: Answer
    anchors: np.ndarray
    """(N,) bool: cells of the outputs' anchors."""
    lineage: np.ndarray
    """(N,) bool: cells of every source of an output."""
    merges: bool
    k: int
    k_layers: list[int] | None
    sequence_full: int
    sequence_pruned: int
    signal_ms: float
    select_ms: float
    materialise_ms: float
    language_ms: float


Collect = Callable[[], list[Scored]]
"""Reads what was launched, in the order of the probes; waits for the device to get there."""


def score_arm(
    step: SelectStep,
    arm: Arm,
    probes: Sequence[Probe],
    encoded: Sequence[Encoded],
    policy: PositionPolicy,
    batch_tokens: int,
) -> list[Scored]:
    """Scores every probe under one arm."""
    return launch_arm(step, arm, probes, encoded, policy, batch_tokens)()


def launch_arm(
    step: SelectStep,
    arm: Arm,
    probes: Sequence[Probe],
    encoded: Sequence[Encoded],
    policy: PositionPolicy,
    batch_tokens: int,
) -> Collect:
    """Selects, materialises and hands all batches to the device. On a GPU this waits for nothing.

    Two kinds of arms have to look at values in between and do wait: those that prune between layers, and edits of a
    selection.
    """
    if arm.inside:
        return _launch_inside(step, arm, probes, encoded, policy, batch_tokens)
    backbone = step.backbone
    prompts = [backbone.prompt(probe.question, probe.target_text) for probe in probes]
    selected = step.many(encoded, prompts, probes, arm)
    selections = [item.selection for item in selected]
    if arm.intervention is not None and arm.intervention.on_mask:
        selections = _changed(arm, probes, encoded, selections)
    kept = KeptTokens([picture.n for picture in encoded], selections)
    lengths = [prompt.length(len(chosen.anchors)) for prompt, chosen in zip(prompts, selections, strict=True)]
    watches: dict[int, Stopwatch] = {}

    def prefix_of(i: int) -> Prefix:
        watches[i] = Stopwatch(backbone.language.device)
        prefix = materialise(backbone, encoded[i], prompts[i], selections[i], policy)
        watches[i].stop()
        return prefix

    batches = launch_prefixes(backbone, lengths, prefix_of, batch_tokens)

    def collect() -> list[Scored]:
        masks = kept.read(arm.selector.name)
        results = []
        for i, (answer, share, (anchors, lineage, merges), item) in enumerate(
            zip(*batches.read(), masks, selected, strict=True)
        ):
            k = len(selections[i].anchors)
            results.append(
                Scored(
                    answer=answer,
                    anchors=anchors,
                    lineage=lineage,
                    merges=merges,
                    k=k,
                    k_layers=None,
                    sequence_full=prompts[i].full_length(encoded[i].n),
                    sequence_pruned=prompts[i].prompt_length(k),
                    signal_ms=item.signal_ms,
                    select_ms=item.select_ms,
                    materialise_ms=watches[i].ms,
                    language_ms=share,
                )
            )
        return results

    return collect


class KeptTokens:
    """Which tokens an arm kept and what flowed into them, for all probes: on the way to the host in two copies."""

    def __init__(self, counts: Sequence[int], selections: Sequence[Selection]) -> None:
        self._counts = counts
        self._sizes = [len(selection.anchors) for selection in selections]
        self._merges = [selection.mix is not None for selection in selections]
        self._anchors = Arriving(torch.cat([selection.anchors for selection in selections]))
        sources = [
            contributing(selection.mix, n)
            for n, selection in zip(counts, selections, strict=True)
            if selection.mix is not None
        ]
        self._sources = Arriving(torch.cat(sources)) if sources else None

    def anchors(self, selector: str) -> list[Tensor]:
        """Per probe (K,), checked: the values of a GPU's selections are seen here for the first time."""
        parts = list(torch.split(self._anchors.read(), self._sizes))
        for part, n, merges in zip(parts, self._counts, self._merges, strict=True):
            check_anchors(part, n, selector, merges=merges)
        return parts

    def read(self, selector: str) -> list[tuple[np.ndarray, np.ndarray, bool]]:
        """Per probe (N,) bool of anchors, (N,) bool of their lineage, and whether tokens were merged."""
        sizes = [n for n, merges in zip(self._counts, self._merges, strict=True) if merges]
        sources = iter(torch.split(self._sources.read(), sizes) if self._sources is not None else ())
        masks = []
        for anchors, n, merges in zip(self.anchors(selector), self._counts, self._merges, strict=True):
            mask = _mask(anchors, n)
            masks.append((mask, next(sources).numpy() if merges else mask, merges))
        return masks


def _changed(
    arm: Arm, probes: Sequence[Probe], encoded: Sequence[Encoded], selections: Sequence[Selection]
) -> list[Selection]:
    """Every selection as the arm's intervention changes it: one wait for the chosen indices of all probes."""
    anchors = KeptTokens([picture.n for picture in encoded], selections).anchors(arm.selector.name)
    intervention, changed = cast(Intervention, arm.intervention), []
    for probe, picture, selection, chosen in zip(probes, encoded, selections, anchors, strict=True):
        if selection.mix is not None:
            raise SightlineError(
                f"{intervention} is not defined for a selection that merges tokens, as {arm.selector.name} does; "
                f"say merges = True on its class, or leave out --interventions {intervention.family}"
            )
        kept = intervention.kept(chosen, torch.from_numpy(picture.cells), probe)
        changed.append(Selection(on_device(kept, picture.tokens.device), merge_at=selection.merge_at))
    return changed


def _launch_inside(
    step: SelectStep,
    arm: Arm,
    probes: Sequence[Probe],
    encoded: Sequence[Encoded],
    policy: PositionPolicy,
    batch_tokens: int,
) -> Collect:
    """Methods that cut between layers: the prefix starts full, one batch per number of visual tokens.

    In half precision every probe runs alone: rounding depends on the shape of a batch, and there it is coarse enough to
    change which tokens such a method keeps.
    """
    if step.backbone.language.dtype != torch.float32:
        batch_tokens = 0
    groups = []
    for n in sorted({picture.n for picture in encoded}):
        members = [i for i, picture in enumerate(encoded) if picture.n == n]
        together = CutTogether(step, arm, policy, [probes[i] for i in members], [encoded[i] for i in members])
        groups.append((members, together, together.launch(batch_tokens)))

    def collect() -> list[Scored]:
        results: dict[int, Scored] = {}
        for members, together, batches in groups:
            results.update(zip(members, together.collect(batches), strict=True))
        return [results[i] for i in range(len(probes))]

    return collect


@dataclass
class CutTogether:
    """Probes whose pictures have equally many visual tokens, under a method that cuts between layers."""

    step: SelectStep
    arm: Arm
    policy: PositionPolicy
    probes: Sequence[Probe]
    encoded: Sequence[Encoded]
    cutters: dict[int, tuple[LayerCuts, int]] = field(default_factory=dict)
    """Of every probe, and which of that cutter's prefixes is its."""

    @property
    def n(self) -> int:
        return self.encoded[0].n

    @cached_property
    def prompts(self) -> list[Prompt]:
        return [self.step.backbone.prompt(probe.question, probe.target_text) for probe in self.probes]

    @cached_property
    def schedule(self) -> dict[int, int]:
        selector = cast(LayerSelector, self.arm.selector)
        return selector.schedule(self.n, self.arm.budget.resolve(self.n), self._depth)

    @property
    def _depth(self) -> int:
        return len(self.step.backbone.language.layers)

    def launch(self, batch_tokens: int) -> LaunchedBatches:
        lengths = [prompt.length(self.n) for prompt in self.prompts]
        return launch_prefixes(self.step.backbone, lengths, self._prefix, batch_tokens, self._cutter)

    def _prefix(self, i: int) -> Prefix:
        everything = Selection(torch.arange(self.n))
        return materialise(self.step.backbone, self.encoded[i], self.prompts[i], everything, self.policy)

    def _cutter(self, group: Sequence[int], prefixes: Sequence[Prefix]) -> LayerCuts:
        cutter = LayerCuts(
            cast(LayerSelector, self.arm.selector),
            self.schedule,
            prefixes,
            [self.encoded[i].layout for i in group],
            [self.step.key(self.probes[i], self.arm) for i in group],
        )
        self.cutters.update({i: (cutter, b) for b, i in enumerate(group)})
        return cutter

    def collect(self, batches: LaunchedBatches) -> list[Scored]:
        k_layers = layer_counts(self.n, self.schedule, self._depth)
        results = []
        for i, (prompt, answer, share) in enumerate(zip(self.prompts, *batches.read(), strict=True)):
            cutter, b = self.cutters[i]
            lineage = cutter.lineage[b].any(dim=0).numpy()
            anchors = _mask(cutter.anchors[b], self.n)
            k, batch = len(cutter.anchors[b]), len(cutter.keys)
            results.append(
                Scored(
                    answer=answer,
                    anchors=anchors,
                    lineage=lineage,
                    merges=bool((lineage != anchors).any()),
                    k=k,
                    k_layers=k_layers,
                    sequence_full=prompt.full_length(self.n),
                    sequence_pruned=prompt.prompt_length(k),
                    signal_ms=cutter.signal_ms / batch,
                    select_ms=cutter.select_ms / batch,
                    materialise_ms=0.0,
                    language_ms=share - (cutter.signal_ms + cutter.select_ms) / batch,
                )
            )
        return results


def layer_counts(n: int, schedule: dict[int, int], depth: int) -> list[int]:
    """Visual tokens that each layer reads: a cut after layer l takes effect from l + 1 on."""
    counts, current = [], n
    for layer in range(depth):
        counts.append(current)
        current = min(current, schedule.get(layer, current))
    return counts


def _mask(indices: Tensor, n: int) -> np.ndarray:
    mask = np.zeros(n, dtype=bool)
    placed = indices.numpy()
    mask[placed[placed >= 0]] = True
    return mask
