"""A checkpoint folder through transformers: configuration and a model that is whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError

NAMED = 3
"""Missing tensors that a refusal names; it counts the others."""


def configuration(model_class: str, values: Mapping[str, Any]) -> Any:
    """The configuration in a ``config.json``, read as one of this class of transformers.

    By the type transformers finds the tokenizer, and how weights of older files are called today. A checkpoint of
    another package's architecture has a type it does not know: weights that it misses would be left at random.
    """
    import transformers

    kind = getattr(transformers, model_class).config_class
    try:
        return kind.from_dict({**values, "model_type": kind.model_type})
    except Exception as error:  # transformers checks a configuration in many ways
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise SightlineError(f"config.json does not describe a {model_class} ({said[0]})") from error


def whole_model(model_class: Any, folder: Path, **settings: Any) -> Any:
    """The model of a checkpoint folder, refused by name of a tensor that is not there or has another shape.

    Transformers would leave such a tensor at random and say so in a warning. Tied tensors need to be there once.
    """
    model, found = model_class.from_pretrained(
        folder, use_safetensors=True, output_loading_info=True, ignore_mismatched_sizes=True, **settings
    )
    for name, stored, wanted in sorted(found["mismatched_keys"]):
        raise SightlineError(
            f"{folder.name} does not fit together: {name} is {_sides(stored)}, its config.json asks for "
            f"{_sides(wanted)}; fetch the checkpoint again"
        )
    missing = sorted(found["missing_keys"])
    if missing:
        named = ", ".join(missing[:NAMED]) + (", ..." if len(missing) > NAMED else "")
        raise SightlineError(
            f"{folder.name} lacks {len(missing)} tensor{'s' * (len(missing) > 1)} that its config.json asks for: "
            f"{named}; fetch the checkpoint again"
        )
    return model


def _sides(shape: Iterable[int]) -> str:
    return " x ".join(map(str, shape))


def processor_template(source: str) -> str:
    """The chat template that older repositories keep with the processor instead of the tokenizer."""
    from transformers.utils import cached_file

    for name in ("chat_template.jinja", "chat_template.json"):
        path = cached_file(source, name, _raise_exceptions_for_missing_entries=False)
        if path is not None:
            text = Path(path).read_text(encoding="utf-8")
            return text if name.endswith(".jinja") else str(json.loads(text)["chat_template"])
    raise SightlineError(f"{source} has no chat template (chat_template.jinja or in tokenizer_config.json)")
