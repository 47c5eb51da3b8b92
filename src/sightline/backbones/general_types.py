"""Which image-text types of transformers the general route can be tried on, told from their classes alone."""

from __future__ import annotations

import inspect
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


def image_text_types() -> dict[str, str]:
    """Every image-text type of the installed transformers, with the name of its class."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as NAMES

    return dict(NAMES)


def refusal(kind: Any) -> str | None:
    """None for a class that the general route can be tried on, else why not.

    What only a loaded model can tell (tokens without cells, an output head that does more than multiply) is refused
    when it is loaded.
    """
    if not hasattr(kind, "get_image_features"):
        return (
            "its class has no get_image_features: what it sees does not become tokens of the sequence "
            "(cross-attention, an encoder of its own, or no vision tower)"
        )
    if getattr(kind.config_class, "is_encoder_decoder", False):
        return "it has an encoder for the whole prompt, not a sequence that could be shortened"
    takes = inspect.signature(kind.forward).parameters
    lacking = [name for name in ("inputs_embeds", "attention_mask") if name not in takes]
    if lacking:
        return f"its forward takes no {lacking[0]}"
    return None
