"""Architectures whose vision tower runs block by block from a file of its own, to be compiled or captured."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import linear, pad

from sightline.backbones.base import Backbone, configuration, processor_template, whole_model
from sightline.backbones.images import Grid, ImageOptions, Normalisers, Pixels, image_bytes, made_on, processor_table
from sightline.backbones.signals import Block, pixels_of_tokens, token_signal, with_pixels_of
from sightline.core.prefix import Encoded
from sightline.core.selection import (
    BLOCK_KINDS,
    PIXELS,
    PositionPolicy,
    block_index,
    hidden_indices,
    split_name,
)
from sightline.errors import SightlineError
from sightline.geometry.coverage import Sampling

# A vision tower as a loop over its own blocks, like the language model: what can be compiled, captured and cut short.
#
# Weights and modules are the checkpoint's own, in the order in which the model itself calls them; every architecture
# builds its tower in its own file. The loop ends behind the last block whose output anyone reads (LLaVA's features
# come from the last block but one), and hidden states that a signal needs are kept on the way.


def call_block(block: Any, hidden: Tensor, arguments: dict[str, Any]) -> Tensor:
    output: Tensor = block(hidden, **arguments)
    return output


@dataclass(frozen=True)
class Tower:
    """The vision tower and projector for a batch of images whose sizes are known.

    Hidden state i is the input of block i; state ``len(blocks)`` is the last block's output.
    """

    blocks: Any
    embed: Callable[[Tensor], Tensor]
    """Pixel values -> hidden state 0."""
    reads: frozenset[int]
    """Hidden states that ``finish`` needs."""
    finish: Callable[[Mapping[int, Tensor]], list[Tensor]]
    """Hidden states -> projected tokens (..., D), image after image, then DeepStack levels of the same shape."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """What every block is called with."""

    def __call__(
        self, pixels: Tensor, keep: frozenset[int] = frozenset(), call: Block = call_block
    ) -> tuple[list[Tensor], dict[int, Tensor]]:
        """Tokens and levels, and the hidden states in ``keep``."""
        wanted = self.reads | keep
        states: dict[int, Tensor] = {}
        hidden = self.embed(pixels)
        for index in range(max(wanted) + 1):
            if index in wanted:
                states[index] = hidden
            if index < max(wanted):
                hidden = call(self.blocks[index], hidden, self.arguments)
        return self.finish(states), {index: states[index] for index in keep}


def patch_product(kernel: Any, pixels: Tensor) -> Tensor:
    """A convolution whose stride is its size, as one matrix product: (B, C, H, W) -> (B, P, E).

    Convolution kernels are slow for this. Rows are padded with zeros to a multiple of eight entries, which matrix
    kernels want.
    """
    height, width = kernel.kernel_size
    batch, channels, _, across = pixels.shape
    patches = pixels.reshape(batch, channels, -1, height, across // width, width)
    rows = patches.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
    missing = -rows.shape[-1] % 8
    return linear(pad(rows, (0, missing)), pad(kernel.weight.flatten(1), (0, missing)), kernel.bias)


# Logical positions of architectures that number the sequence on one axis.


def sequential_positions(n: int, anchors: Tensor, start: int, policy: PositionPolicy) -> tuple[Tensor, int]:
    """``preserve``: each kept token keeps the slot of its anchor among the n; ``compact``: 0, 1, 2, ... behind
    ``start``.

    An output without an anchor (-1: a class token) has no slot of its own and takes the first.
    """
    if policy == "compact":
        ids = torch.arange(len(anchors), device=anchors.device)
        return (ids + start)[None], start + len(anchors)
    return (anchors.clamp(min=0) + start)[None], start + n


class Towered(Backbone):
    """Pixels are prepared where the model lives, and its tower is a loop over its own blocks.

    A file for each of them, by hand: faster than the general route (``sightline.backbones.general``), and equal to the
    model's own code, which tests compare.
    """

    model_class: ClassVar[str]
    """Class of transformers that holds the checkpoint."""
    image_processor_class: ClassVar[str]
    """PIL image processor of transformers (the plain one: no torchvision needed)."""
    packs_images: ClassVar[bool] = False
    """Whether the tower lines up the patches of all images of a batch in one sequence."""
    class_tokens: ClassVar[int] = 1
    """Tokens that the vision tower puts before the patches of every tile."""
    processor_steps: ClassVar[tuple[str, ...]] = ("do_resize", "do_rescale", "do_normalize")
    """What the image processor must be set to do: ``pixel_pipeline`` always does it."""

    def __init__(self, model: Any, tokenizer: Any, image_processor: Any, options: ImageOptions) -> None:
        super().__init__(model, tokenizer, image_processor, options)
        self.call_block: Block = call_block
        """How a vision block is called; see ``sightline.backbones.execution``."""
        self.patch_products = False
        """Whether patches are embedded by a matrix product instead of the model's convolution; equal up to rounding."""
        self.normalisers = Normalisers(self.byte_values())

    @property
    def image_token_id(self) -> int:
        return int(self.model.config.image_token_id)

    def visual_positions(
        self, encoded: Encoded, slots: Tensor, start: int, policy: PositionPolicy
    ) -> tuple[Tensor, int | Tensor]:
        return sequential_positions(encoded.n, slots, start, policy)

    @classmethod
    def declines(cls, config: Mapping[str, Any], images: Mapping[str, Any]) -> str | None:
        """An image processor that leaves a step out, or language layers that attend in another way."""
        left_out = [step for step in cls.processor_steps if not images.get(step, True)]
        if left_out:
            return f"its image processor has {left_out[0]} = false"
        layers = configuration(cls.model_class, config).text_config
        kinds = set(getattr(layers, "layer_types", None) or ()) - {"full_attention"}
        return f"language layers of type {', '.join(sorted(kinds))} are not in it" if kinds else None

    @abstractmethod
    def patch_grid(self, height: int, width: int) -> tuple[int, int, int]:
        """Tiles of an image of this size, and rows and columns of patches in each."""

    @abstractmethod
    def pixel_pipeline(self, height: int, width: int, device: torch.device) -> Callable[[Tensor], Tensor]:
        """A function from the (H, W, 3) bytes of an image of this size to the image processor's pixel values.

        Values are float32 and equal to the processor's to the bit. Tables are made here; the function only runs
        tensor operations of fixed shapes on ``device``, never waits for it, and so can be captured as a graph.
        """

    @abstractmethod
    def tower(self, grids: Sequence[Grid]) -> Tower:
        """The vision tower for a batch of images with these patch grids."""

    @abstractmethod
    def cells_of(self, pixels: Pixels) -> tuple[np.ndarray, tuple[tuple[int, int], ...]]:
        """(N, 4) cells of an image's tokens, and the rows and columns of each grid of tokens."""

    def captured(self, tower: Tower, states: Mapping[int, Tensor]) -> dict[str, Tensor]:
        """What signals are read from, one row per patch: kept hidden states, and tables if attention needs them."""
        return {f"hidden:{index}": rows for index, rows in states.items()}

    def shared_shape(self, pixels: Pixels) -> tuple[int, ...]:
        """Patches of a tile, of which an image may have any number; nothing where patches stand in one sequence."""
        return () if self.packs_images else pixels.grid[1:]

    def altered(self, image: Image.Image) -> Image.Image:
        """The image after whatever the image options do to it before the processor's own steps."""
        return image

    def altered_size(self, height: int, width: int) -> tuple[int, int]:
        """(height, width) of ``altered`` for an image of this size."""
        return height, width

    def byte_values(self) -> Tensor:
        """(3, 256) float32 normalised value of each byte in each channel."""
        return processor_table(self.image_processor)

    def image_inputs(self, image: Image.Image) -> dict[str, Tensor]:
        features = self.image_processor(images=image, return_tensors="pt", **self.processor_arguments())
        return {name: features[name] for name in ("pixel_values", "image_grid_thw") if name in features}

    def sampling(self, pixels: Pixels) -> Sampling | None:
        """How finely the tower reads an image of this size."""
        return None if self.token_pixels is None else Sampling(pixels.size, self.token_pixels)

    def vision_signal(self, name: str, encoded: Encoded) -> Tensor:
        if name == PIXELS:
            return pixels_of_tokens(self.pixel_values(encoded.captured[PIXELS]), encoded.layout)
        depth, captured = len(self.vision_blocks), {**encoded.captured, **self.tower_rows(encoded)}
        if split_name(name)[0] in BLOCK_KINDS:
            index = block_index(name, depth)
            captured |= self.attended(index, encoded.captured[f"hidden:{index}"], encoded)
        return token_signal(name, captured, depth)

    def tower_rows(self, encoded: Encoded) -> dict[str, Tensor]:
        """``ROWS`` of the tower that an image's tokens are made from, and where class tokens stand (``CLASS``)."""
        raise SightlineError(f"{type(self).__name__} has no signals of its vision tower")

    def attended(self, index: int, hidden: Tensor, encoded: Encoded) -> dict[str, Tensor]:
        """What block ``index`` attends with, from its (R, C) input: ``as_captured``."""
        raise SightlineError(f"{type(self).__name__} has no signals of its vision tower")

    @classmethod
    def load(
        cls,
        source: str,
        *,
        dtype: torch.dtype,
        device: torch.device,
        attention: str,
        options: ImageOptions,
    ) -> Self:
        """A backbone of that cls. ``source`` is a folder; safetensors only, no remote code."""
        import transformers

        transformers.utils.logging.disable_progress_bar()
        model_class = getattr(transformers, cls.model_class)
        values, _ = model_class.config_class.get_config_dict(source)
        config = configuration(cls.model_class, values)
        model = whole_model(model_class, Path(source), config=config, dtype=dtype, attn_implementation=attention)
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, config=model.config)
        model.config.model_type = values["model_type"]  # rows say what the checkpoint calls itself
        if tokenizer.chat_template is None:
            tokenizer.chat_template = processor_template(source)
        processor = getattr(transformers, cls.image_processor_class).from_pretrained(source)
        reason = cls.declines(values, processor.to_dict())
        if reason is not None:
            raise SightlineError(f"{cls.__name__} is not for this checkpoint: {reason}")
        return cls(model.to(device), tokenizer, processor, options)

    def prepared(self, image: Image.Image, into: Tensor | None) -> tuple[Tensor, Grid, Mapping[str, Tensor]]:
        """All of it for a model on the CPU or a very large image, else no more than its bytes."""
        device = made_on(self.language.device, image.size)
        data = self.image_bytes(image, into, device)
        grid = self.patch_grid(*data.shape[:2])
        return self.pixel_values(data) if device.type == "cpu" else data, grid, {}

    def token_count(self, size: tuple[int, int]) -> int:
        """N for an image of this (width, height), from arithmetic alone."""
        width, height = size
        grid = self.patch_grid(*self.altered_size(height, width))
        return len(self.cells_of(Pixels(torch.empty(0), grid, size, 0.0))[0])

    def image_bytes(self, image: Image.Image, into: Tensor | None = None, device: torch.device | None = None) -> Tensor:
        """Its bytes on the host, for pixel values to be made of them on ``device``, usually the model's."""
        altered = self.altered(image if image.mode == "RGB" else image.convert("RGB"))
        return image_bytes(altered, device or self.language.device, into)

    def pixel_values(self, image: Tensor) -> Tensor:
        """The image processor's pixel values (float32) of (H, W, 3 or 4) bytes, on the device the bytes are on."""
        return self.preparing(image)(image)

    def preparing(self, data: Tensor) -> Callable[[Tensor], Tensor]:
        """What turns ``Pixels.data`` like this one, moved to the model's device, into pixel values."""
        if data.dtype != torch.uint8:
            return lambda values: values
        height, width = data.shape[:2]
        values = self.pixel_pipeline(height, width, data.device)
        return lambda image: values(image[..., :3])

    def tower_inputs(self, batch: Sequence[Pixels]) -> Tensor:
        """Pixel values of all images of the batch, on the model's device and in its dtype."""
        device = self.language.device
        values = [self.under(item.options).pixel_values(item.data.to(device, non_blocking=True)) for item in batch]
        return torch.cat(values).to(self.language.dtype)

    def vision(self, batch: Sequence[Pixels], needs: frozenset[str]) -> list[Encoded]:
        """One call of the vision tower and projector for all images of the batch, cells attached."""
        keep = hidden_indices(needs, len(self.vision_blocks))
        tower = self.tower([item.grid for item in batch])
        encoded = self.seen(batch, tower, *tower(self.tower_inputs(batch), keep, self.call_block))
        return with_pixels_of(encoded, batch, self.language.device) if PIXELS in needs else encoded

    def seen(
        self,
        batch: Sequence[Pixels],
        tower: Tower | None,
        outputs: Sequence[Tensor],
        states: Mapping[int, Tensor],
    ) -> list[Encoded]:
        """What the tower returned for a batch, image by image; without a tower, no states were kept."""
        placed = [self.under(item.options).cells_of(item) for item in batch]
        tokens, cells = outputs[0].flatten(0, -2).shape[0], sum(len(cells) for cells, _ in placed)
        if tokens != cells:
            raise SightlineError(
                f"{type(self).__name__}: {tokens} visual tokens but {cells} cells; "
                "the token-to-cell map does not fit this checkpoint"
            )
        patches = [item.grid[0] * (item.grid[1] * item.grid[2] + self.class_tokens) for item in batch]
        parts = [torch.split(output.flatten(0, -2), [len(cells) for cells, _ in placed]) for output in outputs]
        stored = {} if tower is None else self.captured(tower, states)
        kept = {name: torch.split(rows.flatten(0, -2), patches) for name, rows in stored.items()}
        return [
            Encoded(
                tokens=parts[0][i],
                deepstack=tuple(level[i] for level in parts[1:]),
                cells=cells,
                layout=layout,
                sampling=self.sampling(item),
                captured={name: rows[i] for name, rows in kept.items()},
                usual_n=None if item.fit is None else item.fit.usual_n,
                usual_slots=None if item.fit is None else item.fit.usual_slots,
            )
            for i, (item, (cells, layout)) in enumerate(zip(batch, placed, strict=True))
        ]
