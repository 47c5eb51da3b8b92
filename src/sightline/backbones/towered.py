"""Architectures whose vision tower runs block by block from a file of its own, to be compiled or captured."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sightline.backbones import image_steps, pretrained
from sightline.backbones.base import Backbone
from sightline.backbones.normalising import Normaliser, processor_table
from sightline.backbones.options import ImageOptions
from sightline.backbones.pixels import Grid, Pixels
from sightline.backbones.signals import PIXELS, pixels_of_tokens
from sightline.backbones.tower import Block, Tower, call_block
from sightline.core.prefix import Encoded
from sightline.geometry.legibility import Sampling


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
        """How a vision block is called; see ``sightline.backbones.vision_execution``."""
        self.patch_products = False
        """Whether patches are embedded by a matrix product instead of the model's convolution; equal up to rounding."""
        self.normalisers: dict[torch.device, Normaliser] = {}

    @classmethod
    def declines(cls, config: Mapping[str, Any], images: Mapping[str, Any]) -> str | None:
        """An image processor that leaves a step out, or language layers that attend in another way."""
        left_out = [step for step in cls.processor_steps if not images.get(step, True)]
        if left_out:
            return f"its image processor has {left_out[0]} = false"
        layers = pretrained.configuration(cls.model_class, config).text_config
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
        return super().vision_signal(name, encoded)

    preprocess = image_steps.preprocess
    token_count = image_steps.token_count
    image_bytes = image_steps.image_bytes
    pixel_values = image_steps.pixel_values
    preparing = image_steps.preparing
    normaliser = image_steps.normaliser
    tower_inputs = image_steps.tower_inputs
    vision = image_steps.vision
    seen = image_steps.seen

    load = classmethod(pretrained.load)
