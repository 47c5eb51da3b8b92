"""One arm over many probes: select, materialise, score in batches. Methods before and inside the LLM alike."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch

from sightline.arms import Arm
from sightline.backbones.cuts import LayerCuts
from sightline.backbones.language import Answer
from sightline.engine.batching import score_prefixes
from sightline.interventions.deletion import edit_selection
from sightline.materialise import lineage_mask, materialise
from sightline.selecting import SelectStep
from sightline.types import Encoded, LayerSelector, PositionPolicy, Prefix, Probe, Selection


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


def score_arm(
    step: SelectStep,
    arm: Arm,
    probes: Sequence[Probe],
    encoded: Sequence[Encoded],
    policy: PositionPolicy,
    batch_tokens: int,
) -> list[Scored]:
    """Scores every probe under one arm."""
    if arm.inside:
        return _score_inside(step, arm, probes, encoded, policy, batch_tokens)
    prefixes: list[Prefix] = []
    partial = []
    for probe, picture in zip(probes, encoded, strict=True):
        prompt = step.backbone.prompt(probe.question, probe.target_text)
        selected = step(picture, prompt, probe, arm)
        if arm.edit is not None and arm.edit.on_mask:
            cells = torch.from_numpy(picture.cells)
            changed = edit_selection(selected.selection, cells, probe.regions, arm.edit, probe.id)
            selected = replace(selected, selection=changed)
        started = time.perf_counter()
        prefix = materialise(step.backbone, picture, prompt, selected.selection, policy)
        step.backbone.synchronise()
        prefixes.append(prefix)
        partial.append((selected, (time.perf_counter() - started) * 1e3))
    answers, shares = score_prefixes(step.backbone, prefixes, batch_tokens)
    results = []
    for picture, prefix, answer, share, (selected, materialise_ms) in zip(
        encoded, prefixes, answers, shares, partial, strict=True
    ):
        selection = selected.selection
        results.append(
            Scored(
                answer=answer,
                anchors=_mask(selection.anchors, picture.n),
                lineage=lineage_mask(selection, picture.n).numpy(),
                merges=selection.mix is not None,
                k=prefix.k,
                k_layers=None,
                sequence_full=prefix.full_length,
                sequence_pruned=prefix.prompt_length,
                signal_ms=selected.signal_ms,
                select_ms=selected.select_ms,
                materialise_ms=materialise_ms,
                language_ms=share,
            )
        )
    return results


def _score_inside(
    step: SelectStep,
    arm: Arm,
    probes: Sequence[Probe],
    encoded: Sequence[Encoded],
    policy: PositionPolicy,
    batch_tokens: int,
) -> list[Scored]:
    """Methods that cut between layers: the prefix starts full, one batch per number of visual tokens.

    In half precision every probe runs alone: rounding depends on the shape of a batch, and there it is coarse enough to
    change which tokens such a method keeps.
    """
    if step.backbone.language.dtype != torch.float32:
        batch_tokens = 0
    selector = cast(LayerSelector, arm.selector)
    backbone = step.backbone
    depth = len(backbone.language.layers)
    results: list[Scored | None] = [None] * len(probes)
    for n in sorted({picture.n for picture in encoded}):
        members = [i for i, picture in enumerate(encoded) if picture.n == n]
        everything = Selection(torch.arange(n))
        prefixes = [
            materialise(
                backbone, encoded[i], backbone.prompt(probes[i].question, probes[i].target_text), everything, policy
            )
            for i in members
        ]
        schedule = selector.schedule(n, arm.budget.resolve(n), depth)
        cutters: dict[int, tuple[LayerCuts, int]] = {}

        def cutter_of(
            group: Sequence[int],
            members: list[int] = members,
            prefixes: list[Prefix] = prefixes,
            schedule: dict[int, int] = schedule,
            cutters: dict[int, tuple[LayerCuts, int]] = cutters,
        ) -> LayerCuts:
            cutter = LayerCuts(
                selector,
                schedule,
                [prefixes[j] for j in group],
                [encoded[members[j]].layout for j in group],
                [step.key(probes[members[j]], arm) for j in group],
            )
            cutters.update({j: (cutter, b) for b, j in enumerate(group)})
            return cutter

        answers, shares = score_prefixes(backbone, prefixes, batch_tokens, cutter_of)
        for j, i in enumerate(members):
            cutter, b = cutters[j]
            lineage = cutter.lineage[b].any(dim=0).numpy()
            anchors = _mask(cutter.anchors[b], n)
            k_layers = layer_counts(n, schedule, depth)
            batch = len(cutter.prefixes)
            results[i] = Scored(
                answer=answers[j],
                anchors=anchors,
                lineage=lineage,
                merges=bool((lineage != anchors).any()),
                k=len(cutter.anchors[b]),
                k_layers=k_layers,
                sequence_full=prefixes[j].full_length,
                sequence_pruned=prefixes[j].prompt_length - n + len(cutter.anchors[b]),
                signal_ms=cutter.signal_ms / batch,
                select_ms=cutter.select_ms / batch,
                materialise_ms=0.0,
                language_ms=shares[j] - (cutter.signal_ms + cutter.select_ms) / batch,
            )
    return [result for result in results if result is not None]


def layer_counts(n: int, schedule: dict[int, int], depth: int) -> list[int]:
    """Visual tokens that each layer reads: a cut after layer l takes effect from l + 1 on."""
    counts, current = [], n
    for layer in range(depth):
        counts.append(current)
        current = min(current, schedule.get(layer, current))
    return counts


def _mask(indices: torch.Tensor, n: int) -> np.ndarray:
    mask = np.zeros(n, dtype=bool)
    placed = indices.cpu().numpy()
    mask[placed[placed >= 0]] = True
    return mask
