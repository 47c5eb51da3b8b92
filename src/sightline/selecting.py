"""The select step: gathers what a selector asked for, runs it, checks what it returned, and times both apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from sightline.arms import Arm
from sightline.backbones.base import Backbone
from sightline.backbones.clip import ClipSpace
from sightline.backbones.signals import hidden_indices, misnamed
from sightline.errors import SightlineError
from sightline.materialise import check_selection, in_native_order
from sightline.types import Encoded, Probe, Prompt, Selection, Selector, TokenView

T = TypeVar("T")


@dataclass(frozen=True)
class Selected:
    """A checked selection in native order, with what it cost."""

    selection: Selection
    signal_ms: float
    select_ms: float


class SelectStep:
    """Runs selectors on one backbone. Signals are computed once per picture (or question) and arm-independent."""

    def __init__(self, backbone: Backbone, clip: ClipSpace | None = None) -> None:
        self.backbone = backbone
        self.clip = clip

    def refuse_unserved(self, arms: Iterable[Arm]) -> None:
        """A method that this architecture cannot serve is refused by name, before any work."""
        for arm in arms:
            for name in sorted(arm.selector.needs):
                problem = misnamed(name, arm.inside)
                if problem is not None:
                    raise SightlineError(f"selector {arm.selector.name} cannot get what it needs: {problem}")
                reason = self.backbone.serves(name)
                kind = type(self.backbone).__name__
                if reason is not None:
                    raise SightlineError(f"{arm.selector.name} cannot run on {kind}: it needs {name}, but {reason}")
                try:
                    hidden_indices([name], len(self.backbone.vision_blocks))
                except SightlineError as error:
                    layers = [f.name for f in fields(cast(Any, arm.selector)) if "layer" in f.name]
                    way_out = f"; set {' and '.join(layers)}" if layers else "; this tower is too shallow for it"
                    raise SightlineError(f"{arm.selector.name} cannot run on {kind}: {error}{way_out}") from None
                if name.startswith("clip.") and self.clip is None:
                    raise SightlineError(
                        f"{arm.selector.name} needs {name}: name a CLIP checkpoint with --clip (for LLaVA-1.5: "
                        "openai/clip-vit-large-patch14-336)"
                    )

    def key(self, probe: Probe, arm: Arm) -> str:
        """The salt of drawn selections: probe, view, budget, selector."""
        salt = getattr(arm.selector, "salt", arm.selector.name)
        return f"{probe.id}:{probe.view}:{arm.budget}:{salt}"

    def count(self, probe: Probe, arm: Arm, n: int) -> int:
        """K, resolved before the method runs. A replayed mask brings its own count."""
        replay = getattr(arm.selector, "budget", None)
        return int(replay(probe.id, n)) if callable(replay) else arm.budget.resolve(n)

    @torch.inference_mode()
    def __call__(self, encoded: Encoded, prompt: Prompt, probe: Probe, arm: Arm) -> Selected:
        selector = cast(Selector, arm.selector)
        k = self.count(probe, arm, encoded.n)
        device = encoded.tokens.device
        signals, signal_ms = self._timed(lambda: {n: self.signal(n, encoded, probe) for n in selector.needs})
        view = TokenView(
            tokens=encoded.tokens,
            cells=torch.from_numpy(encoded.cells),
            layout=encoded.layout,
            query=self.backbone.query(prompt, selector.query),
            boxes=torch.tensor(probe.visible_boxes, dtype=torch.float64).reshape(-1, 4),
            signals=signals,
            key=self.key(probe, arm),
        )
        selection, select_ms = self._timed(lambda: selector.select(view, k))
        check_selection(selection, encoded.n, k, selector.name)
        ordered = in_native_order(selection)
        return Selected(
            Selection(ordered.anchors.to(device), ordered.mix, ordered.merge_at, ordered.native_order),
            signal_ms,
            select_ms,
        )

    def signal(self, name: str, encoded: Encoded, probe: Probe) -> Tensor:
        if name == "clip.text":
            return self._clip.text(f"<image>\n{probe.question}")
        if name == "clip.image":
            return self._clip.image(self.backbone.clip_states(encoded))
        return self.backbone.vision_signal(name, encoded)

    @property
    def _clip(self) -> ClipSpace:
        if self.clip is None:
            raise SightlineError("this selector needs a CLIP checkpoint: name one with --clip")
        return self.clip

    def _timed(self, work: Callable[[], T]) -> tuple[T, float]:
        self.backbone.synchronise()
        started = time.perf_counter()
        result = work()
        self.backbone.synchronise()
        return result, (time.perf_counter() - started) * 1e3


def all_needs(arms: Iterable[Arm]) -> frozenset[str]:
    """Every signal that some arm reads; the vision tower keeps what these need while it runs once."""
    needs: set[str] = set()
    for arm in arms:
        needs.update(cast(Any, arm.selector).needs)
    return frozenset(needs)
