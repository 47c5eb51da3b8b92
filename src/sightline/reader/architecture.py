"""The reader's size in the stock Qwen3-VL architecture."""

from __future__ import annotations

from typing import Any

import torch
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from sightline.reader import vocabulary

FULL: dict[str, Any] = {
    "vision": {
        "hidden_size": 192,
        "depth": 6,
        "num_heads": 3,
        "intermediate_size": 768,
        "deepstack_visual_indexes": [1, 3],
    },
    "text": {"hidden_size": 256, "num_hidden_layers": 6, "intermediate_size": 768, "num_attention_heads": 4},
}
TOY: dict[str, Any] = {
    "vision": {
        "hidden_size": 64,
        "depth": 2,
        "num_heads": 2,
        "intermediate_size": 128,
        "deepstack_visual_indexes": [0],
    },
    "text": {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128, "num_attention_heads": 2},
}
PRESETS = {"full": FULL, "toy": TOY}
POSITIONS_PER_SIDE = 28
"""Learned positions per side: one per 16 px patch of the 448 px canvas, so that none is interpolated there."""


def build_config(preset: str = "full") -> Qwen3VLConfig:
    sizes = PRESETS[preset]
    head = sizes["text"]["hidden_size"] // sizes["text"]["num_attention_heads"]
    rotary = head // 2
    width = height = round(rotary * 10 / 32)
    return Qwen3VLConfig(
        text_config={
            **sizes["text"],
            "vocab_size": vocabulary.VOCABULARY_SIZE,
            "num_key_value_heads": sizes["text"]["num_attention_heads"] // 2,
            "head_dim": head,
            "max_position_embeddings": 8192,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [rotary - height - width, height, width],
                "mrope_interleaved": True,
            },
            "tie_word_embeddings": True,
            "pad_token_id": vocabulary.PAD,
            "eos_token_id": vocabulary.IM_END,
        },
        vision_config={
            **sizes["vision"],
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "out_hidden_size": sizes["text"]["hidden_size"],
            "num_position_embeddings": POSITIONS_PER_SIDE**2,
            "hidden_act": "gelu_pytorch_tanh",
        },
        image_token_id=vocabulary.IMAGE,
        video_token_id=vocabulary.VIDEO,
        vision_start_token_id=vocabulary.VISION_START,
        vision_end_token_id=vocabulary.VISION_END,
        tie_word_embeddings=True,
    )


def build_model(preset: str = "full", seed: int = 0) -> Qwen3VLForConditionalGeneration:
    """Freshly initialised, float32."""
    torch.manual_seed(seed)
    return Qwen3VLForConditionalGeneration._from_config(
        build_config(preset), attn_implementation="sdpa", dtype=torch.float32
    )
