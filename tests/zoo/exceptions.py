"""What the rules of ``shrinking.py`` and ``wild.py`` cannot know of a type, by ``model_type``."""

from __future__ import annotations

from typing import Any

SECTIONS = {"text_config": {"rope_parameters": {"mrope_section": [2, 3, 3]}}}
"""M-RoPE of a head of 16, where the published sections stand in the code instead of the configuration."""

EXCEPTIONS: dict[str, dict[str, Any]] = {
    "aya_vision": {"image_token": "<|IMG_PATCH|>", "placeholder": "<image>"},
    "cosmos3_omni": {"processor_class": "Qwen3VLProcessor"},
    "diffusion_gemma": {"image_processor_type": "Gemma4ImageProcessor"},
    "fast_vlm": {"processor_class": "LlavaProcessor", "image_processor_type": "CLIPImageProcessor"},
    "glm46v": {"config": SECTIONS},
    "glm_ocr": {
        "processor_class": "Glm46VProcessor",
        "image_processor_type": "Glm46VImageProcessor",
        "config": SECTIONS,
    },
    "glmga": {"processor_class": "Glm46VProcessor", "config": SECTIONS},
    "glm4v_moe": {
        "image_processor_type": "Glm4vImageProcessor",
        "config": {"text_config": {"rope_parameters": {"mrope_section": [2, 1, 1]}}},
    },
    "kosmos-2": {"processor_class": "Kosmos2Processor"},
    "kosmos-2.5": {"processor_class": "Kosmos2_5Processor"},
    "paddleocr_vl": {"config": SECTIONS},
    "qwen2_5_omni_thinker": {
        "processor_class": "Qwen2_5OmniProcessor",
        "image_processor_type": "Qwen2VLImageProcessor",
    },
    "qwen3_omni_moe_thinker": {
        "processor_class": "Qwen3OmniMoeProcessor",
        "image_processor_type": "Qwen2VLImageProcessor",
    },
    "qwen3_vl_moe": {"image_processor_type": "Qwen2VLImageProcessor"},
    "shieldgemma2": {"processor_class": "Gemma3Processor", "placeholder": "<|boi_token|>"},
}
