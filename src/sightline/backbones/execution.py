"""How the language layers run: one kernel at a time, compiled, or replayed as one captured graph.

The same weights, masks and positions either way, for full and pruned prefixes alike: a mode is chosen for a whole
comparison, so that a ratio never mixes kernels. Methods that cut between layers run eagerly or compiled: in a graph the
layers are one.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad

from sightline.backbones.attention import Bounds, pack
from sightline.backbones.base import Backbone
from sightline.backbones.batches import Batch
from sightline.backbones.general import General
from sightline.backbones.images import Pixels
from sightline.backbones.language import LanguageModel, Layer, call_layer
from sightline.backbones.signals import Block, forward_block, with_pixels
from sightline.backbones.towered import Towered, call_block
from sightline.core.cache import cache_folder
from sightline.core.prefix import Encoded
from sightline.core.selection import PIXELS, hidden_indices
from sightline.device.graphs import capture, fastest_length, join_projections
from sightline.device.work import setting_up
from sightline.errors import SightlineError, named_line

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
    before: Counter[str] = field(default_factory=Counter)
    """What the process had compiled when a mode that compiles was chosen."""

    def compiled(self) -> str:
        """What was compiled meanwhile, in words; nothing where that is nothing."""
        found = compiled_so_far() - self.before
        words = {
            "graphs": f"compiled graphs: {found['graphs']}, of which {found['disk']} were found on disk",
            "kernels": f"kernels compiled or loaded: {found['kernels']}",
        }
        return "; ".join(said for name, said in words.items() if found[name])


@cache
def _kernels() -> list[Any]:
    """One entry for each kernel that is new to this process, since this was first asked for: Triton adds them.

    A size or type that it had not met needs a kernel of its own, be it compiled or found on disk.
    """
    met: list[Any] = []
    if importlib.util.find_spec("triton") is not None:
        triton: Any = importlib.import_module("triton")
        triton.knobs.runtime.jit_post_compile_hook = lambda **facts: met.append(facts.get("repr"))
    return met


def compiled_so_far() -> Counter[str]:
    """What this process has compiled: graphs, those of them that lay in ``TORCHINDUCTOR_CACHE_DIR``, and kernels."""
    from torch._dynamo.utils import counters

    graphs, disk = counters["stats"]["unique_graphs"], counters["inductor"]["fxgraph_cache_hit"]
    return Counter(graphs=graphs, disk=disk, kernels=len(_kernels()))


# Compiled code is kept between processes, with all else that is remembered (``sightline.core.cache``).

COMPILED = "compiled"
FOLDERS = {"TORCHINDUCTOR_CACHE_DIR": "graphs", "TRITON_CACHE_DIR": "kernels"}
"""Environment variables that say where compiled code lies, and what it is."""
FORGOTTEN_DAYS = 30
"""After which code goes that was made by another version or for another device, and that nobody has used since."""


def keep_compiled(device: torch.device) -> None:
    """Names folders for compiled code that outlive this process, unless the user has; where nobody can write to them
    it lies where PyTorch leaves it, in the machine's temporary folder.

    Code is filed under its source, its settings and the versions that made it, but of a CPU's instructions, which also
    decide it, nothing is said: a folder for each, so that machines may share a home directory. Files are written whole,
    under locks of PyTorch and Triton: several processes may compile at once.
    """
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    gpu = device.type == "cuda"
    kind = (
        torch.cuda.get_device_name(device) if gpu else f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    )
    makers = f"torch {torch.__version__} python {platform.python_version()} {kind}"
    folder = cache_folder() / COMPILED / re.sub(r"[^\w.+]+", "-", makers)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
    except OSError:
        return
    for variable, name in FOLDERS.items():
        # PyTorch writes its own choice there as soon as its compiler is imported.
        if os.environ.get(variable, default_cache_dir()) == default_cache_dir():
            os.environ[variable] = str(folder.absolute() / name)
    for other in folder.parent.iterdir():
        with suppress(FileNotFoundError):  # another process has removed it
            if time.time() - other.stat().st_mtime > FORGOTTEN_DAYS * 24 * 3600:
                shutil.rmtree(other, ignore_errors=True)


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
        note = "the model's own decoder runs, one kernel at a time"
        return Execution(mode, note=note, before=Counter() if mode == "eager" else compiled_so_far())
    if mode == "eager":
        language.executor = None
        language.compile_with(None)
        return Execution("eager")
    compiled = Compiled(language, backend, dynamic)
    language.compile_with(partial(torch.compile, backend=backend, dynamic=dynamic), {call_layer: compiled.call})
    if mode == "compiled":
        language.executor = compiled
        return compiled.execution
    captured = Captured(language, compiled.call, bucket)
    language.executor = captured
    return captured.execution


@contextmanager
def unrelated_sizes() -> Iterator[None]:
    """While open, a compiler takes sizes that happen to be equal for unrelated: a batch of 16 is no head of 16.

    Otherwise code that is meant for all shapes is compiled again as soon as one of the two changes. Fractions are taken
    for constants, which those of a layer are: in search of others everything would be traced twice.
    """
    import torch._dynamo.config as tracing
    import torch.fx.experimental._config as symbols

    configurations: tuple[Any, Any] = symbols, tracing
    shapes, values = configurations
    with shapes.patch(use_duck_shape=False), values.patch(specialize_float=True):
        yield


class Compiled:
    """Every layer through one compiled function: it is compiled for the first layer and reused by all others."""

    def __init__(self, language: LanguageModel, backend: str, dynamic: bool | None) -> None:
        self.language = language
        join_projections(language.layers)
        self.call: Layer = torch.compile(call_layer, backend=backend, dynamic=dynamic)
        self.execution = Execution("compiled", before=compiled_so_far())
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
        self.execution = Execution("graph", before=compiled_so_far())
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


# How the vision tower runs: the model's own kernels, compiled blocks, or all of it replayed as one captured graph.


def use_vision_execution(
    backbone: Backbone, execution: Execution, *, backend: str = "inductor", dynamic: bool | None = None
) -> None:
    """Switches a backbone's tower to the mode of an execution, which is billed for compiling; the last call counts.

    Capturing needs images of one shape, so ``graph`` compiles here like ``compiled``; see ``CapturedVision``.
    """
    eager, device = execution.mode == "eager", backbone.language.device
    if isinstance(backbone, General):
        compiled = CompiledBlocks(forward_block, execution, device, backend, dynamic, whole=True)
        backbone.call_block = None if eager else compiled
    if not isinstance(backbone, Towered):
        return
    if backbone.packs_images:
        pack(backbone.model.config.vision_config, not eager)
    if eager:
        backbone.call_block, backbone.patch_products = call_block, False
        return
    join_projections(backbone.vision_blocks)
    backbone.call_block = CompiledBlocks(call_block, execution, device, backend, dynamic)
    backbone.patch_products = True


class CompiledBlocks:
    """Every block through one compiled function; the first call of a shape is set-up.

    ``whole``: code that cannot be compiled as one, for all sizes of images alike, runs as it is, and the execution's
    note says why.
    """

    def __init__(
        self,
        function: Block,
        execution: Execution,
        device: torch.device,
        backend: str,
        dynamic: bool | None,
        whole: bool = False,
    ) -> None:
        self._function, self._whole = function, whole
        self._call: Block = torch.compile(function, backend=backend, dynamic=dynamic, fullgraph=whole)
        self._execution, self._device, self._dynamic = execution, device, bool(dynamic)
        self._seen: set[Any] = set()

    def __call__(self, block: Any, hidden: Tensor, arguments: dict[str, Any]) -> Any:
        # If it is dynamic, what is one is code of its own: a single image, or a single sequence of one or of several.
        shape = _single([hidden, *arguments.values()]) if self._dynamic else tuple(hidden.shape)
        if shape in self._seen:
            return self._run(block, hidden, arguments)
        with setting_up(self._device, self._execution.setup_ms), unrelated_sizes():
            found = self._run(block, hidden, arguments)
        self._seen.add(shape)
        return found

    def _run(self, block: Any, hidden: Tensor, arguments: dict[str, Any]) -> Any:
        try:
            return self._call(block, hidden, arguments)
        except Exception as error:
            if not (self._whole and isinstance(error, torch._dynamo.exc.TorchDynamoException)):
                raise
            reason = f"the blocks of its vision tower run one kernel at a time ({named_line(error)})"
        self._call = self._function
        self._execution.note = "; ".join(filter(None, (self._execution.note, reason)))
        return self._call(block, hidden, arguments)


def _single(values: Sequence[Any]) -> tuple[Any, ...]:
    """Of everything that has a size, whether that is one."""
    found: list[Any] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(tuple(size == 1 for size in value.shape))
        elif isinstance(value, Bounds):
            found.append(value.sequences == 1)
        else:
            found.append(_single(value) if isinstance(value, tuple | list) else value is None)
    return tuple(found)


class CapturedVision:
    """Encodes single images of one shape: from the image's bytes to projected tokens in one replay.

    What depends on the shape alone (resize tables, positions) is computed once. Hidden states that signals read are
    kept in the same graph. On the CPU nothing is captured: the same buffers are filled and the tower is called.
    """

    def __init__(self, backbone: Towered, sample: Pixels, needs: frozenset[str]) -> None:
        self.backbone, self.sample = backbone, sample
        self._tower = backbone.tower([sample.grid])
        self._keep = hidden_indices(needs, len(backbone.vision_blocks))
        self._shows = PIXELS in needs
        device = backbone.language.device
        self._data = sample.data.to(device, copy=True)
        self.staging = torch.empty_like(sample.data, pin_memory=True) if device.type == "cuda" else None
        """Memory for the next image's bytes, free again when the tokens of the last one have been read."""
        self._prepare = backbone.under(sample.options).preparing(self._data)
        self._replay: Callable[[], tuple[list[Tensor], dict[int, Tensor]]] = self._call
        if device.type == "cuda":
            # A resize is dozens of small steps; compiled they are one per direction.
            self._prepare = torch.compile(self._prepare, dynamic=False)
            with torch.inference_mode():
                self._replay, _ = capture(self._call, device)

    def _call(self) -> tuple[list[Tensor], dict[int, Tensor]]:
        pixels = self._prepare(self._data).to(self.backbone.language.dtype)
        return self._tower(pixels, self._keep, self.backbone.call_block)

    @torch.inference_mode()
    def __call__(self, pixels: Pixels) -> Encoded:
        """The tokens lie in the graph's own memory and are valid until the next call."""
        self._data.copy_(pixels.data, non_blocking=True)
        outputs: Any = self._replay()
        (encoded,) = self.backbone.seen([self.sample], self._tower, *outputs)
        return with_pixels(encoded, self._data) if self._shows else encoded
