"""A method that chooses before the language model: one selection per probe, the shortened prefixes made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from sightline.answering.arm_pass import ArmPass, Trace, index_mask
from sightline.answering.materialise import materialise
from sightline.answering.select_step import Selected, SelectStep
from sightline.core.prefix import Prefix
from sightline.core.selection import Selection
from sightline.core.selection_rules import check_anchors, largest_shares
from sightline.core.span import KeptSpan
from sightline.device.stopwatch import Stopwatch
from sightline.device.transfer import Arriving, on_device
from sightline.errors import SightlineError
from sightline.interventions import Intervention


@dataclass
class BeforePass(ArmPass):
    """On a GPU nothing here waits, except for what has to look at the chosen indices: an intervention on the mask, and
    separators, whose number depends on which tokens stay."""

    step: SelectStep
    selected: list[Selected] = field(init=False)
    selections: list[Selection] = field(init=False)
    _kept: KeptTokens = field(init=False)
    _spans: list[KeptSpan | None] = field(init=False)
    _watches: dict[int, Stopwatch] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.selected = self.step.many(self.encoded, self.prompts, self.probes, self.arm)
        self.selections = [item.selection for item in self.selected]
        if self.arm.intervention is not None and self.arm.intervention.on_mask:
            self.selections = self._changed(self.arm.intervention)
        self._kept = KeptTokens([image.n for image in self.encoded], self.selections)
        self._spans = self._kept_spans()

    def _kept_spans(self) -> list[KeptSpan | None]:
        """Of every probe whose image has separators what stays of its span: one wait for the indices of all probes."""
        if all(image.separators is None for image in self.encoded):
            return [None] * len(self.encoded)
        return [
            None if image.separators is None else KeptSpan.of(image.separators, anchors, image.n)
            for image, anchors in zip(self.encoded, self._kept.anchors(self.arm.selector.name), strict=True)
        ]

    def _slots(self, i: int) -> int:
        """Slots that are left for the image of the i-th probe."""
        span = self._spans[i]
        return len(self.selections[i].anchors) if span is None else len(span.slots)

    def _changed(self, intervention: Intervention) -> list[Selection]:
        """Every selection as the intervention changes it: one wait for the chosen indices of all probes."""
        kept = KeptTokens([image.n for image in self.encoded], self.selections).anchors(self.arm.selector.name)
        changed = []
        for probe, image, selection, chosen in zip(self.probes, self.encoded, self.selections, kept, strict=True):
            if selection.mix is not None:
                raise SightlineError(
                    f"{intervention} is not defined for a selection that merges tokens, as {self.arm.selector.name} "
                    f"does; say merges = True on its class, or leave out --interventions {intervention.family}"
                )
            anchors = intervention.kept(chosen, torch.from_numpy(image.cells), probe)
            changed.append(Selection(on_device(anchors, image.tokens.device), merge_at=selection.merge_at))
        return changed

    @cached_property
    def lengths(self) -> list[int]:
        return [prompt.length(self._slots(i)) for i, prompt in enumerate(self.prompts)]

    def prefix(self, i: int) -> Prefix:
        watch = self._watches[i] = Stopwatch(self.backbone.language.device)
        prefix = materialise(
            self.backbone, self.encoded[i], self.prompts[i], self.selections[i], self.policy, self._spans[i]
        )
        watch.stop()
        return prefix

    def traces(self) -> list[Trace]:
        traces = []
        for i, (anchors, lineage, shares) in enumerate(self._kept.read(self.arm.selector.name)):
            k = len(self.selections[i].anchors)
            traces.append(
                Trace(
                    anchors=anchors,
                    lineage=lineage,
                    shares=shares,
                    k=k,
                    k_layers=None,
                    sequence_full=self.prompts[i].full_length(self.encoded[i].full_slots),
                    sequence_pruned=self.prompts[i].prompt_length(self._slots(i)),
                    signal_ms=self.selected[i].signal_ms,
                    select_ms=self.selected[i].select_ms,
                    materialise_ms=self._watches[i].ms,
                    halved=self.selected[i].halved,
                    scores=self.step.kept_scores(self.encoded[i], self.prompts[i], self.probes[i], self.arm),
                )
            )
        return traces


class KeptTokens:
    """Which tokens an arm kept and what flowed into them, for all probes: on the way to the host in two copies."""

    def __init__(self, counts: Sequence[int], selections: Sequence[Selection]) -> None:
        self._counts = counts
        self._sizes = [len(selection.anchors) for selection in selections]
        self._merges = [selection.mix is not None for selection in selections]
        self._anchors = Arriving(torch.cat([selection.anchors for selection in selections]))
        shares = [
            largest_shares(selection.mix, n)
            for n, selection in zip(counts, selections, strict=True)
            if selection.mix is not None
        ]
        self._shares = Arriving(torch.cat(shares)) if shares else None

    def anchors(self, selector: str) -> list[Tensor]:
        """Per probe (K,), checked: the values of a GPU's selections are seen here for the first time."""
        parts = list(torch.split(self._anchors.read(), self._sizes))
        for part, n, merges in zip(parts, self._counts, self._merges, strict=True):
            check_anchors(part, n, selector, merges=merges)
        return parts

    def read(self, selector: str) -> list[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
        """Per probe (N,) bool of anchors, (N,) bool of their lineage, and (N,) shares if tokens were mixed."""
        sizes = [n for n, merges in zip(self._counts, self._merges, strict=True) if merges]
        mixed = iter(torch.split(self._shares.read(), sizes) if self._shares is not None else ())
        masks: list[tuple[np.ndarray, np.ndarray, np.ndarray | None]] = []
        for anchors, n, merges in zip(self.anchors(selector), self._counts, self._merges, strict=True):
            mask = index_mask(anchors, n)
            shares = next(mixed).numpy() if merges else None
            masks.append((mask, mask if shares is None else shares > 0, shares))
        return masks
