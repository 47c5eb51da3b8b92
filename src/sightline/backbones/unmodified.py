"""The checkpoint as transformers itself calls it: its own image processor, its ordinary forward."""

from __future__ import annotations

import torch
from PIL import Image
from torch import Tensor

from sightline.backbones.base import Backbone
from sightline.core.prefix import Encoded


@torch.inference_mode()
def model_logits(backbone: Backbone, image: Image.Image, encoded: Encoded, ids: tuple[int, ...], head: int) -> Tensor:
    """The unmodified model's logits over the whole sequence: its own image processor, its ordinary forward."""
    logits: Tensor = backbone.model(**model_inputs(backbone, image, encoded.n, ids, head), use_cache=False).logits[0]
    return logits


def model_inputs(backbone: Backbone, image: Image.Image, n: int, ids: tuple[int, ...], head: int) -> dict[str, Tensor]:
    """What the unmodified model is called with: pixels from its own image processor, N placeholders behind the head."""
    inputs = processor_inputs(backbone, image)
    sequence = torch.tensor(
        [[*ids[:head], *[backbone.image_token_id] * n, *ids[head:]]], device=backbone.language.device
    )
    if backbone.axes == 3:
        inputs["mm_token_type_ids"] = (sequence == backbone.image_token_id).int()
    return {**inputs, "input_ids": sequence, "attention_mask": torch.ones_like(sequence)}


def processor_inputs(backbone: Backbone, image: Image.Image) -> dict[str, Tensor]:
    """What the checkpoint's own image processor makes of an image, on the model's device."""
    language = backbone.language
    features = backbone.image_processor(images=image, return_tensors="pt", **backbone.processor_arguments())
    inputs = {
        name: features[name].to(language.device) for name in ("pixel_values", "image_grid_thw") if name in features
    }
    return {**inputs, "pixel_values": inputs["pixel_values"].to(language.dtype)}
