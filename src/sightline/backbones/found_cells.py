"""Source cells found, not declared: which part of an image each token of any processor and tower comes from.

Ramps through the image processor say where every pixel value comes from (``ramps``), gradients through the tower, its
attention silenced, say which pixel values every token reads (``silenced``, ``supports``). A cell is the extent of both
together, and a token has to read all of it: one made of pieces that lie apart has no cell. Where convolutions do what
attention does elsewhere, they are silenced in their turn (``in_place``), and that is said. Nothing about an
architecture is known or needed: crops, padding, tiles, windows, pooling, pixel shuffle and separators come out of the
model itself.
"""

from __future__ import annotations

import io
import json
import math
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from sightline.backbones.isolated_tokens import by_products, in_place, silenced
from sightline.core.cache import cache_folder, remember
from sightline.errors import SightlineError
from sightline.geometry.cells import Cells

# Which place of the source image each pixel value of an image processor comes from, whatever the processor does.
#
# Ramps go through the processor in place of a picture: where a ramp has the level s j at source pixel j, the level
# that a pixel value shows tells its place. Eight bits hold 256 levels, so a long axis takes several ramps, each of
# which rises over a part of it and is flat before and behind,
#
# ramp_k(j) = low + clip(s j - k (high - low), 0, high - low), sum_k (ramp_k(j) - low) = s j.
#
# Resampling is linear, so the sum stays straight through it, kinks included: only the rounding of the ramps that are
# not flat there is left, half a level each. Levels keep away from 0 and 255 because bicubic filters overshoot at a
# kink.


class NoCellsError(SightlineError):
    """Image tokens come from no place in the image: a model that can be audited by answers and legibility alone."""


class MixedError(NoCellsError):
    """They read each other's places outside of attention."""


Prepare = Callable[[Image.Image], Mapping[str, Tensor]]
"""An image processor: a picture -> pixel values and whatever else the tower is told (grids, sizes, masks)."""
Floats = NDArray[np.float32]

LOW, HIGH = 16, 239
"""Levels of a ramp."""
SLOPE = 2
"""Levels per source pixel: half a level of rounding is a quarter of a pixel."""
GRAIN = 64
"""Places are rounded to this part of a source pixel: the channels of one pixel, normalised each its way, agree then."""
PADDED = 0.25
"""A pixel value that tells black from white by less than this share of what others do is padding."""


@dataclass(frozen=True)
class Sources:
    """Where pixel values come from, in source pixels: pixel j reaches from j to j + 1. NaN: padding.

    One channel tells as much as three: the others are left out where the processor keeps channels apart.
    """

    values: NDArray[np.int64]
    """(P,) places of the values told about among all of them, flattened"""
    x: Floats
    """(P,)"""
    y: Floats
    """(P,)"""


def sources(size: tuple[int, int], prepare: Prepare, pixels: str) -> Sources:
    """Where the pixel values of an image of this (width, height) come from."""
    width, height = size
    black, white, red = (_values(prepare, size, np.array(colour), pixels) for colour in (0, 255, (255, 0, 0)))
    if not black.shape == white.shape == red.shape:
        raise SightlineError(
            "this image processor makes different shapes of pictures of one size: it looks at their content, so what "
            "is found for one picture does not hold for another"
        )
    shown = np.abs(white - black)
    padding = shown < PADDED * shown.max()
    values = np.flatnonzero(padding | (red != black))
    black, white = black[values], white[values]
    white[padding[values]] = np.nan
    scale = 255 / (white - black)

    def place(ramps: Iterator[NDArray[np.uint8]]) -> Floats:
        climbed = np.zeros_like(black)
        for ramp in ramps:
            climbed += (_values(prepare, size, ramp[..., None], pixels)[values] - black) * scale - LOW
        rounded = (np.round(climbed / SLOPE * GRAIN) / GRAIN + 0.5).astype(np.float32)
        return rounded

    return Sources(values, place(_ramps(width)), place(ramp[:, None] for ramp in _ramps(height)))


def picture_scale(size: tuple[int, int], prepare: Prepare, pixels: str) -> float | None:
    """Input pixels per source pixel along an edge of the pictures (..., H, W) that a processor makes, at most 1.

    One ramp over each axis tells: over half a picture its level rises by as much of the image as that half shows. None
    where it does not rise evenly, because neighbours there are none in the image (a row of patches).
    """
    width, height = size
    shape = prepare(Image.new("RGB", size))[pixels].shape
    rises = [np.linspace(LOW, HIGH, length).round()[:, None] for length in (width, height)]
    black, white, *ramps = (
        _values(prepare, size, colours, pixels) for colours in (np.array(0), np.array(255), rises[0], rises[1][:, None])
    )
    if any(len(each) != math.prod(shape) for each in (black, white, *ramps)):
        return None
    shown = np.abs(white - black)
    white[shown < PADDED * shown.max()] = np.nan
    steps = []
    for axis, length, ramp in zip((-1, -2), size, ramps, strict=True):
        places = ((ramp - black) / (white - black) * 255 - LOW) / (HIGH - LOW) * length
        lines = np.moveaxis(places.reshape(shape), axis, -1)
        half = max(
            1, int((~np.isnan(lines)).reshape(-1, lines.shape[-1]).any(axis=0).sum()) // 2
        )  # of what is no padding
        risen = (lines[..., half:] - lines[..., :-half]) / half
        if np.isnan(risen).all():
            return None
        low, step, high = np.nanpercentile(risen, (5, 50, 95))
        if step <= 0 or high - low > 0.1 * step + 2 * length / (HIGH - LOW) / half:  # two levels of rounding
            return None
        steps.append(float(step))
    return min(1.0, 1 / math.sqrt(math.prod(steps)))


def _ramps(length: int) -> Iterator[NDArray[np.uint8]]:
    """(length,) each; see the top of this file."""
    levels = SLOPE * np.arange(length)
    for start in range(0, int(levels[-1]) + 1, HIGH - LOW):
        yield (LOW + np.clip(levels - start, 0, HIGH - LOW)).astype(np.uint8)


def _values(prepare: Prepare, size: tuple[int, int], colours: NDArray[Any], pixels: str) -> Floats:
    """(all,) pixel values of a picture whose (H, W, 3) bytes ``colours`` can be spread over."""
    width, height = size
    picture = np.broadcast_to(colours, (height, width, 3)).astype(np.uint8)
    values: Floats = prepare(Image.fromarray(picture))[pixels].float().flatten().cpu().numpy()
    return values


# Which pixel values each token depends on, by a handful of backward passes for all tokens together.
#
# One pass gives the gradient of sum_i r.t_i, r a random direction, another that of sum_i 2^(d_i) r.t_i, where d_i is a
# digit of token i's number. Powers of two are exact in floating point: at a pixel value that feeds token i alone the
# second is 2^(d_i) times the first, to the bit. As many passes as numbers have digits tell which token it feeds.
#
# Any other ratio means that several tokens share the pixel value (shrunken feature maps, overlapping convolutions).
# Tokens are then dealt into smaller hands, every 7th together, then every 21st and so on, until no two of a hand meet.

Indices = NDArray[np.int64]

DEALT = (7, 3, 2, 5)
"""Into how many smaller hands one is dealt that has tokens which share pixel values, then each of these; then 2."""
MOST_SHARED = 64
"""A pixel value that feeds more tokens than this says nothing about where they come from."""
TRIED = 5
"""Tokens whose pixel values are counted one by one to know beforehand how many tokens share one."""
SAME = 1e-3
"""How far from a power of two a ratio may be: noise of a device that adds up in another order each time."""


def supports(features: Tensor, pixels: Tensor, values: Indices) -> tuple[Indices, Indices]:
    """Pairs (token, pixel value) of all dependencies, each once, sorted by token.

    ``features`` are (M, D), computed from the leaf ``pixels``. Values are looked at and counted as in ``values`` (P,),
    which names them by their place in the flattened leaf.
    """
    token, value, _ = slopes(features, [pixels], values)
    return token, value


def slopes(features: Tensor, read: Sequence[Tensor], values: Indices) -> tuple[Indices, Indices, Floats]:
    """Those pairs, and the gradient of r.t_i at each; what is ``read`` may be several tensors, one behind the other."""
    nothing = np.zeros(0, dtype=np.int64)
    if not features.requires_grad:
        return nothing, nothing, np.zeros(0, dtype=np.float32)
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(features.shape[-1], generator=generator).to(features.device)
    projected = features.float() @ direction
    # Half precision has few exponents: 2^31 would overflow where 2^3 does not.
    base = 4 if torch.float16 in (features.dtype, read[0].dtype) else 32
    looked_at = torch.from_numpy(values).to(read[0].device)

    def gradient(weights: Tensor) -> Tensor:
        """(P,) of the tokens' projections, each times its weight."""
        found = torch.autograd.grad(
            projected, list(read), weights, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        return torch.cat([each.flatten() for each in found])[looked_at].float()

    tokens = torch.arange(len(features), device=features.device)
    hands, pairs, depth = [tokens], [], 0
    while hands:
        shared = []
        for hand in hands:
            found = _owners(hand, gradient, len(features), base)
            if found is None:
                shared.append(hand)
            else:
                pairs.append(found)
        if depth == 0 and shared:
            _refuse_mixed(gradient, tokens)
        ways = DEALT[depth] if depth < len(DEALT) else 2
        hands = [hand[first::ways] for hand in shared for first in range(min(ways, len(hand)))]
        depth += 1
    token, value, slope = (torch.cat(part).cpu().numpy() for part in zip(*pairs, strict=True))
    order = np.argsort(token, kind="stable")
    return token[order], value[order], slope[order]


def _owners(
    hand: Tensor, gradient: Callable[[Tensor], Tensor], count: int, base: int
) -> tuple[Tensor, Tensor, Tensor] | None:
    """(token, value, slope) of every value that feeds a token of the hand; None if two tokens of it share one."""
    number = torch.arange(len(hand), device=hand.device)

    def weighted(weights: Tensor) -> Tensor:
        spread = torch.zeros(count, device=hand.device)
        spread[hand] = weights
        return gradient(spread)

    plain = weighted(torch.ones(len(hand), device=hand.device))
    owner, place = torch.zeros(len(plain), dtype=torch.long, device=plain.device), 1
    while place < len(hand):
        scaled = weighted(torch.exp2((number // place % base).float()))
        ratio = scaled / plain
        digit = torch.log2(ratio).round()
        fits = (ratio * torch.exp2(-digit) - 1).abs() < SAME  # false for NaN
        if not (fits | ((plain == 0) & (scaled == 0))).all():
            return None
        owner += torch.where(fits, digit, 0.0).long() * place
        place *= base
    value = plain.nonzero()[:, 0]
    return hand[owner[value].to(hand.device)].to(value.device), value, plain[value]


def _refuse_mixed(gradient: Callable[[Tensor], Tensor], tokens: Tensor) -> None:
    """Tokens that share pixel values: whether so few share one that they can be told apart at all."""
    count = len(tokens)
    tried = torch.linspace(0, count - 1, min(TRIED, count)).long().to(tokens.device)
    fed = sorted(int(gradient((tokens == token).float()).count_nonzero()) for token in tried)
    everything = int(gradient(torch.ones(count, device=tokens.device)).count_nonzero())
    shared = fed[len(fed) // 2] * count / everything
    if shared > MOST_SHARED:
        raise MixedError(
            f"image tokens mix outside of attention: a pixel feeds about {shared:.0f} of {count} tokens, so they "
            "come from no place of their own and have no cells"
        )


Features = Callable[[Mapping[str, Tensor]], Tensor]
"""What the image processor made -> (M, D) features in the order of the sequence, differentiable."""
FILTER = 2
"""How far a bicubic filter reaches to either side, in samples or in source pixels, whichever are larger."""
LEAST_FILLED, PARTS = 0.9, 8
"""A cell is read throughout: of so many parts either way, fewer where there are few samples, at least this share."""
METHOD = 3
"""Counts changes of what is found: cells that were remembered under another number are found anew."""


@dataclass(frozen=True)
class FoundCells:
    """Where the M slots of an image come from."""

    cells: Cells
    """(M, 4) in fractions of the original image, inside it. NaN: the slot has no source (a newline embedding).

    Empty, at the nearest corner of the sourced cell before it or at (0, 0): the slot sees padding alone.
    """
    sourced: NDArray[np.bool_]
    """(M,) whether the slot depends on any pixel value, padding included."""
    tiles: NDArray[np.int64]
    """(M,) which of the pictures that the processor cut the image into the slot reads first, counted from 0; -1: none.

    0 for all where the processor hands over a row of patches.
    """
    seconds: float
    """What finding them took; remembered cells say what it took then."""
    reads_beyond: bool = False
    """Whether they are those of tokens' own places, and convolutions of the tower read far beyond these."""

    def __post_init__(self) -> None:
        if self.cells.shape != (len(self.sourced), 4) or len(self.tiles) != len(self.sourced):
            raise ValueError("not as many cells as slots")


def find_cells(
    size: tuple[int, int],
    prepare: Prepare,
    features: Features,
    tower: nn.Module,
    pixels: str = "pixel_values",
    *,
    beyond: bool = False,
) -> FoundCells:
    """Cells of an image of this (width, height).

    ``tower`` holds every module whose attention is to be silenced. Where tokens share pixels with fractional weights
    (a feature map shrunken by interpolation), a cell is the extent of all that a token reads: cells overlap then.
    Slots that read nothing of ``pixels`` may read another of the processor's pictures (``pixel_values_local``). Where
    convolutions mix tokens so that none has a cell of its own (``beyond``: known from an image of another size), cells
    are found as if they read their own places alone.
    """
    mixed: MixedError | None = None
    try:
        found = None if beyond else _cells_by(size, prepare, features, tower, pixels)
    except MixedError as error:
        found, mixed = None, error
    if found is None:
        try:
            with with_gradients(), in_place(tower):
                found = replace(_cells_by(size, prepare, features, tower, pixels), reads_beyond=True)
        except NoCellsError as error:
            raise mixed or error from None
    if found.sourced.all():
        return found
    for other in prepare(Image.new("RGB", size)):
        if "pixel_values" in other and other != pixels:
            more = _cells_by(size, prepare, features, tower, other)
            new = more.sourced & ~found.sourced
            found = FoundCells(
                np.where(new[:, None], more.cells, found.cells),
                found.sourced | new,
                np.where(new, more.tiles + found.tiles.max() + 1, found.tiles),
                found.seconds + more.seconds,
                found.reads_beyond,
            )
    return found


def _cells_by(size: tuple[int, int], prepare: Prepare, features: Features, tower: nn.Module, pixels: str) -> FoundCells:
    """Cells by what slots read of one of the processor's tensors of pixel values."""
    started = time.perf_counter()
    width, height = size
    with with_gradients():
        places = sources(size, prepare, pixels)
        prepared = noise_inputs(size, prepare, tower, pixels)
        values = prepared[pixels]
        with silenced(tower), by_products(tower), kernels(values.dtype):
            tokens = features(prepared)
            token, value = supports(tokens, values, places.values)
    count = len(tokens)
    _refuse_unplaced(token, value, count)
    cells = _extents(token, value, count, places, size) / np.array([width, height] * 2)
    sourced, tiles = np.zeros(count, dtype=np.bool_), np.full(count, -1)
    sourced[token] = True
    picture = math.prod(values.shape[-3:]) if values.dim() > 3 else values.numel()
    tiles[token[::-1]] = places.values[value[::-1]] // picture  # backwards: what a token reads first is written last
    placed = _padding_placed(np.clip(cells, 0.0, 1.0), sourced)
    return FoundCells(placed, sourced, tiles, time.perf_counter() - started)


@contextmanager
def with_gradients() -> Iterator[None]:
    """Cells may be asked for in the middle of encoding; gradients need ordinary tensors."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def noise_inputs(size: tuple[int, int], prepare: Prepare, tower: nn.Module, pixels: str) -> dict[str, Tensor]:
    """What the processor makes of an image of noise, where the tower is; gradients lead to its pixel values."""
    width, height = size
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    weight = next(tower.parameters())
    prepared = {
        name: value.to(weight.device) if isinstance(value, Tensor) else value
        for name, value in prepare(Image.fromarray(noise)).items()
    }
    return {**prepared, pixels: prepared[pixels].to(weight.dtype).requires_grad_()}


@contextmanager
def kernels(dtype: torch.dtype) -> Iterator[None]:
    """Gradients that are the same each time, on a GPU, and that do not take ten times what they need, on a CPU.

    There oneDNN's gradient of a patch embedding is that slow; in half precision nothing but oneDNN multiplies quickly.
    """
    before = torch.backends.mkldnn.enabled
    torch.backends.mkldnn.enabled = before and dtype != torch.float32  # type: ignore[assignment]
    try:
        with torch.backends.cudnn.flags(deterministic=True, benchmark=False):
            yield
    finally:
        torch.backends.mkldnn.enabled = before


def _refuse_unplaced(token: Indices, value: Indices, count: int) -> None:
    """Tokens that read no pixel, or all of them the same ones."""
    if not len(token):
        raise NoCellsError(
            f"none of this model's {count} image tokens comes from a place in the image: a resampler, Q-Former or "
            "codebook stands between them and the pixels, so they have no cells"
        )
    marks = np.random.default_rng(0).integers(0, 2**63, int(value.max()) + 1, dtype=np.uint64)
    first = np.flatnonzero(np.diff(token, prepend=-1))
    sums = np.add.reduceat(marks[value], first)
    _, alike = np.unique(sums, return_counts=True)
    if alike[alike > 1].sum() * 2 > len(sums) > 1:
        raise MixedError(
            f"image tokens mix outside of attention: {alike.max()} of {count} read exactly the same pixels, so they "
            "come from no place of their own and have no cells"
        )


def _extents(token: Indices, value: Indices, count: int, places: Sources, size: tuple[int, int]) -> Cells:
    """(count, 4) in source pixels; NaN for tokens that read no pixel of the source."""
    cells = np.full((count, 4), np.nan)
    inside = ~np.isnan(places.x[value])
    token, value = token[inside], value[inside]
    if not len(token):
        return cells
    first = np.flatnonzero(np.diff(token, prepend=-1))
    torn = []
    for place, read in zip(token[first], np.split(value, first[1:]), strict=True):
        x, y = places.x[read], places.y[read]
        cells[place, 0::2] = edges(x, size[0])
        cells[place, 1::2] = edges(y, size[1])
        share = filled(x, y)
        if share < LEAST_FILLED:
            torn.append((share, place))
    if torn:
        share, place = min(torn)
        raise NoCellsError(
            f"image tokens read pieces of the image that lie apart: {len(torn)} of {len(first)} see less than "
            f"{LEAST_FILLED:.0%} of the box around what they see (token {place}: {share:.0%}), so they have no cells"
        )
    return cells


def filled(x: NDArray[np.floating[Any]], y: NDArray[np.floating[Any]]) -> float:
    """The share of the box around samples with these centres that they fill.

    The box is cut into parts of two samples' steps or more, up to ``PARTS`` either way; those count that hold a sample.
    """
    (across, column), (down, row) = (_parts(centres) for centres in (x, y))
    return len(np.unique(row * across + column)) / (across * down)


def _parts(centres: NDArray[np.floating[Any]]) -> tuple[int, Indices]:
    """Into how many equal parts the way from the first centre to the last is cut, and the part that each lies in."""
    levels = np.unique(centres)
    way = float(levels[-1] - levels[0])
    count = 1 if len(levels) < 2 else int(np.clip(way / np.median(np.diff(levels)) // 2, 1, PARTS))
    part = (centres - levels[0]) * (count / way if way else 0.0)
    return count, np.minimum(part.astype(np.int64), count - 1)


def edges(centres: NDArray[np.floating[Any]], length: int) -> tuple[float, float]:
    """Where the interval begins and ends that is filled evenly by samples with these centres, on an axis of 0..length.

    Sorted centres rise from one edge to the other along a straight line over their rank, from 0 to 1: the line of least
    squares through the distinct ones. Close to the border of the image a resampling filter is cut off, which pushes
    samples inwards: they do not count if two others are left. A single centre fills one source pixel.

    Centres that leave a gap lie on no such line. They reach from the first to the last, half a step beyond each.
    """
    levels, counts = np.unique(centres.astype(np.float64), return_counts=True)
    if len(levels) == 1:
        return float(levels[0]) - 0.5, float(levels[0]) + 0.5
    ends = np.cumsum(counts)
    ranks = (ends - counts / 2) / ends[-1]
    step = float(np.median(np.diff(levels)))
    reach = FILTER * max(1.0, step)
    whole = (levels > reach) & (levels < length - reach)
    whole = whole if whole.sum() >= 2 else np.ones_like(whole)
    aside = ranks[whole] - ranks[whole].mean()
    slope = aside @ levels[whole] / (aside @ aside)
    start = levels[whole].mean() - slope * ranks[whole].mean()
    if np.abs(start + slope * ranks - levels).max() > max(1.0, step):
        return float(levels[0]) - step / 2, float(levels[-1]) + step / 2
    return float(start), float(start + slope)


def _padding_placed(cells: Cells, sourced: NDArray[np.bool_]) -> Cells:
    """Slots that see padding alone get an empty cell beside the cell before them: to its right, or below its row."""
    placed = cells.copy()
    corner = np.zeros(2)
    for slot in np.flatnonzero(sourced):
        if np.isnan(placed[slot, 0]):
            placed[slot] = np.tile(corner, 2)
        else:
            corner = placed[slot, 2:]
    return placed


Found = TypeVar("Found")


def cached_cells(
    parts: Mapping[str, Any], size: tuple[int, int], find: Callable[[], FoundCells], cache: Path | None = None
) -> FoundCells:
    """Cells of an image of this (width, height), found once and remembered on disk."""
    return cached("cells", FoundCells, parts, size, find, cache)


def cached(
    what: str,
    kind: type[Found],
    parts: Mapping[str, Any],
    size: tuple[int, int],
    find: Callable[[], Found],
    cache: Path | None = None,
) -> Found:
    """What was found of an image of this (width, height), a dataclass of arrays, once and remembered on disk.

    ``parts`` say what else it depends on, as JSON can say it: the model's and the image processor's configuration
    and the image options. The version of transformers is added. A file that cannot be read counts as never written.
    """
    import transformers

    key = {"parts": parts, "size": size, "transformers": transformers.__version__, "method": METHOD}
    digest = sha256(json.dumps(key, sort_keys=True, default=str).encode()).hexdigest()
    file = (cache or cache_folder()) / what / f"{digest}.npz"
    found = _read(kind, file)
    if found is None:
        found = find()
        packed = io.BytesIO()
        np.savez_compressed(packed, **vars(found))
        remember(file, packed.getvalue())
    return found


def _read(kind: type[Found], file: Path) -> Found | None:
    """None where it was never written, or is not whole."""
    try:
        with np.load(file, allow_pickle=False) as stored:
            found = {each.name: stored[each.name] for each in fields(cast(Any, kind))}
            return kind(**{name: value if value.shape else value.item() for name, value in found.items()})
    except (OSError, EOFError, ValueError, KeyError, TypeError, BadZipFile, zlib.error):
        return None
