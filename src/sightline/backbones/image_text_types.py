"""Image-text types of transformers: which class holds a checkpoint, and which the general route can be tried on.

Told from classes and ``config.json`` alone, before anything is loaded.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError

TWINS = {
    "internvl_chat": "OpenGVLab/InternVL3_5-8B-HF and others that end in -HF",
    "llava_llama": "llava-hf/llava-1.5-7b-hf",
    "llava_mistral": "llava-hf/llava-v1.6-mistral-7b-hf",
    "llava_qwen": "llava-hf/llava-onevision-qwen2-7b-ov-hf",
    "multi_modality": "deepseek-community/deepseek-vl-7b-chat or deepseek-community/Janus-Pro-7B",
    "GOT": "stepfun-ai/GOT-OCR-2.0-hf",
    "ovis": "thisisiron/Ovis2-2B-hf",
}
"""Types whose code is not in transformers, and where the same model is published in a form that is."""
THINKER = "_thinker"
"""How the type of the part that sees and reads ends, of a model that also speaks: published checkpoints hold both."""


def model_class(model_type: str) -> Any:
    """The class of transformers that holds checkpoints of an image-text type; refused in words if there is none."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as NAMES

    name = NAMES.get(model_type) or NAMES.get(f"{model_type}{THINKER}")
    if name is None:
        raise SightlineError(
            f"transformers {transformers.__version__} has no image-text type '{model_type}'; a newer one may know it, "
            "or add it as an architecture (docs/add-a-backbone.md)"
        )
    return getattr(transformers, name)


def foreign(config: Mapping[str, Any]) -> str | None:
    """Of a ``config.json`` whose type transformers does not have: that its code is elsewhere, and what to take instead.

    None where nothing speaks of code elsewhere: then the type may be one of a newer transformers.
    """
    kind = str(config.get("model_type"))
    if kind in image_text_types() or not ("auto_map" in config or kind in TWINS):
        return None
    where = "comes with the checkpoint (auto_map in config.json)" if "auto_map" in config else "is not in transformers"
    twin = f"; the same model in a form that runs: {TWINS[kind]}" if kind in TWINS else ""
    return f"its code {where}, and foreign code is never run{twin}"


def class_and_config(folder: Path, named: str = "") -> tuple[Any, Any, str]:
    """The class of transformers that holds a checkpoint, its configuration, and what it calls its type.

    ``named`` is that class where transformers does not know the type: it is read as one that transformers knows.
    """
    import transformers

    if not named:
        config = transformers.AutoConfig.from_pretrained(folder)
        kind = config.model_type
        return model_class(kind), getattr(config, "thinker_config", config), kind
    kind = getattr(transformers, named)
    values, _ = kind.config_class.get_config_dict(folder)
    config = kind.config_class.from_dict({**values, "model_type": kind.config_class.model_type})
    return kind, config, str(values["model_type"])


def image_text_types() -> dict[str, str]:
    """Every image-text type of the installed transformers, with the name of its class."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as NAMES

    return dict(NAMES)


def _inner_class(kind: Any) -> Any:
    """The class of the model without its output head; some types have image features there alone."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES as NAMES

    return getattr(transformers, str(NAMES.get(kind.config_class.model_type)), None)


def pixels_of(features: Any) -> str | None:
    """What a function that makes image features calls the pixel values: ``pixel_values``, ``pixel_values_images``."""
    takes = () if features is None else inspect.signature(features).parameters
    return next((name for name in takes if "pixel_values" in name), None)


def refusal(kind: Any) -> str | None:
    """None for a class that the general route can be tried on, else why not.

    What only a loaded model can tell (tokens without cells, an output head that does more than multiply) is refused
    when it is loaded.
    """
    seeing = next((part for part in (_inner_class(kind), kind) if hasattr(part, "get_image_features")), None)
    if seeing is None:
        return (
            "its class has no get_image_features: what it sees does not become tokens of the sequence "
            "(cross-attention, an encoder of its own, or no vision tower)"
        )
    if getattr(kind.config_class, "is_encoder_decoder", False):
        return "it has an encoder for the whole prompt, not a sequence that could be shortened"
    if pixels_of(seeing.get_image_features) is None:
        return "its image features are not made of pixel_values"
    takes = inspect.signature(kind.forward).parameters
    lacking = [name for name in ("inputs_embeds", "attention_mask") if name not in takes]
    if lacking:
        return f"its forward takes no {lacking[0]}"
    return None
