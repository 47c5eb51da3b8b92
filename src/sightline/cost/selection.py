"""Inputs for timing selectors: one image-question pair of a given size, with every signal a method may ask for.

Sizes are LLaVA-1.5-7B's: 4096 channels in the language model, 1024 in the vision tower, 768 in CLIP's joint space, 588
values in a patch of pixels.
Features are a few dozen clusters with noise around a common mean, as real ones are: how long a lazy loop takes depends
on how alike tokens are.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sightline.core.selection import LayerState, Method, TokenView, TwoStages, of_image
from sightline.cost.spread import Spread
from sightline.errors import SightlineError
from sightline.selectors import SELECTORS

WIDTH, VISION, JOINT, PATCH = 4096, 1024, 768, 588
VISION_HEADS, HEADS = 16, 32
WORDS, BEFORE, BEHIND = 6, 35, 30
CLUSTERS, DEPTH = 40, 32
BOXES = ((0.1, 0.2, 0.3, 0.27), (0.55, 0.6, 0.8, 0.7))


class Inputs:
    """Draws tensors from one seeded generator on the CPU and moves them to the device."""

    def __init__(self, n: int, device: torch.device, seed: int) -> None:
        self.n, self.device = n, device
        self._source = torch.Generator().manual_seed(seed)
        rows = next(r for r in range(math.isqrt(n), 0, -1) if n % r == 0)
        self.layout = ((rows, n // rows),)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._source)

    def features(self, count: int, width: int) -> Tensor:
        """(count, width) clustered vectors of uneven length."""
        centres = self.normal(CLUSTERS, width)
        member = torch.randint(CLUSTERS, (count,), generator=self._source)
        length = 0.5 + torch.rand(count, 1, generator=self._source)
        return (0.7 * self.normal(width) + centres[member] + 0.6 * self.normal(count, width)) * length

    def weights(self, *shape: int) -> Tensor:
        """Attention: softmax over the last dimension, a class token cut off."""
        return (1.5 * self.normal(*shape[:-1], shape[-1] + 1)).softmax(dim=-1)[..., 1:]

    def vision(self, name: str) -> Tensor:
        """A ``vision.*``, ``clip.*`` or ``image.*`` signal; docs/signals.md has the shapes."""
        n, head = self.n, VISION // VISION_HEADS
        kind = name.partition("@")[0]
        if kind in ("vision.hidden", "vision.hidden_mean"):
            return self.features(n, VISION)
        if kind == "vision.cls":
            return self.normal(VISION)
        if kind == "vision.cls_attention":
            return self.weights(VISION_HEADS, n)
        if kind == "vision.received":
            return self.weights(n)
        if kind in ("vision.query", "vision.key", "vision.value"):
            return self.features(n, VISION).view(n, VISION_HEADS, head).transpose(0, 1).contiguous()
        if kind in ("vision.cls_key", "vision.cls_query", "vision.cls_value"):
            return self.normal(VISION_HEADS, head)
        if kind == "projector.sensitivity":
            return 1.0 + torch.rand(n, generator=self._source)
        if kind == "image.pixels":
            return self.features(n, PATCH)
        return self.features(n, JOINT) if kind == "clip.image" else self.normal(1, JOINT)

    def language(self, name: str) -> Tensor:
        """An ``lm.*`` signal for a prompt with the image in its middle."""
        length, head = BEFORE + self.n + BEHIND, WIDTH // HEADS
        if name in ("lm.attention", "lm.next_attention"):
            future = torch.ones(length, length, dtype=torch.bool).triu(1)
            return self.normal(HEADS, length, length).masked_fill_(future, -torch.inf).softmax(dim=-1)
        if name in ("lm.attention_last", "lm.next_attention_last"):
            return self.normal(HEADS, length).softmax(dim=-1)
        if name == "lm.parts":
            return self.features(4 * length, WIDTH).view(2, 2, length, WIDTH)
        if name in ("lm.query", "lm.key", "lm.value", "lm.bare_query", "lm.bare_key", "lm.next_query", "lm.next_key"):
            return self.normal(HEADS, length, head)
        if name == "lm.rotary":
            angle = torch.arange(length)[:, None] * 1e4 ** -(torch.arange(0, head, 2) / head).repeat(2)
            return torch.stack([angle.cos(), angle.sin()])
        if name == "lm.scout":
            return self.normal(HEADS, length + 1)
        return self.vision(name) if name.startswith("vision.") else self.features(length, WIDTH)

    def view(self, needs: frozenset[str]) -> TokenView:
        (rows, columns) = self.layout[0]
        y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        corner = torch.stack([x / columns, y / rows], dim=-1).double()
        opposite = torch.stack([(x + 1) / columns, (y + 1) / rows], dim=-1).double()
        return TokenView(
            tokens=self.features(self.n, WIDTH).to(self.device),
            cells=torch.cat([corner, opposite], dim=-1).view(-1, 4),
            layout=self.layout,
            query=self.features(WORDS, WIDTH).to(self.device),
            boxes=torch.tensor(BOXES, dtype=torch.float64),
            signals={name: self.vision(name).to(self.device) for name in sorted(needs)},
            key=f"probe:orig:{self.n}",
        )

    def state(self, needs: frozenset[str]) -> LayerState:
        return LayerState(
            layer=1,
            hidden=self.features(BEFORE + self.n + BEHIND, WIDTH).to(self.device),
            image=torch.arange(BEFORE, BEFORE + self.n),
            source=torch.arange(self.n),
            layout=self.layout,
            signals={
                name: (self.vision if name in of_image(needs) else self.language)(name).to(self.device)
                for name in sorted(needs)
            },
            key=f"probe:orig:{self.n}",
            budget=max(1, self.n // 4),
            layers=DEPTH,
        )


# How long a method takes to choose: milliseconds per image, growth with N, beside the official implementation.
#
# Only the choice is timed; signals are made beforehand (an audit bills them apart). Every sample is kept.

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
        if not can_be_timed(SELECTORS.get(name)):
            without = f" without {file}=FILE" if (file := SELECTORS.get(name).needs_file) else ""
            raise SightlineError(
                f"'{name}' chooses nothing{without}, so there is nothing to time; leave out --method {name}"
            )
    return names or [name for name, kind in SELECTORS.items() if can_be_timed(kind)]


def can_be_timed(kind: type[Method]) -> bool:
    return kind.role != "reference" and not kind.resizes and not kind.needs_file


def time_method(
    name: str, n: int, batch: int, device: torch.device, repeats: int, seconds: float = 10.0, seed: int = 0
) -> Timing:
    """``repeats`` samples of one method, fewer once ``seconds`` are spent, on one CPU thread or one GPU."""
    k = max(1, math.ceil(n * KEEP))
    choose = timed_call(name, n, k, batch, device, seed)
    with one_thread():
        samples = _samples(choose, device, repeats, seconds)
        same = None
        if device.type == "cuda":
            here = timed_call(name, n, k, 1, device, seed)()
            there = timed_call(name, n, k, 1, torch.device("cpu"), seed)()
            same = torch.equal(here.cpu().sort().values, there.sort().values)
    official = SELECTORS.get(name).official_ms if n == OFFICIAL_TOKENS else None
    return Timing(name, n, k, batch, device.type, tuple(sample / batch for sample in samples), official, same)


def timed_call(name: str, n: int, k: int, batch: int, device: torch.device, seed: int) -> Callable[[], Tensor]:
    """A call that chooses for the whole batch and returns the first image's anchors, wherever they lie."""
    selector: Any = SELECTORS.get(name)()
    needs: frozenset[str] = selector.needs
    inputs = [Inputs(n, device, seed + index) for index in range(min(batch, DISTINCT))]
    both = isinstance(selector, TwoStages)
    views = [each.view(of_image(needs)) for each in inputs] if both or not selector.inside else []
    everyone = [views[i % len(views)] for i in range(batch)] if views else []
    if selector.inside:
        states = [each.state(needs - of_image(needs) if both else needs) for each in inputs]

        def cut() -> Tensor:
            """Of a method in two stages both are timed, the cut on as many tokens as there were at the start."""
            if both:
                selector.select_many(everyone, k)
            fresh = (replace(states[i % len(states)], memory={}) for i in range(batch))
            return _first([selector.cut(state, k) for state in fresh])

        return cut
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
    return statistics.linear_regression(*zip(*points, strict=True)).slope


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
