"""Rows of the vision tower found, not declared: which of them each token of any model is made from, block by block.

With attention silenced (``silenced``) the gradient of a token with respect to what goes into a block is zero at every
row but those that it is made from, as that with respect to pixel values is at every pixel but those of its cell
(``found_cells``). Blocks are shown the same state in every row, so that gradients differ by what is behind the tower
alone: where those at a token's rows are multiples of one another, it is a mixture of them, and the multiples are its
weights (pooling, interpolation); else it is made of all of them alike (a merger that lays them side by side).

What is found is checked in the image: the pixels that a token reads are those that its rows read together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor, nn

from sightline.backbones.found_cells import (
    Features,
    Floats,
    Indices,
    Prepare,
    Sources,
    kernels,
    noise_inputs,
    slopes,
    sources,
    supports,
    with_gradients,
)
from sightline.backbones.isolated_tokens import by_products, first_tensor, silenced, states_of, with_states
from sightline.backbones.signals import record_attention
from sightline.errors import SightlineError

CHANNELS = 16
"""Channels of a row at which gradients are looked at."""
MULTIPLE = {torch.float32: 1e-3}
"""How far gradients of rows that are mixed may be from multiples of one another, as a share; halves: 0.05."""
SAME_PIXELS = 0.99
"""Of what tokens and their rows read, at least so much must be the same."""
ALONE = {torch.float32: 1e-5}
"""How far tokens projected by themselves may be from those among all, as a share of the largest; halves: 0.02."""
WHOLE = 0.98
"""A picture that shows so much of what is seen of the image along both axes shows the whole of it."""


@dataclass(frozen=True)
class FoundRows:
    """Rows of the tower, all tiles one behind the other, that each of the M slots of an image is made from."""

    rows: NDArray[np.int64]
    """(M, m), those of a slot with fewer filled up with rows of no weight."""
    weights: Floats
    """(M, m) how much of a slot comes from each; they add up to 1, to 0 for a slot that no row is behind."""
    alike: NDArray[np.bool_]
    """(depth + 1,) which hidden states have these very rows in this order."""
    attends: NDArray[np.bool_]
    """(depth,) of which blocks queries, keys and values can be read, a row of them for every row of the states."""
    leads: int
    """Rows in every sequence that come from no pixel: class token and registers."""
    class_row: int
    """Where in every sequence the only such row stands; -1: there is none, or several."""
    class_at: int
    """Which row is that of the first picture that shows the whole image; -1: none does."""
    seconds: float

    def __post_init__(self) -> None:
        if self.rows.shape != self.weights.shape or len(self.alike) != len(self.attends) + 1:
            raise ValueError("not as many weights as rows")

    def of(self, sourced: NDArray[np.bool_]) -> tuple[Tensor, Tensor | None]:
        """(N, m) rows and weights of the slots that come from the image; no weights where all are alike."""
        rows, weights = self.rows[sourced], self.weights[sourced]
        alike = bool((weights == weights[:1, :1]).all())
        return torch.from_numpy(rows), None if alike else torch.from_numpy(weights)


def find_rows(
    size: tuple[int, int],
    prepare: Prepare,
    features: Features,
    tower: nn.Module,
    blocks: Sequence[nn.Module],
    pixels: str = "pixel_values",
) -> FoundRows:
    """Rows of an image of this (width, height), as ``find_cells`` finds its cells; ``blocks`` are the tower's."""
    started = time.perf_counter()
    if not len(blocks):
        raise SightlineError("it has no blocks that attend")
    with with_gradients():
        places = sources(size, prepare, pixels)
        prepared = noise_inputs(size, prepare, tower, pixels)
        values = prepared[pixels]
        with silenced(tower), by_products(tower), kernels(values.dtype):
            with _passing(blocks) as passed:
                tokens = features(prepared)
            if not passed[0]:
                raise SightlineError("its image features do not go through the blocks of its vision tower")
            read = supports(tokens, values, places.values)
            states = torch.cat([each.flatten(0, -2) for each in passed[0]])
            placed = supports(states, values, places.values)
            even = states[len(states) // 2].detach()
            with _passing(blocks, lambda each: even.expand_as(each).clone().requires_grad_()) as passed:
                tokens = features(prepared)
            token, row, slope = _slopes_of_rows(tokens, passed[0])
            alike = [_same(each, passed[0], tokens, (token, row)) for each in passed]
        attends = _attending(blocks, lambda: features(prepared))
    count, rows = len(tokens), len(states)
    _refuse_elsewhere((token, row), placed, read, (count, rows, len(places.values)))
    lead, leads, class_row = _unsourced(placed[0], rows, passed[0])
    class_at = -1 if class_row < 0 else _whole(placed, places, rows // lead, lead) * lead + class_row
    laid, weights = _weighted(token, row, slope, count, MULTIPLE.get(values.dtype, 0.05))
    return FoundRows(
        laid,
        weights,
        np.array(alike),
        np.array(attends),
        leads,
        class_row,
        max(class_at, -1),
        time.perf_counter() - started,
    )


@dataclass(frozen=True)
class FoundPixels:
    """Which of the prepared image's values each of the M slots is made from."""

    values: NDArray[np.int64]
    """(M, P) places in the flattened values, ascending, so that those of all slots stand in one order; -1: none."""
    seconds: float


def find_pixels(
    size: tuple[int, int], prepare: Prepare, features: Features, tower: nn.Module, pixels: str = "pixel_values"
) -> FoundPixels:
    """All channels, padding included; refused where slots are made from parts of the image that are not alike."""
    started = time.perf_counter()
    with with_gradients():
        prepared = noise_inputs(size, prepare, tower, pixels)
        with silenced(tower), by_products(tower), kernels(prepared[pixels].dtype):
            tokens = features(prepared)
            token, value = supports(tokens, prepared[pixels], np.arange(prepared[pixels].numel()))
    counts = np.bincount(token, minlength=len(tokens))
    sourced = counts > 0
    if len(set(counts[sourced])) != 1:
        raise SightlineError(
            f"its tokens are made from {counts[sourced].min()} to {counts.max()} values of the prepared image, which "
            "cannot be compared"
        )
    found = np.full((len(tokens), int(counts.max())), -1)
    found[sourced] = value.reshape(int(sourced.sum()), -1)
    return FoundPixels(found, time.perf_counter() - started)


@dataclass(frozen=True)
class FoundProjector:
    """What makes tokens of states of the tower, each token of its own states alone."""

    module: nn.Module
    parts: tuple[tuple[int, int], ...]
    """Of what it reads, side by side: which hidden state, and of which of a token's rows."""


def find_projector(
    size: tuple[int, int],
    prepare: Prepare,
    features: Features,
    tower: nn.Module,
    blocks: Sequence[nn.Module],
    rows: FoundRows,
    pixels: str = "pixel_values",
) -> FoundProjector:
    """The outermost part that gives the features, if it gives a few of them as it gives all; ``rows`` of that size.

    What it reads must be states of the tower, row by row.
    """
    heard: dict[nn.Module, list[tuple[Tensor, Tensor]]] = {}

    def hear(module: nn.Module, arguments: tuple[Any, ...], output: Any) -> None:
        if arguments and isinstance(arguments[0], Tensor) and isinstance(output, Tensor) and output.dim() > 1:
            heard.setdefault(module, []).append((arguments[0].flatten(0, -2), output.flatten(0, -2)))

    with torch.no_grad(), ExitStack() as stack:
        for each in tower.modules():
            stack.callback(each.register_forward_hook(hear).remove)
        passed = stack.enter_context(_passing(blocks))
        tokens = features(noise_inputs(size, prepare, tower, pixels))
        stack.close()
        module, read = _giving(tokens, heard, tower)
        some = torch.arange(len(tokens) - 1, -1, -2)
        apart = (module(read[some]) - tokens[some]).abs().max() / tokens.abs().max()
    if apart > ALONE.get(tokens.dtype, 0.02):
        raise SightlineError("its projector looks at several tokens at once")
    sourced = torch.from_numpy(rows.weights.sum(axis=1) > 0)
    places = torch.from_numpy(rows.rows)[sourced].unbind(dim=1)
    states = [torch.cat([call.flatten(0, -2) for call in layer]) for layer in passed]
    parts = []
    for part in torch.split(read[sourced], states[-1].shape[-1], dim=1):
        known = [
            (i, m) for i, state in enumerate(states) for m, own in enumerate(places) if torch.equal(state[own], part)
        ]
        if not known:
            raise SightlineError("its projector reads something else than states of the tower")
        parts.append(known[-1])
    return FoundProjector(module, tuple(parts))


def _giving(
    tokens: Tensor, heard: Mapping[nn.Module, Sequence[tuple[Tensor, Tensor]]], tower: nn.Module
) -> tuple[nn.Module, Tensor]:
    """The first module that was handed as many rows as there are tokens and gave these, and what it was handed."""
    for module in tower.modules():
        if module in heard:
            read, made = (torch.cat(each) for each in zip(*heard[module], strict=True))
            if len(read) == len(tokens) and torch.equal(made, tokens):
                return module, read
    raise SightlineError("no part of it makes tokens of as many states")


# What goes into every block, call by call, and what comes out of the last.


@contextmanager
def _passing(
    blocks: Sequence[nn.Module], first: Callable[[Tensor], Tensor] | None = None
) -> Iterator[list[list[Tensor]]]:
    """Per hidden state 0..depth the tensors (..., S, C) that pass while it is open; ``first`` replaces state 0."""
    passed: list[list[Tensor]] = [[] for _ in range(len(blocks) + 1)]

    def entering(index: int) -> Any:
        def take(block: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
            states = states_of(arguments, named)
            assert states is not None
            if index == 0 and first is not None:
                states = first(states)
                arguments, named = with_states(states, arguments, named)
            passed[index].append(states)
            return arguments, named

        return take

    def leaving(block: nn.Module, arguments: Any, output: Any) -> None:
        passed[-1].append(first_tensor(output))

    with ExitStack() as stack:
        for index, block in enumerate(blocks):
            stack.callback(block.register_forward_pre_hook(entering(index), with_kwargs=True).remove)
        stack.callback(blocks[-1].register_forward_hook(leaving).remove)
        yield passed


def _slopes_of_rows(tokens: Tensor, states: Sequence[Tensor]) -> tuple[Indices, Indices, Floats]:
    """(P,) token and row of every dependency, sorted, and (P, channels) gradients there."""
    width, rows = states[0].shape[-1], sum(each.numel() // each.shape[-1] for each in states)
    channels = np.unique(np.linspace(0, width - 1, CHANNELS).astype(np.int64))
    values = (np.arange(rows)[:, None] * width + channels).flatten()
    token, value, slope = slopes(tokens, states, values)
    pairs, place = np.unique(token * rows + value // len(channels), return_inverse=True)
    found = np.zeros((len(pairs), len(channels)), dtype=np.float32)
    found[place, value % len(channels)] = slope
    return pairs // rows, pairs % rows, found


def _same(states: Sequence[Tensor], first: Sequence[Tensor], tokens: Tensor, pairs: tuple[Indices, Indices]) -> bool:
    """Whether tokens are made from the same rows of these states as from those of the first block."""
    if len(states) == len(first) and all(one is other for one, other in zip(states, first, strict=True)):
        return True  # blocks in between were stepped over
    if not states or [each.shape[:-1] for each in states] != [each.shape[:-1] for each in first]:
        return False
    token, row, _ = _slopes_of_rows(tokens, states)
    return np.array_equal(token, pairs[0]) and np.array_equal(row, pairs[1])


def _attending(blocks: Sequence[nn.Module], run: Callable[[], Any]) -> list[bool]:
    """Of which blocks values are handed over whose rows are made of the rows of its input, each of its own.

    Every block has a leaf of its own, so that no graph outlives it.
    """
    entered: dict[int, Tensor] = {}
    handed: dict[int, list[Tensor]] = {}
    found: dict[int, bool] = {}

    def record(index: int, query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> None:
        handed.setdefault(index, []).append(value.transpose(1, 2).flatten(2).flatten(0, 1))

    def entering(index: int) -> Any:
        def take(block: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
            states = states_of(arguments, named)
            assert states is not None
            entered[index] = states.detach().requires_grad_()
            return with_states(entered[index], arguments, named)

        return take

    def leaving(index: int) -> Any:
        def look(block: nn.Module, arguments: Any, output: Any) -> None:
            leaf, parts = entered.pop(index), handed.pop(index, [])
            rows, width = leaf.numel() // leaf.shape[-1], leaf.shape[-1]
            same = sum(map(len, parts)) == rows
            if same:
                own, read = supports(torch.cat(parts), leaf, np.arange(rows) * width)
                same = np.array_equal(own, read) and len(own) == rows
            found[index] = found.get(index, True) and same

        return look

    with ExitStack() as stack:
        for index, block in enumerate(blocks):
            stack.callback(block.register_forward_pre_hook(entering(index), with_kwargs=True).remove)
            stack.callback(block.register_forward_hook(leaving(index)).remove)
        stack.enter_context(record_attention(blocks, record))
        run()
    return [found.get(index, False) for index in range(len(blocks))]


def _refuse_elsewhere(
    pairs: tuple[Indices, Indices], placed: tuple[Indices, Indices], read: tuple[Indices, Indices], sizes: Sequence[int]
) -> None:
    """Compares the pixel values that tokens ``read`` with those of their rows, which ``placed`` has."""
    count, rows, values = sizes

    def table(first: Indices, second: Indices, shape: tuple[int, int]) -> Any:
        return csr_array((np.ones(len(first), dtype=np.int32), (first, second)), shape=shape)

    through = table(*pairs, (count, rows)) @ table(*placed, (rows, values))
    direct = table(*read, (count, values))
    both = through.astype(bool).multiply(direct.astype(bool)).nnz
    share = both / max(1, through.nnz, direct.nnz)
    if share < SAME_PIXELS:
        raise SightlineError(
            "what its tokens read of an image does not all go through the blocks of its vision tower: rows of those "
            f"account for {share:.0%} of it"
        )


def _unsourced(sourced: Indices, rows: int, states: Sequence[Tensor]) -> tuple[int, int, int]:
    """Length of a sequence, how many rows of each come from no pixel, and where the only one stands or -1."""
    lengths = {int(np.prod(each.shape[1:-1])) if each.dim() > 2 else each.shape[0] for each in states}
    length = lengths.pop() if len(lengths) == 1 else rows
    places = np.setdiff1d(np.arange(rows), sourced) % length
    positions = np.unique(places)
    if len(places) != len(positions) * (rows // length):  # not the same in every sequence: padding
        return length, 0, -1
    return length, len(positions), int(positions[0]) if len(positions) == 1 else -1


def _whole(placed: tuple[Indices, Indices], places: Sources, sequences: int, length: int) -> int:
    """The first sequence whose rows see the image from edge to edge; -1: none does."""
    row, value = placed
    x, y = places.x[value], places.y[value]
    seen = ~np.isnan(x)
    row, x, y = row[seen] // length, x[seen], y[seen]
    wide, high = (axis.max() - axis.min() for axis in (x, y))
    for sequence in range(sequences):
        mine = row == sequence
        if mine.any() and np.ptp(x[mine]) >= WHOLE * wide and np.ptp(y[mine]) >= WHOLE * high:
            return sequence
    return -1


def _weighted(
    token: Indices, row: Indices, slope: Floats, count: int, allowed: float
) -> tuple[NDArray[np.int64], Floats]:
    """(M, m) rows and weights; (P,) pairs are sorted by token, with (P, channels) gradients."""
    counts = np.bincount(token, minlength=count)
    first = np.concatenate([[0], np.cumsum(counts)])
    rows = np.zeros((count, int(counts.max(initial=1))), dtype=np.int64)
    weights = np.zeros(rows.shape, dtype=np.float32)
    for each in np.flatnonzero(counts):
        here = slice(first[each], first[each + 1])
        rows[each, : counts[each]] = row[here]
        weights[each, : counts[each]] = _parts(slope[here].astype(np.float64), allowed)
    return rows, weights


def _parts(gradients: NDArray[np.float64], allowed: float) -> NDArray[np.float64]:
    """(m,) parts of rows with these (m, channels) gradients: their multiples of the longest, or all alike."""
    longest = gradients[np.linalg.norm(gradients, axis=1).argmax()]
    square = longest @ longest
    times = gradients @ longest / square
    apart = np.abs(gradients - times[:, None] * longest).max() > allowed * np.sqrt(square)
    if apart or abs(times.sum()) < allowed or np.abs(times - 1).max() < allowed:
        return np.full(len(gradients), 1 / len(gradients))
    mixed: NDArray[np.float64] = times / times.sum()
    return mixed
