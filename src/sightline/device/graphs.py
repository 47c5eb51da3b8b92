"""CUDA graphs: a fixed sequence of kernels recorded once and replayed without the host in between."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from sightline.device.work import Stopwatch

T = TypeVar("T")


def capture(call: Callable[[], T], device: torch.device, pool: Any = None) -> tuple[Callable[[], T], Any]:
    """A function that replays ``call`` and returns its output, and the graph's memory pool.

    ``call`` must read its inputs from tensors that stay where they are and must not wait for the device. The output is
    the same memory at every replay. Graphs may share a pool if each output is copied before another graph replays.
    """
    cuda: Any = torch.cuda
    aside = cuda.Stream(device)
    aside.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(aside):
        for _ in range(2):  # compiles and allocates library workspaces, which capture must not do
            call()
    torch.cuda.current_stream(device).wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    # Meanwhile another thread prepares the next images and asks for pinned memory. By default a capture is void as soon
    # as any thread of the process does that; what other threads ask for is not part of it and cannot harm it.
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        output = call()

    def replay() -> T:
        graph.replay()
        return output

    return replay, pool if pool is not None else graph.pool()


# Projections that read the same input, as one matrix product.
#
# Query, key and value (and gate and up) multiply the same hidden states. One product over their joined weights keeps a
# GPU busier than two or three smaller ones, most of all for a single short prefix. The joined weights replace the
# originals, which become views of them: no second copy in memory, and every weight is found where it was.

GROUPS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Names of sibling projections, in the order in which a layer calls them."""


class Joint:
    """The joined weight (sum of E_i, D) of a group, and the parts of the product last made while tracing."""

    def __init__(self, linears: list[nn.Linear]) -> None:
        self.sizes = [each.out_features for each in linears]
        self.weight = torch.cat([each.weight.data for each in linears])
        biases = [each.bias.data for each in linears if each.bias is not None]
        self.bias = torch.cat(biases) if biases else None
        self.source: Tensor | None = None
        self.parts: tuple[Tensor, ...] = ()


class JoinedLinear(nn.Module):
    """One projection of a group: x W_i^T + b_i, cut from the group's product where that is compiled.

    While tracing, the first member called with an input makes the product for all, and the last one forgets it, so that
    nothing outlives the layer. Outside of compiled code every member multiplies with its own rows, as before.
    """

    def __init__(self, joint: Joint, index: int) -> None:
        super().__init__()
        rows = slice(sum(joint.sizes[:index]), sum(joint.sizes[: index + 1]))
        self.joint, self.index = joint, index
        self.out_features, self.in_features = joint.sizes[index], joint.weight.shape[1]
        self.weight = nn.Parameter(joint.weight[rows], requires_grad=False)
        self.bias = None if joint.bias is None else nn.Parameter(joint.bias[rows], requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            return linear(x, self.weight, self.bias)
        joint = self.joint
        if joint.source is not x:
            joint.source = x
            joint.parts = torch.split(linear(x, joint.weight, joint.bias), joint.sizes, dim=-1)
        part = joint.parts[self.index]
        if self.index == len(joint.sizes) - 1:
            joint.source, joint.parts = None, ()
        return part


def join_projections(layers: Iterable[Any]) -> None:
    """Joins all groups in these layers, in place and once; groups of which only some have a bias stay apart."""
    for layer in layers:
        for module in list(layer.modules()):
            for names in GROUPS:
                members = [getattr(module, name, None) for name in names]
                # Plain ones only: subclasses (quantised ones, say) store their weights in ways of their own.
                if any(type(member) is not nn.Linear for member in members):
                    continue
                if len({member.bias is None for member in members}) == 1:  # type: ignore[union-attr]
                    joint = Joint(members)  # type: ignore[arg-type]
                    for index, name in enumerate(names):
                        setattr(module, name, JoinedLinear(joint, index))


# How many rows a captured batch is padded to.
#
# Libraries choose a matrix kernel by the number of rows, and neighbouring numbers can differ by a fifth in time, up or
# down, in no order that a rule predicts. So it is measured, once per shape, with the layer's own weights.

STEPS = (1, 8, 16, 32, 64, 128)
"""Candidates are the next multiples of these."""
REPEATS = 7


def fastest_length(layers: Sequence[Any], batch: int, shared: int, branches: int) -> int:
    """The length to pad ``shared`` slots to, so that the products over batch x (length + branches) rows are fastest.

    Several layers take turns, as in a forward, so that no weight is found in a cache.
    """
    weights = [weight for layer in layers[:3] for weight in matrices(layer)]
    if weights[0].device.type != "cuda":
        return shared
    candidates = sorted({-(-shared // step) * step for step in STEPS})
    return min(candidates, key=lambda length: _time(weights, batch * (length + branches)))


def matrices(layer: Any) -> list[Tensor]:
    """The weights that a layer's input is multiplied with, joined ones once."""
    found: dict[int, Tensor] = {}
    for module in layer.modules():
        if isinstance(module, JoinedLinear):
            found[id(module.joint)] = module.joint.weight
        elif isinstance(module, nn.Linear):
            found[id(module)] = module.weight
    return list(found.values())


@torch.inference_mode()
def _time(weights: Iterable[Tensor], rows: int) -> float:
    """Median milliseconds of all products with random states of that many rows."""
    pairs = [
        (torch.randn(rows, weight.shape[1], device=weight.device, dtype=weight.dtype), weight) for weight in weights
    ]
    device = pairs[0][1].device
    replay, _ = capture(lambda: [linear(states, weight) for states, weight in pairs], device)
    samples = []
    for _ in range(REPEATS):
        watch = Stopwatch(device)
        replay()
        watch.stop()
        samples.append(watch.ms)
    return statistics.median(samples)
