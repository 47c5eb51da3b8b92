"""The contract that an architecture fulfils. What all architectures share is built on it, in files of its own."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import torch
from PIL import Image
from torch import Tensor

from sightline.backbones.images import Fit, ImageOptions, Pixels
from sightline.backbones.language import LanguageModel
from sightline.backbones.prompting import Prompting
from sightline.backbones.signals import split_name
from sightline.core.prefix import Encoded
from sightline.core.registry import Registry
from sightline.core.selection import Budget, PositionPolicy
from sightline.device.work import Limit, Stopwatch
from sightline.errors import SightlineError

BACKBONES: Registry[type[Backbone]] = Registry(
    "architecture", group="sightline.backbones", package="sightline.backbones"
)
"""Architectures by the ``model_type`` of their ``config.json``: in this package, or behind another's entry point."""

UNPROJECTED = "it merges states of the vision tower, and single ones cannot be made tokens there"


class Backbone(Prompting, ABC):
    """One architecture: image and question in, visual tokens with their cells and a language model out.

    A backbone owns geometry: the token-to-cell map, checked against the real number of visual tokens, and the logical
    positions under both policies. It never patches classes and leaves no hooks behind.
    """

    image_options: ClassVar[type[ImageOptions]] = ImageOptions
    """What can be chosen about its images, on the command line with ``--image-option NAME=VALUE``."""
    axes: ClassVar[int] = 1
    """Rotary position axes: 3 for multimodal rotary embeddings."""
    fixed_tokens: ClassVar[str | None] = "its class does not say how fewer tokens are asked for (Backbone.fitting)"
    """Why the model cannot be shown a smaller image to make fewer tokens of it; None where ``fitting`` knows how."""
    paper_positions: ClassVar[PositionPolicy] = "compact"
    """Position policy of the paper's main rows for this architecture."""

    instead: str | None = None
    """Of the general route, why the class of the checkpoint's type does not serve it; None where it has none."""

    def __init__(self, model: Any, tokenizer: Any, image_processor: Any, options: ImageOptions) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.image_processor = image_processor
        self.options = options
        self.language = self.language_model()
        self.encoded_images = 0
        """How many images went through the vision tower; an audit encodes each distinct image once."""
        self.limits = {"patches": Limit(), "pairs": Limit(), "tokens": Limit()}
        """What memory has been seen to hold of images being encoded, selected from, and read by the layers."""

    @property
    def title(self) -> str:
        """What messages call it."""
        return type(self).__name__

    def language_model(self) -> LanguageModel:
        """What reads prefixes: our loop over the decoder's layers."""
        return LanguageModel(self.model.model.language_model, self.model.lm_head, self.axes)

    # ------------------------------------------------------------------ images

    @abstractmethod
    def preprocess(self, image: Image.Image, into: Tensor | None = None, *, budget: Budget | None = None) -> Pixels:
        """What the host does. Under a ``budget`` the image is shown small enough to make no more tokens than that.

        ``into`` is memory to be reused, where the architecture has a use for it.
        """

    @abstractmethod
    def image_inputs(self, image: Image.Image) -> dict[str, Tensor]:
        """What the checkpoint's own image processor makes of an image, by the names that the model's forward takes."""

    def span_ids(self, size: tuple[int, int]) -> tuple[int, ...]:
        """What stands for an image of this (width, height) in a sequence for the unmodified model."""
        return (self.image_token_id,) * self.token_count(size)

    def sequence_types(self, sequence: Tensor) -> Tensor:
        """(B, S) token types of a prompt for the unmodified model, where it takes any."""
        return (sequence == self.image_token_id).int()

    @abstractmethod
    def token_count(self, size: tuple[int, int]) -> int:
        """N for an image of this (width, height)."""

    @abstractmethod
    def vision(self, batch: Sequence[Pixels], needs: frozenset[str]) -> list[Encoded]:
        """One call of the vision tower and projector for all images of the batch, cells attached.

        Activations that the signals in ``needs`` are read from are kept in ``Encoded.captured``.
        """

    @property
    def token_pixels(self) -> int | None:
        """Input pixels that one visual token is made from, merged patches together; None: rows have no legibility."""
        return None

    def processor_arguments(self) -> dict[str, Any]:
        """What the checkpoint's image processor must be called with to honour the image options."""
        return {}

    def fitting(self, size: tuple[int, int], k: int) -> ImageOptions:
        """Image options under which an image of this (width, height) makes at most k tokens, as near to k as it can.

        Asked only for fewer tokens than the image makes. A k that no size of the image meets is refused in words.
        """
        raise SightlineError(f"{type(self).__name__} makes no smaller images: {self.fixed_tokens}")

    def shown_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """(width, height) in pixels that the tower is shown of an image of this (width, height)."""
        return size

    def fit(self, size: tuple[int, int], budget: Budget) -> Fit:
        """How an image of this (width, height) meets a budget; at its usual size if that does."""
        n = self.token_count(size)
        k = budget.resolve(n)
        return Fit(self.fitting(size, k) if k < n else self.options, n, len(self.span_ids(size)))

    def under(self, options: ImageOptions | None) -> Self:
        """The same model, its memory of limits and tables included, with other image options; None changes nothing."""
        if options is None:
            return self
        changed = copy.copy(self)
        changed.options = options
        return changed

    @torch.inference_mode()
    def encode(self, batch: Sequence[Pixels], needs: Iterable[str] = ()) -> list[Encoded]:
        """Vision tower once over the batch, keeping what the signals in ``needs`` are read from.

        Each image is billed its share of the time.
        """
        watch = Stopwatch(self.language.device, shared_by=len(batch))
        encoded = self.vision(batch, frozenset(needs))
        watch.stop()
        self.encoded_images += len(batch)
        return [
            replace(item, preprocess_ms=pixels.preprocess_ms, vision_time=watch)
            for item, pixels in zip(encoded, batch, strict=True)
        ]

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

    def unprojected(self) -> str | None:
        """Why states of its vision tower, merged, cannot be made tokens; None where ``project`` says how.

        Like ``serves`` it is asked of a checkpoint's configuration alone as well, before a model is loaded.
        """
        return UNPROJECTED if type(self).project is Backbone.project else None

    def synchronise(self) -> None:
        if self.language.device.type == "cuda":
            torch.cuda.synchronize(self.language.device)

    # ------------------------------------------------------------------ positions

    @abstractmethod
    def visual_positions(
        self, encoded: Encoded, slots: Tensor, start: int, policy: PositionPolicy
    ) -> tuple[Tensor, int | Tensor]:
        """(A, K) logical ids of kept slots behind ``start`` text tokens, and the id of the next text token.

        ``slots`` (K,) are places in the image's span: its tokens, and separators where there are any.

        That id is a tensor () where it depends on which tokens were kept: nothing here may wait for the device.
        """

    # ------------------------------------------------------------------ loading

    @classmethod
    def declines(cls, config: Mapping[str, Any], images: Mapping[str, Any]) -> str | None:
        """Why it cannot serve a checkpoint of its type, which then takes the general route; None where it can.

        ``config`` is the content of ``config.json``, ``images`` the settings of the image processor.
        """
        return None

    @classmethod
    @abstractmethod
    def load(
        cls, source: str, *, dtype: torch.dtype, device: torch.device, attention: str, options: ImageOptions
    ) -> Backbone:
        """The checkpoint in a folder; safetensors only, no remote code."""


# The checkpoint as transformers itself calls it: its own image processor, its ordinary forward.


@torch.inference_mode()
def model_logits(backbone: Backbone, image: Image.Image, ids: tuple[int, ...], head: int) -> Tensor:
    """The unmodified model's logits over the whole sequence: its own image processor, its ordinary forward."""
    logits: Tensor = backbone.model(**model_inputs(backbone, image, ids, head), use_cache=False).logits[0]
    return logits


def model_inputs(backbone: Backbone, image: Image.Image, ids: tuple[int, ...], head: int) -> dict[str, Tensor]:
    """What the unmodified model is called with: pixels from its own image processor, the image's span behind the head.

    ``ids`` are those of the text, ``head`` of them before the image.
    """
    span = backbone.span_ids(image.size)
    sequence = torch.tensor([[*ids[:head], *span, *ids[head:]]], device=backbone.language.device)
    types = backbone.sequence_types(sequence)
    takes = inspect.signature(backbone.model.forward).parameters
    given = {**processor_inputs(backbone, image), **{name: types for name in TYPES if name in takes}}
    return {**given, "input_ids": sequence, "attention_mask": torch.ones_like(sequence)}


TYPES = ("token_type_ids", "mm_token_type_ids")


def processor_inputs(backbone: Backbone, image: Image.Image) -> dict[str, Tensor]:
    """What the checkpoint's own image processor makes of an image, on the model's device."""
    language = backbone.language
    inputs = {name: value.to(language.device) for name, value in backbone.image_inputs(image).items()}
    return {**inputs, "pixel_values": inputs["pixel_values"].to(language.dtype)}
