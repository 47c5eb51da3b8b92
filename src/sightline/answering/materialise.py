"""One arm over some probes, up to the language model: tokens are chosen, and a shorter prefix is made of what was kept.

The select step gathers what a selector asked for, runs it, checks what it returned, and times both apart. On a GPU
nothing here waits for the device: times are read later, and so are the chosen indices, whose check is completed where
they are read (``KeptTokens``). Shapes are checked at once everywhere.

Embeddings, separators and positions of what was kept are put together before the language model (``BeforePass``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from sightline.arms.arm import Arm
from sightline.backbones.base import Backbone
from sightline.backbones.clip import ClipSpace
from sightline.backbones.cuts import LayerCuts
from sightline.backbones.loading import WITHOUT_CELLS, Served
from sightline.core.prefix import Elapsed, Encoded, Prefix, Prompt
from sightline.core.probe import Probe
from sightline.core.selection import SENSITIVITY, PositionPolicy, QuerySpan, Selection, Selector, TokenView, of_image
from sightline.core.selection_rules import (
    CountedPart,
    KeptTokens,
    check_anchors,
    check_selection,
    check_shapes,
    errors_named,
    in_native_order,
    join_selections,
    parts_of,
)
from sightline.core.span import KeptSpan
from sightline.device.work import FEWER, Stopwatch, halved, in_halves, on_device
from sightline.errors import SightlineError
from sightline.interventions import Intervention
from sightline.selectors.scores import Scored, on_cpu

MOST_PAIRS = 2**28
"""Probes selected together: many methods compare every token with every other, and this many products fit a GPU."""


@dataclass(frozen=True)
class Selected:
    """A selection in native order, on the device of the tokens, with what it cost."""

    selection: Selection
    signal_times: tuple[Elapsed, ...]
    """Of every signal that the method needs; a signal of the image is computed once, and billed to all that read it."""
    select_times: tuple[Elapsed, ...]
    """Of every part of the image that was chosen from by itself; one unless the budget is counted by tiles."""
    halved: bool = False
    """Whether memory ran out for the batch that it was to be chosen in."""

    @property
    def signal_ms(self) -> float:
        return sum(time.ms for time in self.signal_times)

    @property
    def select_ms(self) -> float:
        return sum(time.ms for time in self.select_times)


class Piece(NamedTuple):
    """What one call of a selector chooses from: a part of the image of the probe at this place."""

    probe: int
    part: CountedPart


class SelectStep:
    """Runs selectors on one backbone. Signals are computed once per image (or question), whichever arm asks first."""

    def __init__(self, backbone: Backbone, clip: ClipSpace | None = None, *, keeps_scores: bool = False) -> None:
        self.backbone = backbone
        self.clip = clip
        self.keeps_scores = keeps_scores
        """Whether scored selectors are asked for their scores once more, outside of what is timed."""
        self.queues = backbone.language.device.type == "cuda"
        """Whether work is queued on a device that the host does not wait for: alike probes are then selected in one
        call, and whoever reads the anchors must check them."""

    def refuse_unserved(self, arms: Iterable[Arm]) -> None:
        """A method that this architecture cannot serve is refused by name, before any work."""
        served = Served.by(self.backbone)
        for arm in arms:
            served.refuse(arm.selector, clip=self.clip is not None)
            if self.backbone.no_cells is not None and arm.intervention is not None and arm.intervention.on_mask:
                raise SightlineError(f"arm '{arm.text}' cannot run on {served.architecture}: {WITHOUT_CELLS}")

    def __call__(self, encoded: Encoded, prompt: Prompt, probe: Probe, arm: Arm) -> Selected:
        """One probe's selection, checked completely: on a GPU this waits for the chosen indices."""
        (selected,) = self.many([encoded], [prompt], [probe], arm)
        if self.queues:
            selection = selected.selection
            check_anchors(selection.anchors.cpu(), encoded.n, arm.selector.name, merges=selection.mix is not None)
        return selected

    @torch.inference_mode()
    def many(
        self, encoded: Sequence[Encoded], prompts: Sequence[Prompt], probes: Sequence[Probe], arm: Arm
    ) -> list[Selected]:
        """One arm's selections for many probes, in the order given. On a GPU their values are not checked yet.

        Under a budget of every tile's own the method is run on each tile, and one selection is made of its choices. On
        a GPU a method that offers ``select_many`` gets alike images, or alike tiles, in one call; it treats them
        independently, and each is billed an equal part of the time.
        """
        pieces = [Piece(i, part) for i, image in enumerate(encoded) for part in parts_of(image.layout, arm.budget)]
        counts = [arm.selector.count(probes[piece.probe].id, piece.part.n, arm.budget) for piece in pieces]
        looks: dict[int, tuple[TokenView, tuple[Elapsed, ...]]] = {}
        selector = cast(Selector, self.backbone.form(arm.selector))

        def look(i: int) -> TokenView:
            if i not in looks:
                computed = {name: self.signal(name, encoded[i], probes[i]) for name in of_image(selector.needs)}
                signals = {name: tensor for name, (tensor, _) in computed.items()}
                times = tuple(time for _, time in computed.values())
                looks[i] = self._view(encoded[i], prompts[i], probes[i], arm, signals, selector.query), times
            return looks[i][0]

        def select(group: list[int]) -> list[tuple[Selection, Elapsed]]:
            views = [pieces[p].part.of(look(pieces[p].probe)) for p in group]
            return self._select(views, counts[group[0]], selector)

        def too_large(p: int) -> str:
            image = f"a single image of {encoded[pieces[p].probe].n} tokens"
            return f"{arm.selector.name} for {image}; use a smaller image size{FEWER}"

        def pairs(group: list[int]) -> int:
            return sum(pieces[p].part.n ** 2 for p in group)

        groups, limit = self._groups(pieces, counts, selector), self.backbone.limits["pairs"]
        done = in_halves(groups, select, too_large, pairs, limit)
        smaller = {pieces[p].probe for p in halved(groups, done)}
        chosen = {p: found for group, results in done for p, found in zip(group, results, strict=True)}
        of_probe: list[list[int]] = [[] for _ in probes]
        for p, piece in enumerate(pieces):
            of_probe[piece.probe].append(p)
        return [
            Selected(
                join_selections([chosen[p][0] for p in own], [pieces[p].part.n for p in own]),
                looks[i][1],
                tuple(chosen[p][1] for p in own),
                i in smaller,
            )
            for i, own in enumerate(of_probe)
        ]

    def _groups(self, pieces: Sequence[Piece], counts: Sequence[int], selector: Selector) -> list[list[int]]:
        if not (self.queues and selector.batches):
            return [[p] for p in range(len(pieces))]
        alike: dict[tuple[Any, int], list[int]] = {}
        for p, (piece, k) in enumerate(zip(pieces, counts, strict=True)):
            alike.setdefault((piece.part.layout, k), []).append(p)
        groups = []
        for members in alike.values():
            most = max(1, MOST_PAIRS // pieces[members[0]].part.n ** 2)
            groups += [members[first : first + most] for first in range(0, len(members), most)]
        return groups

    def _view(
        self,
        encoded: Encoded,
        prompt: Prompt,
        probe: Probe,
        arm: Arm,
        signals: Mapping[str, Tensor],
        query: QuerySpan,
    ) -> TokenView:
        return TokenView(
            tokens=encoded.tokens,
            cells=torch.from_numpy(encoded.cells),
            layout=encoded.layout,
            query=self.backbone.query(prompt, query),
            boxes=torch.tensor(probe.visible_boxes, dtype=torch.float64).reshape(-1, 4),
            signals=signals,
            key=salt(probe, arm),
            probe_id=probe.id,
        )

    def _select(self, views: list[TokenView], k: int, selector: Selector) -> list[tuple[Selection, Elapsed]]:
        """One call of the selector for views of alike images, or of alike tiles."""
        n, device = views[0].tokens.shape[0], views[0].tokens.device
        watch = Stopwatch(device, shared_by=len(views))
        with errors_named(selector.name):
            chosen = list(selector.select_many(views, k)) if len(views) > 1 else [selector.select(views[0], k)]
        watch.stop()
        if len(chosen) != len(views):
            raise SightlineError(f"selector {selector.name} returned {len(chosen)} selections for {len(views)} views")
        selected: list[tuple[Selection, Elapsed]] = []
        for selection in chosen:
            (check_shapes if self.queues else check_selection)(selection, n, k, selector.name)
            ordered = in_native_order(selection)
            placed = Selection(on_device(ordered.anchors, device), ordered.mix, ordered.merge_at, ordered.native_order)
            selected.append((placed, watch))
        return selected

    @torch.inference_mode()
    def scores(self, encoded: Encoded, prompt: Prompt, probe: Probe, arm: Arm, *, by_part: bool = False) -> np.ndarray:
        """(N,) float64, what the arm's selector, which must be a scored one, ranks tokens by; waits for the device.

        ``by_part``: each tile for itself where the budget is a tile's.
        """
        selector = cast(Scored, arm.selector)
        signals = {name: self.signal(name, encoded, probe)[0] for name in selector.needs}
        view = self._view(encoded, prompt, probe, arm, signals, selector.query)
        views = [part.of(view) for part in parts_of(encoded.layout, arm.budget)] if by_part else [view]
        with errors_named(arm.selector.name):
            return np.concatenate([selector.scores(on_cpu(part)).double().cpu().numpy() for part in views])

    def signal(self, name: str, encoded: Encoded, probe: Probe) -> tuple[Tensor, Elapsed]:
        """The tensor and what computing it took. Those of an image are kept with it and serve every probe and arm."""
        if name == "clip.text":
            return self._timed(lambda: self._clip.text(f"<image>\n{probe.question}"))
        if name == "clip.image" and name not in encoded.signals:
            encoded.signals[name] = self._timed(lambda: self._clip.image(self.backbone.clip_states(encoded)))
        if name == SENSITIVITY and name not in encoded.signals:
            encoded.signals[name] = self._timed(lambda: self.backbone.sensitivity(encoded))
        if name not in encoded.signals:
            encoded.signals[name] = self._timed(lambda: self.backbone.vision_signal(name, encoded))
        return encoded.signals[name]

    def _timed(self, compute: Callable[[], Tensor]) -> tuple[Tensor, Elapsed]:
        watch = Stopwatch(self.backbone.language.device)
        tensor = compute()
        watch.stop()
        return tensor, watch

    @property
    def _clip(self) -> ClipSpace:
        if self.clip is None:
            raise SightlineError("this selector needs a CLIP checkpoint: name one with --clip")
        return self.clip


def salt(probe: Probe, arm: Arm) -> str:
    """What drawn selections are seeded with: probe, view, budget, selector; a tile adds its number."""
    return f"{probe.id}:{probe.view}:{arm.budget.amount}:{arm.selector.salt}"


def all_needs(arms: Iterable[Arm], backbone: Backbone) -> frozenset[str]:
    """Every signal that some arm reads on this model; the vision tower keeps what these need while it runs once."""
    return frozenset().union(*(backbone.form(arm.selector).needs for arm in arms))


# What became of the probes under the arm.


@dataclass(frozen=True)
class Trace:
    """Which part of an image reached the model under an arm, and what getting there took."""

    anchors: np.ndarray
    """(N,) bool: cells of the outputs' anchors."""
    lineage: np.ndarray
    """(N,) bool: cells of every source of an output."""
    shares: np.ndarray | None
    """(N,) of every source the largest part it has in one output, positive on the lineage; None: nothing was mixed."""
    k: int
    k_layers: list[int] | None
    """Visual tokens that each language layer read; None when all layers read K."""
    sequence_full: int
    sequence_pruned: int
    signal_ms: float
    select_ms: float
    materialise_ms: float
    scores: np.ndarray | None = None
    """(N,) float64, what the selector ranked tokens by; None where it ranks none or nobody asked for them."""
    inside_ms: float = 0.0
    """What of the signal and select time passed inside the language model's forward."""
    halved: bool = False
    """Whether memory ran out for the batch that the selection was to be made in."""

    @property
    def merges(self) -> bool:
        return self.shares is not None

    def spent(self, arm: Arm) -> float:
        """What the arm's budget counts: the tokens that are left, or the mean of those that the layers read."""
        over_layers = arm.selector.budget_counts == "layers" and self.k_layers
        return float(np.mean(over_layers)) if over_layers else self.k


@dataclass
class ArmPass(ABC):
    """Everything between encoded images and the language model, for one arm.

    Two kinds exist and nobody else tells them apart: a method chooses before the language model or cuts between its
    layers. One that does both is of the second kind, with one of the first in front.
    """

    backbone: Backbone
    arm: Arm
    probes: Sequence[Probe]
    encoded: Sequence[Encoded]
    """The image of every probe."""
    prompts: Sequence[Prompt]
    positions: PositionPolicy

    @property
    @abstractmethod
    def lengths(self) -> list[int]:
        """Slots of every prefix."""

    @property
    def groups(self) -> list[list[int]]:
        """Indices of the probes that may share a batch."""
        return [list(range(len(self.probes)))]

    def batch_tokens(self, limit: int) -> int:
        """How many tokens a batch may have, given what the user allows."""
        return limit

    @abstractmethod
    def prefix(self, i: int) -> Prefix:
        """What the language model reads for the i-th probe."""

    def cutter(self, group: Sequence[int], prefixes: Sequence[Prefix]) -> LayerCuts | None:
        """What shortens the prefixes of a batch between the layers."""
        return None

    def layer_lengths(self, i: int) -> list[int]:
        """Slots that each language layer reads for the i-th probe; all the same unless the layers cut."""
        return [self.lengths[i]] * len(self.backbone.language.layers)

    @abstractmethod
    def traces(self) -> list[Trace]:
        """Per probe what was kept; waits for the device, and checks what a queued selection could not check before.

        To be read once every prefix has been through the language model.
        """


# Really shortens the prefix: tokens, DeepStack levels and positions pruned by one plan, every count checked.


def visual_tokens(backbone: Backbone, encoded: Encoded, selection: Selection) -> tuple[Tensor, tuple[Tensor, ...]]:
    """(K, D) tokens and DeepStack levels after deletion or merging.

    A merge multiplies by ``mix``: on projected tokens and every DeepStack level alike, or on vision hidden states
    that are projected afterwards.
    """
    device = encoded.tokens.device
    if selection.mix is None:
        anchors = on_device(selection.anchors, device)
        if device.type == "cuda":  # checked when results are read; until then a wrong index must not stop the device
            anchors = anchors.clamp(0, encoded.n - 1)
        return encoded.tokens[anchors], tuple(level[anchors] for level in encoded.deepstack)
    mix = on_device(selection.mix, device).to(encoded.tokens.dtype)
    if selection.merge_at == "vision":
        return backbone.project(mix @ backbone.merge_sources(encoded)[: mix.shape[1]]), ()
    return mix @ encoded.tokens, tuple(mix @ level for level in encoded.deepstack)


@torch.inference_mode()
def materialise(
    backbone: Backbone,
    encoded: Encoded,
    prompt: Prompt,
    selection: Selection,
    position_policy: PositionPolicy,
    kept: KeptSpan | None = None,
) -> Prefix:
    """The shortened sequence for one probe and arm, with a branch behind it for every continuation of the prompt.

    ``kept`` is what stays of a span with separators; without any there is nothing to know beyond the selection.
    """
    language = backbone.language
    tokens, deepstack = visual_tokens(backbone, encoded, selection)
    slots = on_device(selection.anchors, tokens.device)
    k, head, shared = len(slots), len(prompt.head), len(prompt.shared)
    if tokens.shape[0] != k or any(level.shape[0] != k for level in deepstack):
        raise SightlineError(
            f"materialised {tokens.shape[0]} tokens and {[len(d) for d in deepstack]} levels for K = {k}"
        )
    if encoded.separators is not None:
        kept = kept or KeptSpan.of(encoded.separators, selection.anchors.cpu(), encoded.n)
        tokens, deepstack = kept.filled(tokens, deepstack, encoded.separators)
        slots = on_device(kept.slots, tokens.device)
    span = len(slots)

    # The last token of a branch is only ever predicted, never read, so it needs no slot.
    inputs = [each[:-1] for each in prompt.continuations]
    behind_span = [*prompt.shared, *(token for branch in inputs for token in branch)]
    text = language.embed([*prompt.head, *behind_span])
    embeds = torch.cat([text[:head], tokens.to(text.dtype), text[head:]])

    visual, following = backbone.visual_positions(encoded, slots, head, position_policy)
    offsets = [*range(shared)]
    segments = torch.zeros(embeds.shape[0], dtype=torch.long, device=tokens.device)
    first = head + span + shared
    for number, branch in enumerate(inputs, start=1):
        offsets += range(shared, shared + len(branch))
        segments[first : first + len(branch)] = number
        first += len(branch)
    behind = on_device(offsets, tokens.device) + following
    before = torch.arange(head, device=tokens.device)
    axes = backbone.axes
    positions = torch.cat([before.expand(axes, -1), visual, behind.expand(axes, -1)], dim=1)
    if positions.shape[1] != embeds.shape[0]:
        raise SightlineError(f"{embeds.shape[0]} embeddings but {positions.shape[1]} positions")
    ids = None
    if language.reads_ids:
        of_span = torch.full((k,), backbone.image_token_id)
        if kept is not None and encoded.separators is not None and encoded.separators.ids is not None:
            of_span = torch.cat([of_span, encoded.separators.ids])[kept.order]
        ids = torch.tensor([*prompt.head, *of_span.tolist(), *behind_span])
    return Prefix(
        embeds=embeds,
        positions=positions,
        segments=segments,
        start=head,
        k=k,
        branch_sizes=tuple(map(len, inputs)),
        deepstack=deepstack,
        reads=prompt.reads,
        prompt_length=prompt.prompt_length(span),
        full_length=prompt.full_length(encoded.full_slots),
        places=None if kept is None else kept.places,
        separators=span - k,
        ids=ids,
    )


# A method that chooses before the language model: one selection per probe, the shortened prefixes made of them.


@dataclass
class BeforePass(ArmPass):
    """On a GPU nothing here waits, except for what has to look at the chosen indices: an intervention on the mask, and
    separators, whose number depends on which tokens stay."""

    step: SelectStep
    selected: list[Selected] = field(init=False)
    selections: list[Selection] = field(init=False)
    _kept: KeptTokens = field(init=False)
    _watches: dict[int, Stopwatch] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.selected = self.step.many(self.encoded, self.prompts, self.probes, self.arm)
        self.selections = [item.selection for item in self.selected]
        if self.arm.intervention is not None and self.arm.intervention.on_mask:
            self.selections = self._changed(self.arm.intervention)
        self._kept = KeptTokens([image.n for image in self.encoded], self.selections)
        self._spans: list[KeptSpan | None] = [None] * len(self.encoded)
        """Of every probe whose image has separators what stays of its span: one wait for the indices of all probes."""
        if any(image.separators is not None for image in self.encoded):
            anchors = self._kept.anchors(self.arm.selector.name)
            for i, (image, kept) in enumerate(zip(self.encoded, anchors, strict=True)):
                if image.separators is not None:
                    self._spans[i] = KeptSpan.of(image.separators, kept, image.n)

    @cached_property
    def checked(self) -> list[Selection]:
        """The selections, whose indices were waited for and looked at."""
        anchors = self._kept.anchors(self.arm.selector.name)
        return [replace(each, anchors=own) for each, own in zip(self.selections, anchors, strict=True)]

    def slots(self, i: int) -> int:
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
        return [prompt.length(self.slots(i)) for i, prompt in enumerate(self.prompts)]

    def prefix(self, i: int) -> Prefix:
        watch = self._watches[i] = Stopwatch(self.backbone.language.device)
        prefix = materialise(
            self.backbone, self.encoded[i], self.prompts[i], self.selections[i], self.positions, self._spans[i]
        )
        watch.stop()
        return prefix

    def materialise_ms(self, i: int) -> float:
        return self._watches[i].ms

    def traces(self) -> list[Trace]:
        keeps_scores = self.step.keeps_scores and isinstance(self.arm.selector, Scored)
        traces = []
        for i, (anchors, lineage, shares) in enumerate(self._kept.read(self.arm.selector.name)):
            selected, asked = self.selected[i], (self.encoded[i], self.prompts[i], self.probes[i], self.arm)
            traces.append(
                Trace(
                    anchors=anchors,
                    lineage=lineage,
                    shares=shares,
                    k=len(self.selections[i].anchors),
                    k_layers=None,
                    sequence_full=self.prompts[i].full_length(self.encoded[i].full_slots),
                    sequence_pruned=self.prompts[i].prompt_length(self.slots(i)),
                    signal_ms=selected.signal_ms,
                    select_ms=selected.select_ms,
                    materialise_ms=self.materialise_ms(i),
                    halved=selected.halved,
                    scores=self.step.scores(*asked, by_part=True) if keeps_scores else None,
                )
            )
        return traces
