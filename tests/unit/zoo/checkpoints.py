"""What tests of the zoo share: an image, a question about it, and what a checkpoint's processor makes of both."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from PIL import Image

QUESTION = "Is the word EXIT visible in the image?"
ABOUT_TEXT = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "labels")


def photograph(width: int = 150, height: int = 100) -> Image.Image:
    noise = np.random.default_rng(3).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise)


def prompt(processor: Any) -> str:
    """A question about one image in the words of the checkpoint's template, or of its processor where it has none."""
    if processor.chat_template is None:
        return f"{processor.image_token}{QUESTION}"
    turn = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": QUESTION}]}
    written = processor.tokenizer.apply_chat_template(
        [turn], chat_template=processor.chat_template, add_generation_prompt=True, tokenize=False
    )
    return str(written)


def inputs_of(processor: Any, image: Image.Image) -> dict[str, torch.Tensor]:
    return dict(
        processor(
            text=[prompt(processor)],
            images=[image],
            return_tensors="pt",
            add_special_tokens=False,
            return_mm_token_type_ids=True,
        )
    )


def features_of(model: Any, inputs: dict[str, torch.Tensor]) -> int:
    """How many features the model makes of the image."""
    given = {name: value for name, value in inputs.items() if name not in ABOUT_TEXT}
    holder = model if hasattr(model, "get_image_features") else model.model
    features = holder.get_image_features(**given).pooler_output
    return sum(part.reshape(-1, part.shape[-1]).shape[0] for part in features)


def placeholders(model: Any, inputs: dict[str, torch.Tensor]) -> int:
    return int((inputs["input_ids"] == model.config.image_token_id).sum())
