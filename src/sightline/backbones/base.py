"""What every architecture shares: loading, prompts, query spans, and the contract a backbone fulfils."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sightline.backbones.language import LanguageModel
from sightline.backbones.normalising import Normaliser, processor_table
from sightline.backbones.pixels import Grid, ImageOptions, Pixels, stored_pixels
from sightline.backbones.prompting import Prompting
from sightline.backbones.signals import hidden_indices, split_name
from sightline.backbones.tower import Block, Tower, call_block
from sightline.core.prefix import Encoded, PositionPolicy
from sightline.core.registry import Registry
from sightline.device.memory import Limit
from sightline.device.stopwatch import Stopwatch
from sightline.errors import SightlineError

BACKBONES: Registry[type[Backbone]] = Registry("architecture", package="sightline.backbones")
"""Architectures by the ``model_type`` of their ``config.json``."""


class Backbone(Prompting, ABC):
    """One architecture: picture and question in, visual tokens with their cells and a language model out.

    A backbone owns geometry: the token-to-cell map, checked against the real number of visual tokens, and the logical
    positions under both policies. It never patches classes and leaves no hooks behind.
    """

    model_class: ClassVar[str]
    """Class of transformers that holds the checkpoint."""
    image_processor_class: ClassVar[str]
    """PIL image processor of transformers (the plain one: no torchvision needed)."""
    axes: ClassVar[int] = 1
    """Rotary position axes: 3 for multimodal rotary embeddings."""
    packs_pictures: ClassVar[bool] = False
    """Whether the tower lines up the patches of all pictures of a batch in one sequence."""
    class_tokens: ClassVar[int] = 1
    """Tokens that the vision tower puts before the patches of every tile."""
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
        """How many pictures went through the vision tower; an audit encodes each distinct picture once."""
        self.limits = {"patches": Limit(), "pairs": Limit(), "tokens": Limit()}
        """What memory has been seen to hold of pictures being encoded, selected from, and read by the layers."""
        self._normalisers: dict[torch.device, Normaliser] = {}
        left_out = [step for step in self.processor_steps if not getattr(image_processor, step)]
        if left_out:
            raise SightlineError(f"an image processor with {left_out[0]} = false is not supported; set it to true")
        layer_types = set(getattr(model.config.text_config, "layer_types", None) or ["full_attention"])
        if layer_types != {"full_attention"}:
            raise SightlineError(
                f"language layers of type {sorted(layer_types)} are not supported: only full attention"
            )

    # ------------------------------------------------------------------ pictures

    @abstractmethod
    def patch_grid(self, height: int, width: int) -> tuple[int, int, int]:
        """Tiles of a picture of this size, and rows and columns of patches in each."""

    @abstractmethod
    def pixel_pipeline(self, height: int, width: int, device: torch.device) -> Callable[[Tensor], Tensor]:
        """A function from the (H, W, 3) bytes of a picture of this size to the image processor's pixel values.

        Values are float32 and equal to the processor's to the bit. Tables are made here; the function only runs
        tensor operations of fixed shapes on ``device``, never waits for it, and so can be captured as a graph.
        """

    @abstractmethod
    def tower(self, grids: Sequence[Grid]) -> Tower:
        """The vision tower for a batch of pictures with these patch grids."""

    @abstractmethod
    def cells_of(self, pixels: Pixels) -> tuple[np.ndarray, tuple[tuple[int, int], ...]]:
        """(N, 4) cells of a picture's tokens, and the rows and columns of each grid of tokens."""

    def vision(self, batch: Sequence[Pixels], keep: frozenset[int]) -> list[Encoded]:
        """One call of the vision tower and projector for all pictures of the batch, cells attached.

        ``keep`` names hidden states to store in ``Encoded.captured``; only signals read them.
        """
        tower = self.tower([item.grid for item in batch])
        return self.seen(batch, tower, *tower(self.tower_inputs(batch), keep, self.call_block))

    def seen(
        self, batch: Sequence[Pixels], tower: Tower | None, outputs: Sequence[Tensor], states: Mapping[int, Tensor]
    ) -> list[Encoded]:
        """What the tower returned for a batch, picture by picture; without a tower, no states were kept."""
        placed = [self.cells_of(item) for item in batch]
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
                captured={name: rows[i] for name, rows in kept.items()},
            )
            for i, (cells, layout) in enumerate(placed)
        ]

    def captured(self, tower: Tower, states: Mapping[int, Tensor]) -> dict[str, Tensor]:
        """What signals are read from, one row per patch: kept hidden states, and tables if attention needs them."""
        return {f"hidden:{index}": rows for index, rows in states.items()}

    def processor_arguments(self) -> dict[str, Any]:
        """What the checkpoint's image processor must be called with to honour the image options."""
        return {}

    def edited(self, image: Image.Image) -> Image.Image:
        """The picture after whatever the image options do to it before the processor's own steps."""
        return image

    def picture_bytes(self, image: Image.Image, into: Tensor | None = None) -> Tensor:
        """(H, W, 3) uint8, or (H, W, 4) with a byte to ignore in pinned memory if a GPU will fetch it.

        ``into`` is memory to be reused.
        """
        edited = self.edited(image if image.mode == "RGB" else image.convert("RGB"))
        if self.language.device.type == "cpu":
            return torch.from_numpy(np.array(edited))
        if into is None:
            into = torch.empty(edited.height, edited.width, 4, dtype=torch.uint8, pin_memory=True)
        stored = stored_pixels(edited)
        into.numpy()[..., : stored.shape[-1]] = stored
        return into

    def preprocess(self, image: Image.Image, into: Tensor | None = None) -> Pixels:
        """What the host does: all of it for a model on the CPU, else no more than the picture's bytes."""
        started = time.perf_counter()
        data = self.picture_bytes(image, into)
        grid = self.patch_grid(*data.shape[:2])
        if self.language.device.type == "cpu":
            data = self.pixel_values(data)
        return Pixels(data, grid, image.size, (time.perf_counter() - started) * 1e3)

    def pixel_values(self, picture: Tensor) -> Tensor:
        """The image processor's pixel values (float32) of (H, W, 3 or 4) bytes, on the device the bytes are on."""
        return self.preparing(picture)(picture)

    def preparing(self, data: Tensor) -> Callable[[Tensor], Tensor]:
        """What turns ``Pixels.data`` like this one, moved to the model's device, into pixel values."""
        if data.dtype != torch.uint8:
            return lambda values: values
        height, width = data.shape[:2]
        values = self.pixel_pipeline(height, width, data.device)
        return lambda picture: values(picture[..., :3])

    def tower_inputs(self, batch: Sequence[Pixels]) -> Tensor:
        """Pixel values of all pictures of the batch, on the model's device and in its dtype."""
        device = self.language.device
        return torch.cat([self.pixel_values(item.data.to(device, non_blocking=True)) for item in batch]).to(
            self.language.dtype
        )

    def normaliser(self, device: torch.device) -> Normaliser:
        if device not in self._normalisers:
            self._normalisers[device] = Normaliser(self.byte_values(), device)
        return self._normalisers[device]

    def byte_values(self) -> Tensor:
        """(3, 256) float32 normalised value of each byte in each channel."""
        return processor_table(self.image_processor)

    @torch.inference_mode()
    def encode(self, batch: Sequence[Pixels], needs: Iterable[str] = ()) -> list[Encoded]:
        """Vision tower once over the batch, keeping what the signals in ``needs`` are read from.

        Each picture is billed its share of the time.
        """
        keep = hidden_indices(needs, len(self.vision_blocks))
        watch = Stopwatch(self.language.device, shared_by=len(batch))
        encoded = self.vision(batch, keep)
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
        """How many of the blocks a picture's tokens depend on."""
        return len(self.vision_blocks)

    def serves(self, name: str) -> str | None:
        """None when this architecture can compute the signal, else the reason why not."""
        kind, _ = split_name(name)
        return None if kind.startswith("lm.") else f"{type(self).__name__} has no signal {kind}"

    def vision_signal(self, name: str, encoded: Encoded) -> Tensor:
        """A ``vision.*`` signal of one encoded picture."""
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

    @classmethod
    def load(
        cls, source: str, *, dtype: torch.dtype, device: torch.device, attention: str, options: ImageOptions
    ) -> Backbone:
        import transformers

        transformers.utils.logging.disable_progress_bar()
        model = getattr(transformers, cls.model_class).from_pretrained(
            source, dtype=dtype, attn_implementation=attention, use_safetensors=True
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(source)
        if tokenizer.chat_template is None:
            tokenizer.chat_template = _processor_template(source)
        processor = getattr(transformers, cls.image_processor_class).from_pretrained(source)
        return cls(model.to(device), tokenizer, processor, options)


def _processor_template(source: str) -> str:
    """The chat template that older repositories keep with the processor instead of the tokenizer."""
    import json

    from transformers.utils import cached_file

    for name in ("chat_template.jinja", "chat_template.json"):
        path = cached_file(source, name, _raise_exceptions_for_missing_entries=False)
        if path is not None:
            text = Path(path).read_text(encoding="utf-8")
            return text if name.endswith(".jinja") else str(json.loads(text)["chat_template"])
    raise SightlineError(f"{source} has no chat template (chat_template.jinja or in tokenizer_config.json)")
