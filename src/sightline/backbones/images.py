"""How an image reaches the model: options that an architecture declares for itself, and the pixels made under them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import Field, asdict, dataclass, field, fields
from functools import lru_cache
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from sightline.device.work import on_device
from sightline.errors import SightlineError

Options = TypeVar("Options", bound="ImageOptions")


def option(default: Any, sentence: str, *, least: int | None = None, most: int | None = None) -> Any:
    """A field of an architecture's options: what it does, and its bounds."""
    return field(default=default, metadata={"sentence": sentence, "least": least, "most": most})


@dataclass(frozen=True)
class ImageOptions:
    """Base of every architecture's options, one field each, made by ``option``: a whole number or a switch.

    None, or False, leaves an image to the checkpoint's own processor.
    """

    artifact: ClassVar[Mapping[str, Any]] = {}
    """What the paper's published numbers were made with, where that is not the checkpoint's own way."""

    def __post_init__(self) -> None:
        for each in fields(self):
            problem = _problem(each, getattr(self, each.name))
            if problem:
                raise SightlineError(f"image option {each.name}={getattr(self, each.name)}: {problem}")
        for low in (each.name for each in fields(self) if each.name.startswith("min_")):
            high = low.replace("min_", "max_", 1)
            fewest, most = getattr(self, low), getattr(self, high, None)
            if fewest is not None and most is not None and fewest > most:
                raise SightlineError(f"{low} = {fewest} is above {high} = {most}")

    @classmethod
    def described(cls) -> dict[str, str]:
        """Every option with its sentence."""
        return {each.name: each.metadata["sentence"] for each in fields(cls)}

    @classmethod
    def of(cls: type[Options], given: Mapping[str, Any], owner: str) -> Options:
        """Options by name; one that this architecture, ``owner``, does not have is refused."""
        known = cls.described()
        for name in given:
            if name not in known:
                raise SightlineError(f"{owner} has no image option '{name}'; it has {', '.join(known) or 'none'}")
        return cls(**given)

    def as_dict(self) -> dict[str, Any]:
        """Those that change anything."""
        return {name: value for name, value in asdict(self).items() if value not in (None, False)}


def _problem(declared: Field[Any], value: Any) -> str:
    least, most = declared.metadata["least"], declared.metadata["most"]
    if isinstance(declared.default, bool):
        return "" if isinstance(value, bool) else "is true or false"
    if value is None:
        return ""
    if not isinstance(value, int) or isinstance(value, bool):
        return "is a whole number"
    if least is not None and value < least:
        return f"must be at least {least}"
    return f"must be at most {most}" if most is not None and value > most else ""


# Images on their way to the vision tower: what of them the host hands over.

Grid = tuple[int, int, int]
"""Tiles of an image, and rows and columns of patches in each."""


@dataclass(frozen=True)
class Fit:
    """An image asked for at fewer visual tokens than it usually makes."""

    options: ImageOptions
    """Under which it makes as many tokens as the budget allows, or as few less as its size permits."""
    usual_n: int
    """Tokens that it makes at its usual size."""
    usual_slots: int
    """Slots of its span there, separators among them."""


@dataclass(frozen=True)
class Pixels:
    """An image on the host, as far as it is prepared there for the vision tower."""

    data: Tensor
    """(H, W, 4) uint8, the image's bytes, if the model lives on a GPU, which does the rest; else pixel values."""
    grid: Grid
    """What the tower will see: tiles, and rows and columns of patches in each."""
    size: tuple[int, int]
    """(width, height) of the image before preprocessing."""
    preprocess_ms: float
    fit: Fit | None = None
    """How it is made smaller to meet a budget; None: it has its usual size."""
    inputs: Mapping[str, Tensor] = field(default_factory=dict)
    """What else the checkpoint's own image processor says about it, where that one prepares images."""

    @property
    def options(self) -> ImageOptions | None:
        """Those it was prepared under; None: the backbone's."""
        return None if self.fit is None else self.fit.options


@contextmanager
def resized_for(title: str) -> Iterator[None]:
    """What a checkpoint's own rule refuses to resize is refused in words."""
    try:
        yield
    except ValueError as error:
        raise SightlineError(f"the image cannot be resized for {title}: {error}") from None


def largest_within(count: Callable[[int], int], k: int, low: int, high: int) -> int:
    """The largest size from ``low`` on, below ``high``, that counts at most k tokens; ``low`` itself is not asked.

    A larger size never counts fewer, so it is found by halving.
    """
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) <= k else (low, middle)
    return low


def stored_pixels(image: Image.Image) -> np.ndarray:
    """(H, W, 4) bytes of an RGB image where Pillow has them, the fourth unused; (H, W, 3) copied if it cannot share.

    Copying drops every fourth byte, pixel by pixel, which takes longer than all else that the host does to an image.
    """
    import pyarrow

    try:
        flat = pyarrow.array(image).values.to_numpy(zero_copy_only=True)
    except (TypeError, ValueError, pyarrow.ArrowException):  # an older Pillow, or an image in several blocks of memory
        return np.asarray(image)
    pixels: np.ndarray = flat.reshape(image.height, image.width, 4)
    return pixels


# Bytes of an image as normalised floats, looked up: a value depends on its channel and its byte alone.
#
# The table holds what the image processor's own arithmetic gives for each of the 256 bytes, so a looked-up value
# equals the processor's to the bit, on any device.

CHANNELS, BYTES = 3, 256


def processor_table(processor: Any) -> Tensor:
    """(3, 256) float32: each byte, rescaled and normalised by the processor's own methods."""
    values = np.tile(np.arange(BYTES, dtype=np.uint8), (CHANNELS, 1, 1))
    values = processor.rescale(values, processor.rescale_factor)
    values = processor.normalize(values, processor.image_mean, processor.image_std)
    return torch.from_numpy(np.asarray(values, dtype=np.float32)).reshape(CHANNELS, BYTES)


def tensor_table(processor: Any) -> Tensor:
    """(3, 256) float32: the same in torch's single precision, as processors on tensors compute it."""
    mean, spread = (torch.tensor(v)[:, None] for v in (processor.image_mean, processor.image_std))
    return (torch.arange(BYTES, dtype=torch.uint8) * float(processor.rescale_factor) - mean) / spread


class Normaliser:
    """(..., 3, h, w) uint8 -> (..., 3, h, w) float32 by table."""

    def __init__(self, table: Tensor, device: torch.device) -> None:
        self._values = on_device(table.flatten(), device)
        self._rows = torch.arange(0, CHANNELS * BYTES, BYTES, dtype=torch.int32, device=device)[:, None, None]

    def __call__(self, planes: Tensor) -> Tensor:
        planes = planes.contiguous()  # rearranges one byte a pixel rather than four
        if planes.device.type != "cpu":
            return self._values[planes + self._rows]
        values = torch.empty(planes.shape, dtype=self._values.dtype)
        # Indices take four times the image's bytes: they are made part by part, so that they stay in the cache.
        for part, out in zip(planes, values, strict=True):
            torch.index_select(self._values, 0, (part + self._rows).flatten(), out=out.view(-1))
        return values


class Normalisers:
    """Bytes to normalised floats by one table, on whatever device the bytes are."""

    def __init__(self, table: Tensor) -> None:
        self._table = table
        self._made: dict[torch.device, Normaliser] = {}

    def on(self, device: torch.device) -> Normaliser:
        if device not in self._made:
            self._made[device] = Normaliser(self._table, device)
        return self._made[device]


LARGE = 2**24
"""Pixels from which on a page is made small on the host, whatever the model lives on: the device is handed what the
tower is shown of it, not its bytes, of which two shards would fill the host's memory."""


def made_on(device: torch.device, size: tuple[int, int]) -> torch.device:
    """Where pixel values are made of an image of this (width, height), for a model on ``device``."""
    return device if size[0] * size[1] < LARGE else torch.device("cpu")


def image_bytes(image: Image.Image, device: torch.device, into: Tensor | None = None) -> Tensor:
    """(H, W, 3) uint8 of an RGB image, or (H, W, 4) with a byte to ignore in pinned memory if a GPU will fetch it.

    ``into`` is memory to be reused.
    """
    if device.type == "cpu":
        return torch.from_numpy(np.array(image))
    if into is None:
        into = torch.empty(image.height, image.width, 4, dtype=torch.uint8, pin_memory=True)
    stored = stored_pixels(image)
    into.numpy()[..., : stored.shape[-1]] = stored
    return into


def patch_values(
    processor: Any, source: Size, grid: Grid, normalisers: Normalisers, device: torch.device
) -> Callable[[Tensor], Tensor]:
    """From (H, W, 3) bytes to (patches, 3 * frames * edge * edge): patches that merge lie together, each repeated
    over frames, as Qwen's and GLM's processors cut an image into this grid."""
    edge, merge, frames = int(processor.patch_size), int(processor.merge_size), int(processor.temporal_patch_size)
    _, rows, columns = grid
    resize = resizer(source, (rows * edge, columns * edge), processor.resample, device)
    normalise = normalisers.on(device)

    def values(image: Tensor) -> Tensor:
        split = resize(image).reshape(rows // merge, merge, edge, columns // merge, merge, edge, 3)
        patches = normalise(split.permute(0, 3, 1, 4, 6, 2, 5)).view(rows * columns, 3, 1, edge * edge)
        return patches.expand(-1, -1, frames, -1).reshape(rows * columns, -1)

    return values


# Pillow's resize of 8-bit images as tensor code: equal to the byte, on any device, without waiting for it.
#
# A resize on a GPU has to give the bytes that the checkpoint's image processor gives, and that one calls Pillow. A
# resize is two passes, one over the columns and one over the rows, each skipped when its size stays. With n inputs and
# m outputs along the pass, scale s = n / m, stretch r = max(s, 1) and a filter f of support h, output i is
#
# o_i = clip((2^(b-1) + sum_j w_ij x_j) >> b, 0, 255), w_ij = round(2^b f((j + 1/2 - c_i) / r) / z_i),
#
# c_i = (i + 1/2) s, over the inputs j within h r of c_i, where z_i makes the unrounded weights sum to 1. Pillow keeps
# b = 22 bits. Torch's own resize of bytes has the same form with fewer bits: as many as let every weight fit 16 bits.

Size = tuple[int, int]
"""(height, width)"""
Arithmetic = Literal["pillow", "torch"]
Resize = Callable[[Tensor], Tensor]
"""(H, W, C) uint8 of one fixed size -> (H', W', C) uint8 on the same device"""

PILLOW_BITS = 22
TABLES = 1024
"""Tables kept; one has a few ten thousand bytes, and images of a data set share most of theirs."""


def _bicubic(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Keys' cubic with a = -1/2. The order of operations is Pillow's: weights agree to the last bit."""
    near = ((-0.5 + 2.0) * x - (-0.5 + 3.0)) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


FILTERS: dict[int, tuple[Callable[[NDArray[np.float64]], NDArray[np.float64]], float]] = {
    Image.Resampling.BILINEAR: (lambda x: np.maximum(1.0 - x, 0.0), 1.0),
    Image.Resampling.BICUBIC: (_bicubic, 2.0),
}
"""f(|x|) and its support, by Pillow's number of the filter."""


@dataclass(frozen=True)
class Taps:
    """One pass: every output is a weighted sum of at most T neighbouring inputs."""

    index: Tensor
    """(T, m) int32 inputs that outputs read; a window with fewer than T ends in repeats of weight 0."""
    weight: Tensor
    """(T, m) int32 weights, in units of 2^-bits"""
    bits: int

    def along(self, image: Tensor, axis: int) -> Tensor:
        """The pass over one axis of an (H, W, C) uint8 image. Sums stay below 2^31: weights sum to 2^bits <= 2^22."""
        shape = [1, 1, 1]
        shape[axis] = -1
        windows = zip(self.index, self.weight, strict=True)
        products = (image.index_select(axis, index) * weight.view(shape) for index, weight in windows)
        total = next(products) + (1 << (self.bits - 1))
        for product in products:
            total += product
        return torch.bitwise_right_shift(total, self.bits).clamp_(0, 255).to(torch.uint8)


@lru_cache(maxsize=TABLES)
def taps(inputs: int, outputs: int, kind: int, arithmetic: Arithmetic, device: torch.device) -> Taps:
    """The tables of one pass, made once in double precision on the host."""
    if kind not in FILTERS:
        raise SightlineError(
            f"this checkpoint's image processor resizes with filter {kind}, which only runs on a CPU: use --device cpu"
        )
    function, support = FILTERS[kind]
    scale = inputs / outputs
    stretch = max(scale, 1.0)
    centre = (np.arange(outputs) + 0.5) * scale
    first = np.maximum((centre - support * stretch + 0.5).astype(np.int64), 0)
    last = np.minimum((centre + support * stretch + 0.5).astype(np.int64), inputs)
    index = first + np.arange(int((last - first).max()))[:, None]
    weight = np.where(index < last, function(np.abs((index - centre + 0.5) * (1.0 / stretch))), 0.0)
    # A running sum adds in the order of the inputs, as Pillow does; numpy's own sum would not.
    weight /= np.cumsum(weight, axis=0)[-1]
    bits, largest = PILLOW_BITS, float(weight.max())
    if arithmetic == "torch":  # most bits, up to 22, with which the largest weight stays below 2^15
        bits = next((bits for bits in range(22) if int(0.5 + largest * (1 << (bits + 1))) >= 1 << 15), 22)
    fixed = np.trunc(weight * (1 << bits) + np.copysign(0.5, weight))
    return Taps(
        on_device(torch.from_numpy(np.minimum(index, inputs - 1).astype(np.int32)), device),
        on_device(torch.from_numpy(fixed.astype(np.int32)), device),
        bits,
    )


def rows_first(source: Size, target: Size, arithmetic: Arithmetic) -> bool:
    """Which pass comes first; bytes are rounded in between, so the order shows.

    Pillow takes the rows first if they shrink by more pixels than twice what the columns lose (or gain). Torch, and
    releases of Pillow that lack this rule, always take the columns first.
    """
    lost_rows, lost_columns = source[0] - target[0], source[1] - target[1]
    return arithmetic == "pillow" and lost_rows > max(0, 2 * lost_columns) and _pillow_orders_passes()


@lru_cache(maxsize=1)
def _pillow_orders_passes() -> bool:
    """Asks the installed Pillow: one image whose bytes differ by the order of passes."""
    source, target, kind = (10, 10), (3, 9), Image.Resampling.BICUBIC
    image = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (*source, 3), dtype=np.uint8))
    host = torch.device("cpu")
    rows, columns = (taps(old, new, kind, "pillow", host) for old, new in zip(source, target, strict=True))
    return torch.equal(columns.along(rows.along(image, 0), 1), on_host(target, kind, "pillow")(image))


def by_tensors(source: Size, target: Size, kind: int, device: torch.device, arithmetic: Arithmetic) -> Resize:
    order = (0, 1) if rows_first(source, target, arithmetic) else (1, 0)
    passes = [
        (taps(source[axis], target[axis], kind, arithmetic, device), axis)
        for axis in order
        if source[axis] != target[axis]
    ]

    def resized(image: Tensor) -> Tensor:
        for table, axis in passes:
            image = table.along(image, axis)
        return image

    return resized


def on_host(target: Size, kind: int, arithmetic: Arithmetic) -> Resize:
    """Pillow or torch itself, which are faster on a CPU than the sums above."""
    height, width = target

    def by_pillow(image: Tensor) -> Tensor:
        resized = Image.fromarray(image.numpy()).resize((width, height), Image.Resampling(kind))
        return torch.from_numpy(np.array(resized))

    def by_torch(image: Tensor) -> Tensor:
        planes = image.permute(2, 0, 1)[None]
        resized = torch.nn.functional.interpolate(planes, size=target, mode="bicubic", antialias=True)
        return resized[0].permute(1, 2, 0)

    return by_pillow if arithmetic == "pillow" else by_torch


def resizer(source: Size, target: Size, kind: int, device: torch.device, arithmetic: Arithmetic = "pillow") -> Resize:
    """A resize from one size to another with everything that depends on the sizes alone computed beforehand.

    It holds its tables, so a graph captured from it stays valid for as long as it is kept.
    """
    if source == target:
        return lambda image: image
    if device.type == "cpu":
        return on_host(target, kind, arithmetic)
    return by_tensors(source, target, kind, device, arithmetic)
