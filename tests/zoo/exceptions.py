"""What the rules of ``shrinking.py`` and ``wild.py`` cannot know of a type, by ``model_type``."""

from __future__ import annotations

from typing import Any

EXCEPTIONS: dict[str, dict[str, Any]] = {
    "cosmos3_omni": {"processor_class": "Qwen3VLProcessor"},
    "fast_vlm": {"processor_class": "LlavaProcessor", "image_processor_type": "CLIPImageProcessor"},
    "glm_ocr": {"processor_class": "Glm46VProcessor", "image_processor_type": "Glm46VImageProcessor"},
    "glmga": {"processor_class": "Glm46VProcessor"},
    "glm4v_moe": {"image_processor_type": "Glm4vImageProcessor"},
    "qwen2_5_omni_thinker": {
        "processor_class": "Qwen2_5OmniProcessor",
        "image_processor_type": "Qwen2VLImageProcessor",
    },
    "qwen3_omni_moe_thinker": {
        "processor_class": "Qwen3OmniMoeProcessor",
        "image_processor_type": "Qwen2VLImageProcessor",
    },
    "qwen3_vl_moe": {"image_processor_type": "Qwen2VLImageProcessor"},
    "kosmos-2": {"processor_class": "Kosmos2Processor"},
    "kosmos-2.5": {"processor_class": "Kosmos2_5Processor"},
    "shieldgemma2": {"processor_class": "Gemma3Processor"},
}
