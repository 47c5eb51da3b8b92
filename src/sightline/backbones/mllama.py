"""Mllama (Llama 3.2 Vision): the image never enters the sequence, some layers read it by cross-attention.

Their keys and values are made of a row for every patch of every tile, and of one for a class token in front of each
tile. What an arm keeps are rows: the text stays as long as it is, and every layer that reads the image reads fewer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from sightline.backbones.base import BACKBONES, as_dtype
from sightline.backbones.batches import Batch
from sightline.backbones.decoder_trials import output_head
from sightline.backbones.general import PIXELS, General
from sightline.backbones.own_decoder import OwnDecoder
from sightline.backbones.processors import WrittenImage
from sightline.backbones.prompting import Layout, SpanPlan
from sightline.core.prefix import Encoded, Prefix
from sightline.core.selection import PositionPolicy
from sightline.geometry.cells import Cells, tile_cells, within_image

SHAPE, THERE, SHOWN = "aspect_ratio_ids", "aspect_ratio_mask", "cross_attention_mask"
"""What the processor says of tiles: how they are laid out, which are there, and which a token of the text is shown."""
BESIDE = "its image is read by cross-attention: no token of it passes through the layers"
MISSING = -1
"""Position of the rows of tiles that are not there."""


@dataclass(kw_only=True)
class CrossAttentionBatch(Batch):
    """Texts side by side, and beside each the rows of its image."""

    rows: Tensor
    """(B, R, D), zeros behind a sequence's own."""
    looks: Tensor
    """(B, 1, S, R) additive: which rows a token of the text looks at."""
    shown: Tensor
    """(B, 1, S, 1) 1 for text that is shown an image, else 0."""


class CrossDecoder(OwnDecoder):
    """The model's own decoder, handed the span of a prefix as rows beside its text.

    The image's token and all behind it look at the rows of tiles that are there. Text before it is shown none, which
    here means, as in the model itself: it looks at all rows, and leaves out the feed-forward part of such a layer.
    """

    beside = True

    def _rows(self, sequences: Sequence[tuple[Prefix, int]], beyond: int = 0) -> tuple[Batch, Tensor]:
        batch, real = super()._rows([(text_of(prefix), branch) for prefix, branch in sequences], beyond)
        count, length, width = batch.hidden.shape
        # Where no row is left those of zeros are looked at: what attention finds there is nothing.
        rows = batch.hidden.new_zeros(count, max(1, *(prefix.span for prefix, _ in sequences)), width)
        blocked = torch.finfo(rows.dtype).min
        looks = rows.new_full((count, 1, length, rows.shape[1]), blocked)
        shown = rows.new_zeros(count, 1, length, 1)
        for b, (prefix, _) in enumerate(sequences):
            image, own = prefix.start - 1, slice(prefix.start, prefix.start + prefix.span)
            rows[b, : prefix.span] = prefix.embeds[own]
            looks[b, :, :, : prefix.span] = 0.0
            missing = prefix.positions[0, own] == MISSING
            looks[b, :, image:, : prefix.span].masked_fill_(missing, blocked)
            shown[b, :, image:] = (~missing).any()
        return CrossAttentionBatch(**vars(batch), rows=rows, looks=looks, shown=shown), real

    def _given(self, batch: Batch, real: Tensor, added: int = 0) -> dict[str, Any]:
        assert isinstance(batch, CrossAttentionBatch)
        return super()._given(batch, real) | {"cross_attention_states": batch.rows, **_seen(batch, 0)}

    def _of_next(self, batch: Batch, token: int) -> dict[str, Any]:
        """Rows are remembered, and it sees of them what the last token of the prompt sees."""
        assert isinstance(batch, CrossAttentionBatch)
        return _seen(batch, -1)


def _seen(batch: CrossAttentionBatch, first: int) -> dict[str, Any]:
    """What text from its ``first`` token on sees."""
    return {SHOWN: batch.looks[:, :, first:], "full_text_row_masked_out_mask": batch.shown[:, :, first:]}


def text_of(prefix: Prefix) -> Prefix:
    """The prefix without its image."""
    start, end = prefix.start, prefix.start + prefix.span
    embeds = torch.cat([prefix.embeds[:start], prefix.embeds[end:]])
    positions = torch.cat([prefix.positions[:, :start], prefix.positions[:, end:]], dim=1)
    segments = torch.cat([prefix.segments[:start], prefix.segments[end:]])
    text = replace(prefix, embeds=embeds, positions=positions, segments=segments)
    return replace(text, k=0, places=None, separators=0, prompt_length=prefix.prompt_length - prefix.span)


@BACKBONES.register("mllama")
class Mllama(General):
    """Rows of tiles that some language layers read by cross-attention; the text holds a single token for the image.

    That token is text as any other, the last of the head. Class tokens are separators, each of its tile; so are the
    rows of tiles that are not there, of the whole image, since text before the image's token looks at them. An image is
    padded to whole tiles: a patch that sees padding alone has an empty cell.
    """

    fixed_tokens = None

    # ------------------------------------------------------------------ language

    def language_model(self) -> CrossDecoder:
        text_model, head = self.text_model, output_head(self.model, self.body)
        return CrossDecoder(text_model, text_model, head, self.axes, reason="its image is read by cross-attention")

    def serves(self, name: str) -> str | None:
        return BESIDE if name.startswith("lm.") else super().serves(name)

    def visual_positions(
        self, encoded: Encoded, slots: Tensor, start: int, policy: PositionPolicy
    ) -> tuple[Tensor, int | Tensor]:
        """Rows have no positions: all are where the image's token is, those of tiles that are not there nowhere."""
        there = slots < len(encoded.layout) * self.tile_rows
        return torch.where(there, start - 1, MISSING)[None], start

    # ------------------------------------------------------------------ text

    def token_ids(self, text: str) -> list[int]:
        """A text without the first token is given one, behind an image that it begins with."""
        from transformers.models.mllama.processing_mllama import build_string_from_input

        return super().token_ids(build_string_from_input(text, self.tokenizer.bos_token, self.placeholder))

    def written(self, processed: Any) -> WrittenImage:
        return WrittenImage(self.placeholder, (self.image_token_id,))

    def _around_image(self, text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        head, tail = super()._around_image(text)
        return (*head, self.image_token_id), tail

    def span_ids(self, size: tuple[int, int]) -> tuple[int, ...]:
        return ()

    def slot_count(self, size: tuple[int, int]) -> int:
        return self.plan(size).slots

    def sequence_facts(self, sequence: Tensor, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        behind = (sequence == self.image_token_id).cumsum(dim=1)
        return {SHOWN: behind[..., None, None] * inputs[SHOWN][:, -1:]}

    # ------------------------------------------------------------------ images

    @property
    def vision_tower(self) -> Any:
        return self.body.vision_model

    @property
    def tile_rows(self) -> int:
        """Rows of a tile: its class token and its patches."""
        return int(self.vision_tower.num_patches)

    @property
    def token_pixels(self) -> int:
        return int(self.model.config.vision_config.patch_size) ** 2

    @property
    def _feature_arguments(self) -> frozenset[str]:
        return frozenset({PIXELS, SHAPE, THERE})

    def features(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Rows of all tiles; those that are not there come from no pixel."""
        given = self.feature_inputs(inputs)
        states = self.vision_tower(**as_dtype(given, self.language.dtype)).last_hidden_state
        rows = self.body.multi_modal_projector(states)
        there = given[THERE].bool()[..., None, None]
        return torch.where(there, rows, rows.detach()).flatten(0, -2), ()

    def written_for(self, size: tuple[int, int]) -> tuple[tuple[int, ...], dict[str, Tensor]]:
        """A slot for every row, of tiles that are not there as well."""
        inputs = self.image_inputs(Image.new("RGB", size))
        return (self.image_token_id,) * (inputs[THERE].numel() * self.tile_rows), inputs

    def cells(self, size: tuple[int, int], inputs: Mapping[str, Tensor]) -> tuple[Cells, Tensor, Layout]:
        from transformers.models.mllama.image_processing_pil_mllama import get_image_size_fit_to_canvas

        vision = self.model.config.vision_config
        edge, side = int(vision.image_size), int(vision.image_size) // int(vision.patch_size)
        tall, wide = vision.supported_aspect_ratios[int(inputs[SHAPE]) - 1]
        shown = self.shown_size(size)
        height, width = get_image_size_fit_to_canvas(shown[1], shown[0], tall * edge, wide * edge, edge)
        canvas = tile_cells((wide, tall), wide * tall, side, side) * ([wide * edge / width, tall * edge / height] * 2)
        sourced = torch.zeros(inputs[THERE].numel(), self.tile_rows, dtype=torch.bool)
        sourced[: wide * tall, 1:] = True
        return within_image(canvas), sourced.flatten(), ((side, side),) * (wide * tall)

    def _worked_out(self, size: tuple[int, int]) -> SpanPlan:
        plan = super()._worked_out(size)
        tile, patches = plan.between // self.tile_rows, self.tile_rows - 1
        there = tile < len(plan.layout)
        owners = [torch.where(there, tile * patches, 0), torch.where(there, (tile + 1) * patches, plan.n)]
        return replace(plan, owners=torch.stack(owners, dim=1))
