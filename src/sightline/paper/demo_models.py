"""Checkpoints for a demonstration: the embedded reader, and random models of the other two architectures."""

from __future__ import annotations

import json
import shutil
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from sightline.checks.demo import asset
from sightline.cost.shapes import shape_named
from sightline.paper.models import INTERNVL, LLAVA, QWEN, RANDOM

IMAGE_TOKEN = 6
"""``<|image_pad|>`` of the reader's byte-level tokenizer, which the random models share."""
CHAT = (
    "{%- for message in messages -%}{{- '<|im_start|>' + message['role'] + '\\n' -}}"
    "{%- if message['content'] is string -%}{{- message['content'] -}}{%- else -%}"
    "{%- for part in message['content'] -%}{%- if part['type'] == 'image' -%}{{- '<|image_pad|>' -}}"
    "{%- elif part['type'] == 'text' -%}{{- part['text'] -}}{%- endif -%}{%- endfor -%}{%- endif -%}"
    "{{- '<|im_end|>\\n' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)


def demo_models(out: Path, leave_out: Container[str] = ()) -> dict[str, str]:
    """Checkpoint by name: the reader speaks for Qwen, whose form it has; the others know nothing."""
    found = {QWEN: str(asset("reader"))}
    for name, make in ((LLAVA, _llava), (INTERNVL, _internvl)):
        folder = out / f"{RANDOM}{name}"
        if name not in leave_out:
            if not (folder / "model.safetensors").is_file():
                make(folder)
            found[name] = str(folder)
    return {name: path for name, path in found.items() if name not in leave_out}


def _llava(folder: Path) -> None:
    shape = shape_named("tiny-llava")
    processor = {**shape.processor, "image_processor_type": "CLIPImageProcessor"}
    _write(folder, "llava", {**shape.config, "image_token_index": IMAGE_TOKEN}, processor, {})


def _internvl(folder: Path) -> None:
    shape = shape_named("tiny-internvl")
    processor = {**shape.processor, "image_processor_type": "GotOcr2ImageProcessor"}
    names = {
        "start_image_token": "<|vision_start|>",
        "end_image_token": "<|vision_end|>",
        "context_image_token": "<|image_pad|>",
        "video_token": "<|video_pad|>",
    }
    _write(folder, "internvl", {**shape.config, "image_token_id": IMAGE_TOKEN}, processor, names)


def _write(
    folder: Path, kind: str, config: Mapping[str, Any], processor: Mapping[str, Any], tokens: Mapping[str, str]
) -> None:
    """An ordinary checkpoint folder with seeded random weights, which come last: it is whole or made again."""
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText
    from transformers.utils import logging

    logging.disable_progress_bar()

    folder.mkdir(parents=True, exist_ok=True)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(asset("reader") / file, folder / file)
    if tokens:
        path = folder / "tokenizer_config.json"
        settings = json.loads(path.read_text(encoding="utf-8"))
        settings["extra_special_tokens"] = dict(tokens)
        path.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHAT, encoding="utf-8")
    (folder / "preprocessor_config.json").write_text(json.dumps(processor, indent=1) + "\n", encoding="utf-8")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForImageTextToText.from_config(AutoConfig.for_model(kind, **config))
    model.save_pretrained(folder)
