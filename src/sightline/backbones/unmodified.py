"""The checkpoint as transformers itself calls it: its own image processor, its ordinary forward."""

from __future__ import annotations

import inspect

import torch
from PIL import Image
from torch import Tensor

from sightline.backbones.base import Backbone


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
