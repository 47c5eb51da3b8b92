"""How the language layers run: one kernel at a time, compiled, or replayed as one captured graph.

The same weights, masks and positions either way, for full and pruned prefixes alike: a mode is chosen for a whole
comparison, so that a ratio never mixes kernels. Methods that cut between layers always run eagerly.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad

from sightline.backbones.language import Batch, LanguageModel, Layer, call_layer
from sightline.device.graphs import capture
from sightline.device.joining import join_projections
from sightline.device.row_count import fastest_length
from sightline.device.stopwatch import setting_up
from sightline.errors import SightlineError

Mode = Literal["eager", "compiled", "graph"]
MODES: tuple[Mode, ...] = get_args(Mode)
BUCKET = 32
"""Captured prefixes are padded to a multiple of this many slots, so that a run needs few graphs."""
KEPT_GRAPHS = 32


@dataclass
class Execution:
    """What a mode has cost so far, for the cost card."""

    mode: Mode
    setup_ms: list[float] = field(default_factory=list)
    """First call of every new shape: compiling, capturing."""
    note: str = ""


def use_execution(
    language: LanguageModel,
    mode: str,
    *,
    backend: str = "inductor",
    dynamic: bool | None = None,
    bucket: int | None = BUCKET,
) -> Execution:
    """Switches a language model to a mode; the last call counts.

    ``dynamic`` True compiles once for all shapes, False once per shape, None for the first shape and then once for all
    others. ``bucket`` is what captured prefixes are padded to a multiple of; None measures what is best for each shape.
    """
    if mode not in MODES:
        raise SightlineError(f"unknown execution '{mode}'; choose one of {', '.join(MODES)}")
    if not language.plain:
        return Execution("eager", note="the model's own decoder runs, one kernel at a time")
    if mode == "eager":
        language.executor = language.compiled = None
        return Execution("eager")
    compiled = Compiled(language, backend, dynamic)
    language.compiled = partial(torch.compile, backend=backend, dynamic=dynamic)
    if mode == "compiled":
        language.executor = compiled
        return compiled.execution
    captured = Captured(language, compiled.call, bucket)
    language.executor = captured
    return captured.execution


def unrelated_sizes() -> AbstractContextManager[None]:
    """While open, a compiler takes sizes that happen to be equal for unrelated: a batch of 16 is no head of 16.

    Otherwise code that is meant for all shapes is compiled again as soon as one of the two changes.
    """
    import torch.fx.experimental._config as symbols

    config: Any = symbols
    patched: AbstractContextManager[None] = config.patch(use_duck_shape=False)
    return patched


class Compiled:
    """Every layer through one compiled function: it is compiled for the first layer and reused by all others."""

    def __init__(self, language: LanguageModel, backend: str, dynamic: bool | None) -> None:
        self.language = language
        join_projections(language.layers)
        self.call: Layer = torch.compile(call_layer, backend=backend, dynamic=dynamic)
        self.execution = Execution("compiled")
        self._dynamic = bool(dynamic)
        self._seen: set[tuple[int, ...]] = set()

    def __call__(self, batch: Batch) -> Tensor:
        # One compilation serves all shapes if it is dynamic, but a single sequence and branches are code of their own.
        size = tuple(batch.hidden.shape)
        shape = (size[0] == 1, batch.branches > 0) if self._dynamic else size
        if shape not in self._seen:
            with setting_up(self.language.device, self.execution.setup_ms), unrelated_sizes():
                self.language.forward(batch, self.call)
            self._seen.add(shape)
        return self.language.forward(batch, self.call)


class Captured:
    """All layers as one CUDA graph per shape bucket; a batch is copied into the bucket's buffers and replayed.

    The shared part is padded on the right, which causality hides; DeepStack features are padded with zeros, which add
    nothing. On the CPU there are no graphs: the same buffers are filled and the layers are simply called.
    """

    def __init__(self, language: LanguageModel, call: Layer, bucket: int | None = BUCKET) -> None:
        self.language, self.call, self.bucket = language, call, bucket
        self._lengths: dict[tuple[int, int, int], int] = {}
        self.execution = Execution("graph")
        if language.device.type != "cuda":
            self.call = call_layer
            self.execution.note = "no CUDA graphs on this device: buffers are filled and layers called one by one"
        self._graphs: OrderedDict[tuple[int, ...], _Graph] = OrderedDict()
        self._pool: Any = None

    def __call__(self, batch: Batch) -> Tensor:
        shared = self.padded(batch)
        key = (batch.hidden.shape[0], shared, batch.branches, batch.start, len(batch.deepstack))
        if key not in self._graphs:
            with setting_up(self.language.device, self.execution.setup_ms), unrelated_sizes():
                self._graphs[key] = self._record(batch, shared)
            if len(self._graphs) > KEPT_GRAPHS:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(key)
        return self._graphs[key].run(batch)

    def padded(self, batch: Batch) -> int:
        """Slots that the shared part gets."""
        if self.bucket is not None:
            return -(-batch.shared // self.bucket) * self.bucket
        key = (batch.hidden.shape[0], batch.shared, batch.branches)
        if key not in self._lengths:
            with setting_up(self.language.device, self.execution.setup_ms):
                self._lengths[key] = fastest_length(self.language.layers, *key)
        return self._lengths[key]

    def _record(self, batch: Batch, shared: int) -> _Graph:
        static = in_bucket(batch, shared)
        if self.language.device.type != "cuda":
            return _Graph(static, lambda: self.language.forward(static, self.call))
        replay, self._pool = capture(lambda: self.language.forward(static, self.call), self.language.device, self._pool)
        return _Graph(static, replay)


@dataclass(frozen=True)
class _Graph:
    """Buffers of one bucket and what computes the last layer's output from them."""

    static: Batch
    replay: Callable[[], Tensor]

    def run(self, batch: Batch) -> Tensor:
        """(B, S, D) for the batch's own S. Unpadded, it is the graph's own memory, valid until the next replay."""
        static, shared, branches = self.static, batch.shared, batch.branches
        for buffer, values, axis in (
            (static.hidden, batch.hidden, 1),
            (static.positions, batch.positions, 2),
            (static.segments, batch.segments, 1),
        ):
            buffer.narrow(axis, 0, shared).copy_(values.narrow(axis, 0, shared))
            if branches:
                buffer.narrow(axis, static.shared, branches).copy_(values.narrow(axis, shared, branches))
        # Padding is hidden by causality, whatever it holds, but must be told apart and must receive no features.
        static.segments[:, shared : static.shared] = -1
        for buffer, level in zip(static.deepstack, batch.deepstack, strict=True):
            buffer[:, : level.shape[1]].copy_(level)
            buffer[:, level.shape[1] :].zero_()
        output = self.replay()
        if shared == static.shared:
            return output
        return torch.cat([output[:, :shared], output[:, static.shared :]], dim=1) if branches else output[:, :shared]


def in_bucket(batch: Batch, shared: int) -> Batch:
    """The batch with its shared part padded to ``shared`` slots and its DeepStack levels to all slots behind start."""
    slots = shared - batch.shared

    def widened(values: Tensor, axis: int, filling: int) -> Tensor:
        before = values.narrow(axis, 0, batch.shared)
        behind = values.narrow(axis, batch.shared, batch.branches)
        shape = list(values.shape)
        shape[axis] = slots
        return torch.cat([before, values.new_full(shape, filling), behind], dim=axis)

    width = shared - batch.start
    return Batch(
        widened(batch.hidden, 1, 0),
        widened(batch.positions, 2, 0),
        widened(batch.segments, 1, -1),
        tuple(pad(level, (0, 0, 0, width - level.shape[1])) for level in batch.deepstack),
        batch.start,
        batch.counts,
        batch.branches,
    )
