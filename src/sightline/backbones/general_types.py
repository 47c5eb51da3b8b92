"""Which image-text types of transformers the general route can be tried on, told from their classes alone."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError


def model_class(model_type: str) -> Any:
    """The class of transformers that holds checkpoints of an image-text type; refused in words if there is none."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as NAMES

    name = NAMES.get(model_type)
    if name is None:
        raise SightlineError(
            f"transformers {transformers.__version__} has no image-text type '{model_type}'; a newer one may know it, "
            "or add it as an architecture (docs/add-a-backbone.md)"
        )
    return getattr(transformers, name)


def described(folder: Path, named: str = "") -> tuple[Any, Any, str]:
    """The class of transformers that holds a checkpoint, its configuration, and what it calls its type.

    ``named`` is that class where transformers does not know the type: it is read as one that transformers knows.
    """
    import transformers

    if not named:
        config = transformers.AutoConfig.from_pretrained(folder)
        return model_class(config.model_type), config, config.model_type
    kind = getattr(transformers, named)
    values, _ = kind.config_class.get_config_dict(folder)
    config = kind.config_class.from_dict({**values, "model_type": kind.config_class.model_type})
    return kind, config, str(values["model_type"])


def image_text_types() -> dict[str, str]:
    """Every image-text type of the installed transformers, with the name of its class."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as NAMES

    return dict(NAMES)


def seeing_part(model: Any) -> Any:
    """What makes image features and numbers positions: the model without its output head, or else with it."""
    inside = getattr(model, "model", model)
    return inside if hasattr(inside, "get_image_features") else model


def _inner_class(kind: Any) -> Any:
    """The class of the model without its output head; some types have image features there alone."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES as NAMES

    return getattr(transformers, str(NAMES.get(kind.config_class.model_type)), None)


def refusal_of_settings(config: Any) -> str | None:
    """Why a checkpoint of a type that can be tried cannot be served; None where nothing speaks against it."""
    if getattr(config.get_text_config(), "hidden_size_per_layer_input", 0):
        return "its layers read the ids of all tokens once more (per-layer embeddings), and those of an image have none"
    return None


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
    if "pixel_values" not in inspect.signature(seeing.get_image_features).parameters:
        return "its image features are not made of pixel_values"
    takes = inspect.signature(kind.forward).parameters
    if "moe_mm_token_type_ids" in takes:
        return "its experts are told which tokens stand for an image, which the general route does not tell them"
    lacking = [name for name in ("inputs_embeds", "attention_mask") if name not in takes]
    if lacking:
        return f"its forward takes no {lacking[0]}"
    return None
