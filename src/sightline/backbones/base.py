"""The contract that an architecture fulfils. What all architectures share is built on it, in files of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sightline.backbones import image_steps, pretrained
from sightline.backbones.language import LanguageModel
from sightline.backbones.normalising import Normaliser, processor_table
from sightline.backbones.options import ImageOptions
from sightline.backbones.pixels import Grid, Pixels
from sightline.backbones.prompting import Prompting
from sightline.backbones.signals import PIXELS, split_name, token_blocks
from sightline.backbones.tower import Block, Tower, call_block
from sightline.core.prefix import Encoded, PositionPolicy
from sightline.core.registry import Registry
from sightline.device.memory import Limit
from sightline.errors import SightlineError
from sightline.geometry.legibility import Sampling

BACKBONES: Registry[type[Backbone]] = Registry(
    "architecture", group="sightline.backbones", package="sightline.backbones"
)
"""Architectures by the ``model_type`` of their ``config.json``: in this package, or behind another's entry point."""


class Backbone(Prompting, ABC):
    """One architecture: image and question in, visual tokens with their cells and a language model out.

    A backbone owns geometry: the token-to-cell map, checked against the real number of visual tokens, and the logical
    positions under both policies. It never patches classes and leaves no hooks behind.
    """

    model_class: ClassVar[str]
    """Class of transformers that holds the checkpoint."""
    image_processor_class: ClassVar[str]
    """PIL image processor of transformers (the plain one: no torchvision needed)."""
    image_options: ClassVar[type[ImageOptions]] = ImageOptions
    """What can be chosen about its images, on the command line with ``--image-option NAME=VALUE``."""
    axes: ClassVar[int] = 1
    """Rotary position axes: 3 for multimodal rotary embeddings."""
    packs_images: ClassVar[bool] = False
    """Whether the tower lines up the patches of all images of a batch in one sequence."""
    class_tokens: ClassVar[int] = 1
    """Tokens that the vision tower puts before the patches of every tile."""
    fixed_tokens: ClassVar[str | None] = "its class does not say how fewer tokens are asked for (Backbone.fitting)"
    """Why the model cannot be shown a smaller image to make fewer tokens of it; None where ``fitting`` knows how."""
    processor_steps: ClassVar[tuple[str, ...]] = ("do_resize", "do_rescale", "do_normalize")
    """What the image processor must be set to do: ``pixel_pipeline`` always does it."""
    paper_positions: ClassVar[PositionPolicy] = "compact"
    """Position policy of the paper's main rows for this architecture."""

    def __init__(self, model: Any, tokenizer: Any, image_processor: Any, options: ImageOptions) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.image_processor = image_processor
        self.options = options
        self.language = LanguageModel(model.model.language_model, model.lm_head, self.axes)
        self.call_block: Block = call_block
        """How a vision block is called; see ``sightline.backbones.vision_execution``."""
        self.patch_products = False
        """Whether patches are embedded by a matrix product instead of the model's convolution; equal up to rounding."""
        self.encoded_images = 0
        """How many images went through the vision tower; an audit encodes each distinct image once."""
        self.limits = {"patches": Limit(), "pairs": Limit(), "tokens": Limit()}
        """What memory has been seen to hold of images being encoded, selected from, and read by the layers."""
        self.normalisers: dict[torch.device, Normaliser] = {}
        pretrained.refuse_unsupported(model.config, image_processor, self.processor_steps)

    # ------------------------------------------------------------------ images

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

    @property
    def token_pixels(self) -> int | None:
        """Input pixels that one visual token is made from, merged patches together; None: rows have no legibility."""
        return None

    def sampling(self, pixels: Pixels) -> Sampling | None:
        """How finely the tower reads an image of this size."""
        return None if self.token_pixels is None else Sampling(pixels.size, self.token_pixels)

    def captured(self, tower: Tower, states: Mapping[int, Tensor]) -> dict[str, Tensor]:
        """What signals are read from, one row per patch: kept hidden states, and tables if attention needs them."""
        return {f"hidden:{index}": rows for index, rows in states.items()}

    def processor_arguments(self) -> dict[str, Any]:
        """What the checkpoint's image processor must be called with to honour the image options."""
        return {}

    def altered(self, image: Image.Image) -> Image.Image:
        """The image after whatever the image options do to it before the processor's own steps."""
        return image

    def altered_size(self, height: int, width: int) -> tuple[int, int]:
        """(height, width) of ``altered`` for an image of this size."""
        return height, width

    def fitting(self, size: tuple[int, int], k: int) -> ImageOptions:
        """Image options under which an image of this (width, height) makes at most k tokens, as near to k as it can.

        Asked only for fewer tokens than the image makes. A k that no size of the image meets is refused in words.
        """
        raise SightlineError(f"{type(self).__name__} makes no smaller images: {self.fixed_tokens}")

    def shown_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """(width, height) in pixels that the tower is shown of an image of this (width, height)."""
        return size

    def byte_values(self) -> Tensor:
        """(3, 256) float32 normalised value of each byte in each channel."""
        return processor_table(self.image_processor)

    preprocess = image_steps.preprocess
    fit = image_steps.fit
    token_count = image_steps.token_count
    under = image_steps.under
    image_bytes = image_steps.image_bytes
    pixel_values = image_steps.pixel_values
    preparing = image_steps.preparing
    normaliser = image_steps.normaliser
    tower_inputs = image_steps.tower_inputs
    encode = image_steps.encode
    vision = image_steps.vision
    seen = image_steps.seen

    # ------------------------------------------------------------------ signals

    @property
    @abstractmethod
    def vision_blocks(self) -> Any:
        """The transformer blocks of the vision tower."""

    @property
    def vision_depth(self) -> int:
        """How many of the blocks an image's tokens depend on."""
        return len(self.vision_blocks)

    def serves(self, name: str) -> str | None:
        """None when this architecture can compute the signal, else the reason why not."""
        kind, _ = split_name(name)
        return None if kind.startswith("lm.") else f"{type(self).__name__} has no signal {kind}"

    def vision_signal(self, name: str, encoded: Encoded) -> Tensor:
        """A ``vision.*`` or ``image.*`` signal of one encoded image."""
        if name == PIXELS:
            return token_blocks(self.pixel_values(encoded.captured[PIXELS]), encoded.layout)
        raise SightlineError(f"{type(self).__name__} has no signal {name}")

    def clip_states(self, encoded: Encoded) -> Tensor:
        """(N, C) penultimate patch states after the tower's final layer norm, for CLIP's visual projection."""
        raise SightlineError(f"{type(self).__name__} has no CLIP tower")

    def merge_sources(self, encoded: Encoded) -> Tensor:
        """(N + 1, C) vision hidden states that methods merge before projection, the class token last."""
        raise SightlineError(f"{type(self).__name__} cannot merge vision states before projection")

    def project(self, hidden: Tensor) -> Tensor:
        """(K, C) vision hidden states as (K, D) language tokens."""
        raise SightlineError(f"{type(self).__name__} cannot project single vision states")

    def synchronise(self) -> None:
        if self.language.device.type == "cuda":
            torch.cuda.synchronize(self.language.device)

    # ------------------------------------------------------------------ positions

    @abstractmethod
    def visual_positions(
        self, encoded: Encoded, anchors: Tensor, start: int, policy: PositionPolicy
    ) -> tuple[Tensor, int | Tensor]:
        """(A, K) logical ids of the kept tokens behind ``start`` text tokens, and the id of the next text token.

        That id is a tensor () where it depends on which tokens were kept: nothing here may wait for the device.
        """

    # ------------------------------------------------------------------ loading

    load = classmethod(pretrained.load)
