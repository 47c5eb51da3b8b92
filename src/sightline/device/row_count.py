"""How many rows a captured batch is padded to.

Libraries choose a matrix kernel by the number of rows, and neighbouring numbers can differ by a fifth in time, up or
down, in no order that a rule predicts. So it is measured, once per shape, with the layer's own weights.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from sightline.device.graphs import capture
from sightline.device.joining import JoinedLinear
from sightline.device.stopwatch import Stopwatch

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
