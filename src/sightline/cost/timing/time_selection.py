"""How long a method takes to choose: milliseconds per image, growth with N, beside the official implementation.

Only the choice is timed; signals are made beforehand (an audit bills them apart). Every sample is kept.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from sightline.core.selection import Method
from sightline.cost.select_inputs import Inputs
from sightline.cost.spread import Spread
from sightline.errors import SightlineError
from sightline.selectors import SELECTORS

KEEP = 0.4
"""The budget of the published timings: 231 of 576."""
DISTINCT = 4
"""Different images in a batch; a larger batch repeats them."""
WARM_UP = 2
LONG_MS = 1000.0
"""A call this long needs no warm-up: what it sets up does not show."""
OFFICIAL_TOKENS = 576
"""The size at which ``official_ms`` of a method was measured."""


@dataclass(frozen=True)
class Timing:
    """One method at one size on one device."""

    method: str
    n: int
    k: int
    batch: int
    device: str
    samples: tuple[float, ...]
    """Milliseconds per image, one per repeat, in the order they were taken."""
    official_ms: float | None
    """The official implementation on one CPU thread; None at other sizes."""
    same_as_cpu: bool | None
    """Whether a GPU chose the tokens that the CPU chooses; None on the CPU itself."""

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> tuple[float, float]:
        """The 10th and 90th percentile (nearest rank)."""
        taken = Spread.of(self.samples)
        return taken.low, taken.high

    @property
    def speedup(self) -> float | None:
        """How many times faster than the official implementation."""
        return None if self.official_ms is None else self.official_ms / self.median

    def record(self) -> dict[str, Any]:
        low, high = self.spread
        return {**asdict(self), "median_ms": self.median, "p10_ms": low, "p90_ms": high, "speedup": self.speedup}


def timed_methods(wanted: Iterable[str] = ()) -> list[str]:
    """The methods to time: those named, or all that choose something."""
    names = list(wanted)
    for name in names:
        if not chooses(SELECTORS.get(name)):
            raise SightlineError(f"'{name}' chooses nothing, so there is nothing to time; leave it out of --methods")
    return names or [name for name, kind in SELECTORS.items() if chooses(kind)]


def chooses(kind: type[Method]) -> bool:
    return kind.role not in ("reference", "replay") and not kind.resizes


def time_method(
    name: str, n: int, batch: int, device: torch.device, repeats: int, seconds: float = 10.0, seed: int = 0
) -> Timing:
    """``repeats`` samples of one method, fewer once ``seconds`` are spent, on one CPU thread or one GPU."""
    k = max(1, math.ceil(n * KEEP))
    choose = chooser(name, n, k, batch, device, seed)
    with one_thread():
        samples = _samples(choose, device, repeats, seconds)
        same = None
        if device.type == "cuda":
            here = chooser(name, n, k, 1, device, seed)()
            there = chooser(name, n, k, 1, torch.device("cpu"), seed)()
            same = torch.equal(here.cpu().sort().values, there.sort().values)
    official = SELECTORS.get(name).official_ms if n == OFFICIAL_TOKENS else None
    return Timing(name, n, k, batch, device.type, tuple(sample / batch for sample in samples), official, same)


def chooser(name: str, n: int, k: int, batch: int, device: torch.device, seed: int) -> Callable[[], Tensor]:
    """A call that chooses for the whole batch and returns the first image's anchors, wherever they lie."""
    selector: Any = SELECTORS.get(name)()
    needs: frozenset[str] = selector.needs
    inputs = [Inputs(n, device, seed + index) for index in range(min(batch, DISTINCT))]
    if selector.inside:
        states = [each.state(needs) for each in inputs]
        return lambda: _first([selector.cut(states[i % len(states)], k) for i in range(batch)])
    views = [each.view(needs) for each in inputs]
    everyone = [views[i % len(views)] for i in range(batch)]
    return lambda: _first(selector.select_many(everyone, k))


def _first(selections: Sequence[Any]) -> Tensor:
    anchors: Tensor = selections[0].anchors
    return anchors


def _samples(work: Callable[[], object], device: torch.device, repeats: int, seconds: float) -> list[float]:
    started = time.perf_counter()
    for _ in range(WARM_UP):
        first = _sample(work, device)
        if first > LONG_MS and device.type == "cpu":
            samples = [first]
            break
    else:
        samples = [_sample(work, device)]
    while len(samples) < repeats and time.perf_counter() - started < seconds:
        samples.append(_sample(work, device))
    return samples


def _sample(work: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    started = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return (time.perf_counter() - started) * 1e3


@contextmanager
def one_thread() -> Iterator[None]:
    """The official timings used one CPU thread; so do ours."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_num_threads(before)


def growth(timings: Sequence[Timing]) -> float | None:
    """The exponent p of time ~ N^p: least squares on logarithms over the sizes of one method; None for one size."""
    points = [(math.log(timing.n), math.log(timing.median)) for timing in timings]
    if len({x for x, _ in points}) < 2:
        return None
    mean_x, mean_y = (statistics.fmean(axis) for axis in zip(*points, strict=True))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return slope / sum((x - mean_x) ** 2 for x, _ in points)


def devices(wanted: str) -> list[torch.device]:
    """``auto`` is the CPU and, where there is one, the GPU."""
    if wanted == "auto":
        return [torch.device(name) for name in ("cpu", *(["cuda"] if torch.cuda.is_available() else []))]
    try:
        device = torch.device(wanted)
    except RuntimeError:
        raise SightlineError(f"unknown device '{wanted}'; use auto, cpu or cuda") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SightlineError("there is no GPU here; use --device cpu")
    return [device]
