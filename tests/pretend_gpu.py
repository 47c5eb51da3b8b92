"""A GPU that is none: tensors that say they are on ``cuda`` and have their values on the CPU.

Where there is no GPU, as in CI, what only fails on one goes unnoticed: a tensor that stayed on the host, a value that
is read back while the device should go on working. Here everything is computed on the CPU, and

- a function that is handed tensors of both devices fails, as it would;
- so does one that wants the values of a tensor on the GPU for NumPy;
- every wait for the device (``item``, ``nonzero``, a mask as an index, a copy to the host, and one from it that is not
  told to go on) is noted, with the line that waits;
- a capture records what is called, refuses waits, and replays it on the same tensors, whatever the host has since
  changed its mind about.

Kernels of our own are not pretended: who asks finds a GPU that is too old for them. What is compiled runs as it is.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

import sightline
from sightline.device.work import PAGEABLE_BYTES

CUDA = torch.device("cuda:0")
PACKAGE = sightline.__file__.removesuffix("__init__.py")
"""Where its files are, whatever the folder of a checkout is called."""
_waits: list[str] = []
_captures: list[Graph] = []
_pinned: dict[int, Tensor] = {}
"""Memory of the host that the GPU reads by itself, by its address."""
_tensor: Any = Tensor
_vmap = torch.vmap
BETWEEN = {_tensor.copy_, _tensor.to, _tensor.type_as, _tensor.__getitem__, _tensor.__setitem__, _tensor.index_put_,
           torch._has_compatible_shallow_copy_type}  # fmt: skip
"""Functions that may be handed tensors of both devices; of ``index`` the places may be on the host."""
READS = {
    _tensor.item, _tensor.tolist, _tensor.__bool__, _tensor.__int__, _tensor.__float__, _tensor.__index__,
    _tensor.nonzero, _tensor.cpu, torch.nonzero, torch.equal, _tensor.equal, torch.unique, _tensor.unique,
    torch.masked_select, _tensor.masked_select, torch.allclose, torch.bincount, torch.argwhere,
}  # fmt: skip
"""Functions whose result the host has to wait for."""
PLACES = {_tensor.__getitem__, _tensor.index_put_, _tensor.__setitem__}
"""Functions that wait for what they are told of places, unless those are numbers that lie on the GPU."""
MADE_ON_HOST = {torch.tensor, torch.as_tensor, torch.asarray}
"""Functions that make a tensor on the host first, wherever it is wanted, and wait until it is there."""


class OnGpu(Tensor):
    """A tensor of the pretended GPU."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func == _tensor.device.__get__:
            return CUDA
        if func == _tensor.is_cuda.__get__:
            return True
        if func == _tensor.is_cpu.__get__:
            return False
        if func in (_tensor.numpy, _tensor.__array__):
            raise TypeError("can't convert cuda:0 device type tensor to numpy; copy it to the host first")
        if func in READS or (func in PLACES and _unknown_places(args[1:2])):
            _wait(func)
        strays = [
            t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor) and not isinstance(t, OnGpu) and t.dim()
        ]
        if strays and func not in BETWEEN:
            shapes = [tuple(t.shape) for t in strays]
            raise RuntimeError(f"{_name(func)} is handed tensors of both devices: {shapes} on the host")
        if func is _tensor.cpu:
            return on_host(args[0].clone())
        if func is _tensor.pin_memory:
            raise RuntimeError("cannot pin a tensor of the GPU")
        if func is _tensor.to:
            return _moved(*args, **kwargs)
        if func is _tensor.copy_ and not isinstance(args[0], OnGpu):
            _wait(func)
            return args[0].copy_(on_host(args[1]), *args[2:])
        if func is _tensor.copy_ and not isinstance(args[1], OnGpu):
            _sent(func, args[1], kwargs)
        kwargs, host = _made_here(kwargs)
        made = super().__torch_function__(func, types, args, kwargs)
        _record(lambda: super(OnGpu, cls).__torch_function__(func, types, args, kwargs), made)
        return tree_map(on_host, made) if host else made


def on_gpu(value: Any) -> Any:
    return value.as_subclass(OnGpu) if isinstance(value, Tensor) and not isinstance(value, OnGpu) else value


def on_host(value: Any) -> Any:
    return value.as_subclass(Tensor) if isinstance(value, OnGpu) else value


class Graph:
    """Calls on the GPU, to be made again: their results go where they went."""

    def __init__(self) -> None:
        self.calls: list[tuple[Callable[[], Any], Any]] = []

    def pool(self) -> None: ...

    def replay(self) -> None:
        for call, made in self.calls:
            for before, now in zip(tree_leaves(made), tree_leaves(call()), strict=True):
                if isinstance(before, OnGpu) and before.data_ptr() != now.data_ptr():
                    on_host(before).copy_(on_host(now))


def _record(call: Callable[[], Any], made: Any) -> None:
    if _captures:
        _captures[-1].calls.append((call, made))


@contextmanager
def capturing(graph: Graph, **_: Any) -> Iterator[None]:
    _captures.append(graph)
    try:
        yield
    finally:
        _captures.pop()


def _wait(func: Any) -> None:
    if _captures:
        raise RuntimeError(f"a capture cannot wait: {_asked(func)}")
    _waits.append(_asked(func))


def _sent(func: Any, tensor: Tensor, how: dict[str, Any]) -> None:
    """A tensor goes from the host to the GPU: behind what is queued there, or the host waits until it has arrived."""
    pinned = tensor.untyped_storage().data_ptr() in _pinned
    waits = not how.get("non_blocking") or (tensor.nbytes > PAGEABLE_BYTES and not pinned)
    if waits and not any(frame.name == "_apply" for frame in traceback.extract_stack()):  # a whole model moves
        _wait(func)


def _unknown_places(index: Any) -> bool:
    """Whether some of them lie on the host, or are a mask, of which nobody knows how many places it has."""
    tensors = [each for each in tree_leaves(index) if isinstance(each, Tensor) and each.dim()]
    return any(each.dtype is torch.bool or not isinstance(each, OnGpu) for each in tensors)


def _pin(tensor: Tensor) -> Tensor:
    _pinned[tensor.untyped_storage().data_ptr()] = tensor
    return tensor


def _name(func: Any) -> str:
    return str(getattr(func, "__name__", func))


def _asked(func: Any) -> str:
    """The function and the line of Sightline that called it."""
    line = next((f for f in reversed(traceback.extract_stack()) if f.filename.startswith(PACKAGE)), None)
    return f"{_name(func)} at {line.filename.removeprefix(PACKAGE)}:{line.lineno}" if line else _name(func)


def _is_cuda(device: Any) -> bool:
    return torch.device(device).type == "cuda"


def _made_here(kwargs: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Arguments by name for a function that makes its result on the CPU, and whether it was asked to be there."""
    device = kwargs.get("device")
    if device is None:
        return kwargs, False
    return {**kwargs, "device": "cpu"}, not _is_cuda(device)


def _moved(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """``Tensor.to`` between the two."""
    other = next((a for a in (*args, kwargs.get("other")) if isinstance(a, Tensor)), None)
    named = next((a for a in (*args, kwargs.get("device")) if isinstance(a, str | torch.device | int)
                  and not isinstance(a, bool)), None)  # fmt: skip
    asked = next((a for a in (*args, kwargs.get("dtype")) if isinstance(a, torch.dtype) or a is bool), None)
    was, dtype = isinstance(tensor, OnGpu), other.dtype if other is not None else asked or tensor.dtype
    cuda = isinstance(other, OnGpu) if other is not None else was if named is None else _is_cuda(named)
    if was and not cuda:
        _wait(_tensor.to)
    if cuda and not was:
        _sent(_tensor.to, tensor, kwargs)
    plain = on_host(tensor)
    plain = plain.clone() if was != cuda or kwargs.get("copy") else plain
    changed: Tensor = plain.to(dtype)
    if changed is plain and was == cuda and not kwargs.get("copy"):
        return tensor
    found: Tensor = on_gpu(changed) if cuda else changed
    _record(lambda: on_gpu(on_host(tensor).to(dtype)), found)
    return found


class Moves(TorchFunctionMode):
    """What is made on the GPU, or moved there from the host."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is _tensor.pin_memory and not isinstance(args[0], OnGpu):
            return _pin(args[0].clone())
        if func is _tensor.cuda:
            return _moved(args[0], CUDA)
        if func is _tensor.to:
            return _moved(*args, **kwargs)
        pinned = kwargs.pop("pin_memory", False)
        if kwargs.get("device") is None or not _is_cuda(kwargs["device"]):
            made = func(*args, **kwargs)
            return _pin(made) if pinned else made
        if func in MADE_ON_HOST:
            _wait(func)
        kwargs["device"] = "cpu"
        made = tree_map(on_gpu, func(*args, **kwargs))
        if not any(isinstance(value, OnGpu) for value in tree_leaves((args, kwargs))):
            _record(lambda: tree_map(on_gpu, func(*args, **kwargs)), made)
        return made


class Event:
    """A clock of the pretended GPU: there is nothing to wait for."""

    def __init__(self, **_: Any) -> None: ...

    def record(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: Event) -> float:
        return 1.0


class Stream:
    """A queue that is always empty."""

    def __init__(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...

    def wait_stream(self, _: Stream) -> None: ...


def pretended() -> dict[str, Any]:
    facts = SimpleNamespace(name="a pretended GPU", multi_processor_count=1, total_memory=2**34, major=8, minor=0)
    plenty = (2**34, 2**34)
    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda *_: facts.name,
        "get_device_capability": lambda *_: (facts.major, facts.minor),
        "get_device_properties": lambda *_: facts,
        "mem_get_info": lambda *_: plenty,
        **{f"{most}memory_{kind}": lambda *_: 0 for most in ("", "max_") for kind in ("allocated", "reserved")},
        **dict.fromkeys(("reset_peak_memory_stats", "empty_cache", "synchronize"), lambda *_: None),
        "is_bf16_supported": lambda *_: True,
        "current_stream": lambda *_: Stream(),
        "stream": lambda *_: nullcontext(),
        "Stream": Stream,
        "Event": Event,
        "CUDAGraph": Graph,
        "graph": capturing,
    }  # fmt: skip


def mapping(function: Any, *how: Any, **named: Any) -> Callable[..., Any]:
    """``torch.vmap``, within which nobody knows where a tensor is."""
    mapped = _vmap(function, *how, **named)

    def call(*given: Any) -> Any:
        there = any(isinstance(value, OnGpu) for value in tree_leaves(given))
        return tree_map(on_gpu, mapped(*given)) if there else mapped(*given)

    return call


@contextmanager
def pretend_gpu() -> Iterator[list[str]]:
    """While open, there is a GPU. Yields the waits for it so far."""
    run = threading.Thread.run

    def pretending(thread: threading.Thread) -> None:
        with Moves():
            run(thread)

    overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    _waits.clear()
    _pinned.clear()
    try:
        with (
            mock.patch.multiple(torch.cuda, **pretended()),
            mock.patch.object(torch.version, "cuda", None),  # nor is there a compiler for kernels
            mock.patch.object(torch, "compile", lambda function, **_: function),
            mock.patch.object(torch, "vmap", mapping),
            mock.patch.object(threading.Thread, "run", pretending),
            Moves(),
        ):
            yield _waits
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(overwrites)
