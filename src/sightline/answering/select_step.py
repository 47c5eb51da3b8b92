"""The select step: gathers what a selector asked for, runs it, checks what it returned, and times both apart.

On a GPU nothing here waits for the device: times are read later, and so are the chosen indices, whose check is
completed where they are read (``sightline.answering.materialise``). Shapes are checked at once everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from sightline.arms.arm import Arm
from sightline.backbones.base import Backbone
from sightline.backbones.clip import ClipSpace
from sightline.backbones.cuts import CountedPart, parts_of, together
from sightline.backbones.loading import Served
from sightline.core.prefix import Elapsed, Encoded, Prompt
from sightline.core.probe import Probe
from sightline.core.selection import Selection, Selector, TokenView
from sightline.core.selection_rules import (
    check_anchors,
    check_selection,
    check_shapes,
    in_native_order,
    on_behalf_of,
)
from sightline.device.work import FEWER, Stopwatch, halved, in_halves, on_device
from sightline.errors import SightlineError
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

    def count(self, probe: Probe, arm: Arm, n: int) -> int:
        """K of n tokens that the budget is counted over, before the method runs. A replayed mask brings its own."""
        return arm.selector.count(probe.id, n, arm.budget)

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
        counts = [self.count(probes[piece.probe], arm, piece.part.n) for piece in pieces]
        looks: dict[int, tuple[TokenView, tuple[Elapsed, ...]]] = {}

        def look(i: int) -> TokenView:
            if i not in looks:
                computed = {name: self.signal(name, encoded[i], probes[i]) for name in arm.selector.needs}
                signals = {name: tensor for name, (tensor, _) in computed.items()}
                times = tuple(time for _, time in computed.values())
                looks[i] = self._view(encoded[i], prompts[i], probes[i], arm, signals), times
            return looks[i][0]

        def select(group: list[int]) -> list[tuple[Selection, Elapsed]]:
            views = [pieces[p].part.of(look(pieces[p].probe)) for p in group]
            return self._select(views, counts[group[0]], arm)

        def too_large(p: int) -> str:
            image = f"a single image of {encoded[pieces[p].probe].n} tokens"
            return f"{arm.selector.name} for {image}; use a smaller image size{FEWER}"

        def pairs(group: list[int]) -> int:
            return sum(pieces[p].part.n ** 2 for p in group)

        groups, limit = self._groups(pieces, counts, arm), self.backbone.limits["pairs"]
        chosen: dict[int, tuple[Selection, Elapsed]] = {}
        done = in_halves(groups, select, too_large, pairs, limit)
        smaller = {pieces[p].probe for p in halved(groups, done)}
        for group, results in done:
            chosen.update(zip(group, results, strict=True))
        of_probe: list[list[int]] = [[] for _ in probes]
        for p, piece in enumerate(pieces):
            of_probe[piece.probe].append(p)
        return [
            Selected(
                together([chosen[p][0] for p in own], [pieces[p].part.n for p in own]),
                looks[i][1],
                tuple(chosen[p][1] for p in own),
                i in smaller,
            )
            for i, own in enumerate(of_probe)
        ]

    def _groups(self, pieces: Sequence[Piece], counts: Sequence[int], arm: Arm) -> list[list[int]]:
        if not (self.queues and arm.selector.batches):
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
        self, encoded: Encoded, prompt: Prompt, probe: Probe, arm: Arm, signals: Mapping[str, Tensor]
    ) -> TokenView:
        selector = cast(Selector, arm.selector)
        return TokenView(
            tokens=encoded.tokens,
            cells=torch.from_numpy(encoded.cells),
            layout=encoded.layout,
            query=self.backbone.query(prompt, selector.query),
            boxes=torch.tensor(probe.visible_boxes, dtype=torch.float64).reshape(-1, 4),
            signals=signals,
            key=salt(probe, arm),
            probe_id=probe.id,
        )

    def _select(self, views: list[TokenView], k: int, arm: Arm) -> list[tuple[Selection, Elapsed]]:
        """One call of the selector for views of alike images, or of alike tiles."""
        selector: Any = arm.selector
        n, device = views[0].tokens.shape[0], views[0].tokens.device
        watch = Stopwatch(device, shared_by=len(views))
        with on_behalf_of(selector.name):
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
        signals = {name: self.signal(name, encoded, probe)[0] for name in arm.selector.needs}
        view = self._view(encoded, prompt, probe, arm, signals)
        views = [part.of(view) for part in parts_of(encoded.layout, arm.budget)] if by_part else [view]
        with on_behalf_of(arm.selector.name):
            return np.concatenate([selector.scores(on_cpu(part)).double().cpu().numpy() for part in views])

    def kept_scores(self, encoded: Encoded, prompt: Prompt, probe: Probe, arm: Arm) -> np.ndarray | None:
        """The same for whoever keeps them; None where a selector ranks nothing or nobody asked."""
        if not self.keeps_scores or not isinstance(arm.selector, Scored):
            return None
        return self.scores(encoded, prompt, probe, arm, by_part=True)

    def signal(self, name: str, encoded: Encoded, probe: Probe) -> tuple[Tensor, Elapsed]:
        """The tensor and what computing it took. Those of an image are kept with it and serve every probe and arm."""
        if name == "clip.text":
            return self._timed(lambda: self._clip.text(f"<image>\n{probe.question}"))
        if name not in encoded.signals:
            compute = self._clip_image if name == "clip.image" else partial(self.backbone.vision_signal, name)
            encoded.signals[name] = self._timed(lambda: compute(encoded))
        return encoded.signals[name]

    def _timed(self, compute: Callable[[], Tensor]) -> tuple[Tensor, Elapsed]:
        watch = Stopwatch(self.backbone.language.device)
        tensor = compute()
        watch.stop()
        return tensor, watch

    def _clip_image(self, encoded: Encoded) -> Tensor:
        return self._clip.image(self.backbone.clip_states(encoded))

    @property
    def _clip(self) -> ClipSpace:
        if self.clip is None:
            raise SightlineError("this selector needs a CLIP checkpoint: name one with --clip")
        return self.clip


def salt(probe: Probe, arm: Arm) -> str:
    """What drawn selections are seeded with: probe, view, budget, selector; a tile adds its number."""
    return f"{probe.id}:{probe.view}:{arm.budget.amount}:{arm.selector.salt}"


def all_needs(arms: Iterable[Arm]) -> frozenset[str]:
    """Every signal that some arm reads; the vision tower keeps what these need while it runs once."""
    needs: set[str] = set()
    for arm in arms:
        needs.update(arm.selector.needs)
    return frozenset(needs)
