"""The general route: any type of transformers whose image features take the place of placeholders in the sequence.

The checkpoint's own processor prepares the image and writes its placeholders, the model's own code makes the features,
once per image. Pruning happens between the two halves of the model, so nothing here is about one architecture: cells
are found by sending ramps through processor and tower, positions are the model's own, and the decoder is our loop where
that is measured to give the same, else the model's own. A file of its own may declare what is found here, and more.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from PIL import Image
from torch import Tensor

from sightline.backbones import general_types
from sightline.backbones.base import Backbone
from sightline.backbones.found_cells import FoundCells, cached_cells, find_cells
from sightline.backbones.language import LanguageModel
from sightline.backbones.options import ImageOptions
from sightline.backbones.own_decoder import IMAGE, TEXT, OwnDecoder, image_is_one
from sightline.backbones.pixels import Pixels
from sightline.backbones.plain_layers import unlike_the_loop
from sightline.backbones.pretrained import whole_model
from sightline.backbones.processor_prompting import ProcessorPrompting
from sightline.backbones.processors import processor_of
from sightline.backbones.recorded import Record, blocks_of
from sightline.backbones.signals import BLOCK_KINDS, HIDDEN_KINDS, split_name
from sightline.backbones.span_plan import Layout, SpanPlan, owners
from sightline.backbones.token_signals import CLASS_KINDS, ROWS, token_signal
from sightline.core.prefix import Encoded, PositionPolicy
from sightline.core.selection import Budget
from sightline.core.slot_positions import SlotPositions
from sightline.errors import SightlineError
from sightline.geometry.blocks import token_blocks
from sightline.geometry.cells import Cells
from sightline.geometry.legibility import Sampling

PIXELS = "pixel_values"
SERVED_KINDS = (*HIDDEN_KINDS, *BLOCK_KINDS)
TEXTS = frozenset({"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "text_replacement_offsets"})
"""What a processor returns about the text."""


class General(ProcessorPrompting, Backbone):
    """A checkpoint of any image-text type.

    A span holds the image's tokens, whose cells are known, and separators, which come from nowhere in it: features
    without a source, and text that the processor writes between the features.
    """

    class_token: ClassVar[bool] = False
    """Whether the vision tower puts a class token before the patches of every tile."""
    first_position: ClassVar[int] = 0
    """What the model numbers the first token of a sequence by."""
    fixed_tokens = "its class does not say how fewer tokens are asked for (Backbone.fitting)"

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        processor: Any,
        options: ImageOptions,
        identity: Mapping[str, Any] | None = None,
    ) -> None:
        self.processor = processor
        self.identity = identity or {}
        """What cells depend on beside the size and the options of an image; empty: they are found anew every time."""
        self.body = getattr(model, "model", model)
        self.plans: dict[tuple[ImageOptions, tuple[int, int]], SpanPlan] = {}
        super().__init__(model, tokenizer, processor.image_processor, options)

    @classmethod
    def load(
        cls, source: str, *, dtype: torch.dtype, device: torch.device, attention: str, options: ImageOptions
    ) -> General:
        import transformers

        transformers.utils.logging.disable_progress_bar()
        folder = Path(source)
        config = transformers.AutoConfig.from_pretrained(folder)
        kind = general_types.model_class(config.model_type)
        reason = general_types.refusal(kind)
        if reason is not None:
            raise SightlineError(f"{folder.name} is a '{config.model_type}' model: {reason}")
        processor = processor_of(folder, config)
        model = whole_model(kind, folder, config=config, dtype=dtype, attn_implementation=attention)
        identity = {"model": config.to_dict(), "processor": processor.image_processor.to_dict()}
        return cls(model.to(device), processor.tokenizer, processor, options, identity)

    # ------------------------------------------------------------------ language

    @property
    def image_token_id(self) -> int:
        config = self.model.config
        for place in (config, self.processor):
            for name in ("image_token_id", "image_token_index"):
                if getattr(place, name, None) is not None:
                    return int(getattr(place, name))
        raise SightlineError(f"{type(self.model).__name__} does not say which token an image's features replace")

    @property
    def axes(self) -> int:  # type: ignore[override]
        return 3 if hasattr(self.body, "get_rope_index") else 1

    @property
    def text_model(self) -> Any:
        return self.model.get_decoder()

    def token_types(self, kinds: Tensor) -> Tensor:
        """What the model takes as token types, from the kinds of slots of ``sightline.backbones.own_decoder``."""
        return image_is_one(kinds)

    def language_model(self) -> LanguageModel:
        """Our loop where it gives what the decoder gives, else the model's own forward."""
        text_model, head = self.text_model, self.model.get_output_embeddings()
        reason = unlike_the_loop(self.body, text_model, self.axes)
        if reason is None:
            return LanguageModel(text_model, head, self.axes)
        return OwnDecoder(
            self.body,
            text_model,
            head,
            self.axes,
            reason=reason,
            first_position=self.first_position,
            token_types=self.token_types,
        )

    # ------------------------------------------------------------------ images

    def preprocess(self, image: Image.Image, into: Tensor | None = None, *, budget: Budget | None = None) -> Pixels:
        """The checkpoint's own processor, on the host."""
        started = time.perf_counter()
        fit = None if budget is None else self.fit(image.size, budget)
        shown = self.under(None if fit is None else fit.options)
        image = image if image.mode == "RGB" else image.convert("RGB")
        processed = shown.processed(image)
        inputs = image_inputs(processed)
        data = inputs.pop(PIXELS)
        shown.remember(image.size, processed)
        grid = (1, data.numel() // data.shape[-1], data.shape[-1])
        return Pixels(data, grid, image.size, (time.perf_counter() - started) * 1e3, fit, inputs)

    def image_inputs(self, image: Image.Image) -> dict[str, Tensor]:
        return image_inputs(self.processed(image))

    def span_ids(self, size: tuple[int, int]) -> tuple[int, ...]:
        return self.plan(size).ids

    def sequence_types(self, sequence: Tensor) -> Tensor:
        return self.token_types(torch.where(sequence == self.image_token_id, IMAGE, TEXT))

    def token_count(self, size: tuple[int, int]) -> int:
        return self.plan(size).n

    def plan(self, size: tuple[int, int]) -> SpanPlan:
        """How the span of an image of this (width, height) is made up."""
        key = (self.options, size)
        if key not in self.plans:
            self.remember(size, self.processed(Image.new("RGB", size, (255, 255, 255))))
        return self.plans[key]

    def remember(self, size: tuple[int, int], processed: Any) -> None:
        """Works out the plan of a size when its first image comes."""
        key = (self.options, size)
        if key in self.plans:
            return
        ids = self.written(processed).ids
        features = (torch.tensor(ids) == self.image_token_id).nonzero()[:, 0]
        cells, sourced, layout = self.cells(size, image_inputs(processed))
        if len(sourced) != len(features):
            raise SightlineError(
                f"{type(self.model).__name__}: the processor writes {len(features)} placeholders and the tower makes "
                f"{len(sourced)} features for an image of {size[0]} x {size[1]}"
            )
        if not sourced.any():
            raise SightlineError(
                f"{type(self.model).__name__}: no visual token comes from a place in the image (a Q-Former, a "
                "resampler, a codebook): there are no cells to audit"
            )
        self.plans[key] = SpanPlan(
            ids=ids,
            features=features,
            sourced=sourced,
            cells=cells,
            layout=layout,
            owners=owners(len(ids), features, sourced, layout),
            positions=self.span_positions(ids, image_inputs(processed)),
        )

    def cells(self, size: tuple[int, int], inputs: Mapping[str, Tensor]) -> tuple[Cells, Tensor, Layout]:
        """(N, 4) cells, (P,) which features have one, and the layout of the N; found, where no class declares them."""
        found = self.found_cells(size)
        cells, sourced = found.cells[found.sourced], torch.from_numpy(found.sourced)
        return cells, sourced, token_blocks(cells, found.tiles[found.sourced])

    def found_cells(self, size: tuple[int, int]) -> FoundCells:
        """Cells of all features of an image of this (width, height), by ramps; remembered if possible."""

        def find() -> FoundCells:
            return find_cells(size, self.image_inputs, lambda given: self.features(given)[0], self.tower_module)

        if not self.identity:
            return find()
        return cached_cells({**self.identity, "options": self.options.as_dict()}, size, find)

    @property
    def tower_module(self) -> Any:
        """What makes features of pixels; its attention is silenced while cells are found."""
        return self.body

    def features(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """(P, D) features in the order of the placeholders, and DeepStack levels, by the model's own code."""
        language = self.language
        given = {name: value.to(language.device) for name, value in inputs.items() if name in self._feature_arguments}
        given[PIXELS] = given[PIXELS].to(language.dtype)
        output = self.body.get_image_features(**given, return_dict=True)
        levels = getattr(output, "deepstack_features", None) or ()
        return rows(getattr(output, "pooler_output", output)), tuple(rows(level) for level in levels)

    @cached_property
    def _feature_arguments(self) -> frozenset[str]:
        return frozenset(inspect.signature(self.body.get_image_features).parameters)

    def vision(self, batch: Sequence[Pixels], needs: frozenset[str]) -> list[Encoded]:
        """Images whose inputs are alike in shape go through the tower side by side, others one by one."""
        shapes = {tuple((name, value.shape) for name, value in self._inputs(item).items()) for item in batch}
        if len(shapes) > 1:
            return [encoded for item in batch for encoded in self.vision([item], needs)]
        given = [self._inputs(item) for item in batch]
        record = Record(self.vision_blocks, needs)
        with record.listening():
            features, levels = self.features({name: torch.cat([each[name] for each in given]) for name in given[0]})
        plans = [self.under(item.options).plan(item.size) for item in batch]
        counts = [len(plan.features) for plan in plans]
        if len(features) != sum(counts):
            raise SightlineError(f"{len(features)} features where {sum(counts)} placeholders stand")
        parts = zip(*(torch.split(each, counts) for each in (features, *levels)), strict=True)
        kept = record.captured(len(batch))
        return [self._seen(*each) for each in zip(batch, plans, parts, kept, strict=True)]

    @staticmethod
    def _inputs(item: Pixels) -> dict[str, Tensor]:
        return {**item.inputs, PIXELS: item.data}

    def _seen(self, item: Pixels, plan: SpanPlan, outputs: Sequence[Tensor], captured: dict[str, Tensor]) -> Encoded:
        """What the tower returned for one image: features, then DeepStack levels, and what was taken down."""
        shown = self.under(item.options)
        if captured:
            captured[ROWS] = shown.token_rows(item.size).to(outputs[0].device)
        tokens, deepstack, separators = plan.split(outputs[0], tuple(outputs[1:]), self.language.embed(plan.ids))
        return Encoded(
            tokens=tokens,
            deepstack=deepstack,
            cells=plan.cells,
            layout=plan.layout,
            sampling=shown.sampling(item),
            captured=captured,
            separators=separators,
            positions=plan.positions,
            usual_n=None if item.fit is None else item.fit.usual_n,
        )

    def sampling(self, pixels: Pixels) -> Sampling | None:
        return None if self.token_pixels is None else Sampling(pixels.size, self.token_pixels)

    # ------------------------------------------------------------------ positions

    def span_positions(self, ids: tuple[int, ...], inputs: Mapping[str, Tensor]) -> SlotPositions:
        """The model's own, asked with one text token before and behind the span."""
        if self.axes == 1:
            return SlotPositions.sequential(len(ids))
        head, tail = self._around_image(self.render("word", None))
        sequence = torch.tensor([[*head, *ids, *tail]])
        asked = {
            **inputs,
            "input_ids": sequence,
            "attention_mask": torch.ones_like(sequence),
            "mm_token_type_ids": (sequence == self.image_token_id).int(),
        }
        takes = inspect.signature(self.body.get_rope_index).parameters
        found, _ = self.body.get_rope_index(**{name: value for name, value in asked.items() if name in takes})
        start = len(head)
        span = found[:, 0, start : start + len(ids)].cpu() - start
        return SlotPositions(span, int(found[:, 0, start + len(ids)].max()) - start)

    def visual_positions(
        self, encoded: Encoded, slots: Tensor, start: int, policy: PositionPolicy
    ) -> tuple[Tensor, int | Tensor]:
        assert encoded.positions is not None
        return encoded.positions.kept(slots, start, policy)

    # ------------------------------------------------------------------ signals

    @cached_property
    def vision_blocks(self) -> Any:
        return blocks_of(self.vision_tower)

    @property
    def vision_tower(self) -> Any:
        return self.model.get_encoder("image")

    @property
    def title(self) -> str:
        """What messages call it: its class, or the checkpoint's type where that has none."""
        return type(self).__name__ if type(self) is not General else f"a '{self.model.config.model_type}' model"

    def serves(self, name: str) -> str | None:
        kind, _ = split_name(name)
        if kind.startswith("lm."):
            language = self.language
            return language.reason if isinstance(language, OwnDecoder) else None
        if type(self).token_rows is General.token_rows:
            return f"nobody has said which rows of its vision tower a token is made from, so there is no {kind}"
        if kind.startswith("clip."):
            return f"its vision tower is not the one of a CLIP checkpoint, so there is no {kind}"
        if kind in CLASS_KINDS and not self.class_token:
            return f"its vision tower has no class token, so there is no {kind}"
        return None if kind in SERVED_KINDS else f"{type(self).__name__} has no signal {kind}"

    def token_rows(self, size: tuple[int, int]) -> Tensor:
        """(N, m) rows of the vision tower, all tiles one behind the other, that each token is made from.

        A class that says so serves signals of the tower.
        """
        raise SightlineError(f"{type(self).__name__} does not say which rows of its tower a token is made from")

    def vision_signal(self, name: str, encoded: Encoded) -> Tensor:
        return token_signal(name, encoded.captured, len(self.vision_blocks), self.class_token)


def image_inputs(processed: Any) -> dict[str, Tensor]:
    """What a processor says about the image alone."""
    return {name: value for name, value in processed.items() if name not in TEXTS and isinstance(value, Tensor)}


def rows(features: Tensor | Sequence[Tensor]) -> Tensor:
    """(sum of P, D), whether transformers returns one tensor or one per image or tile."""
    return features.flatten(0, -2) if isinstance(features, Tensor) else torch.cat([rows(part) for part in features])
