"""A checkpoint folder through transformers: model, tokenizer and image processor of a backbone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sightline.errors import SightlineError

if TYPE_CHECKING:
    from sightline.backbones.base import Backbone
    from sightline.backbones.options import ImageOptions


def load(
    kind: type[Backbone],
    source: str,
    *,
    dtype: torch.dtype,
    device: torch.device,
    attention: str,
    options: ImageOptions,
) -> Backbone:
    """A backbone of that kind. ``source`` is a folder; safetensors only, no remote code."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    model_class = getattr(transformers, kind.model_class)
    config_class = model_class.config_class
    values, _ = config_class.get_config_dict(source)
    # By the type transformers finds the tokenizer, and how weights of older files are called today. A checkpoint of
    # another package's architecture has a type it does not know: weights that it misses would be left at random.
    config = config_class.from_dict({**values, "model_type": config_class.model_type})
    model = model_class.from_pretrained(
        source, config=config, dtype=dtype, attn_implementation=attention, use_safetensors=True
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(source, config=model.config)
    model.config.model_type = values["model_type"]  # rows say what the checkpoint calls itself
    if tokenizer.chat_template is None:
        tokenizer.chat_template = processor_template(source)
    processor = getattr(transformers, kind.image_processor_class).from_pretrained(source)
    return kind(model.to(device), tokenizer, processor, options)


def refuse_unsupported(config: Any, image_processor: Any, steps: tuple[str, ...]) -> None:
    """A checkpoint whose image processor leaves a step out, or whose language layers attend in another way."""
    left_out = [step for step in steps if not getattr(image_processor, step)]
    if left_out:
        raise SightlineError(f"an image processor with {left_out[0]} = false is not supported; set it to true")
    layer_types = set(getattr(config.text_config, "layer_types", None) or ["full_attention"])
    if layer_types != {"full_attention"}:
        raise SightlineError(f"language layers of type {sorted(layer_types)} are not supported: only full attention")


def processor_template(source: str) -> str:
    """The chat template that older repositories keep with the processor instead of the tokenizer."""
    from transformers.utils import cached_file

    for name in ("chat_template.jinja", "chat_template.json"):
        path = cached_file(source, name, _raise_exceptions_for_missing_entries=False)
        if path is not None:
            text = Path(path).read_text(encoding="utf-8")
            return text if name.endswith(".jinja") else str(json.loads(text)["chat_template"])
    raise SightlineError(f"{source} has no chat template (chat_template.jinja or in tokenizer_config.json)")
