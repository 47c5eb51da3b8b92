"""The three models of the paper, how each was run, and what stands in for them: in a demonstration, or by its size."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sightline.checks.demo import asset
from sightline.cost.shapes import shape_named
from sightline.errors import SightlineError

QWEN, LLAVA, INTERNVL = "qwen", "llava", "internvl"


@dataclass(frozen=True)
class PaperModel:
    """One of the three, with the settings that its rows in the paper have."""

    name: str
    """How commands, tables and folders call it."""
    title: str
    """As the paper prints it."""
    short: str
    """As the supplement prints it."""
    checkpoint: str
    """The published one."""
    model_type: str
    dtypes: Mapping[str, str]
    """Precision by probe set; ``*`` for all others."""
    width: int
    layers: int
    """Of its language model: a checkpoint of other sizes is another model."""
    bytes: int
    """Of the weights in 16 bits, counted on their shapes."""
    revision: str = ""
    """Commit that the artifact names; of the other two it has digests of shards in a file that was not published."""
    image_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """How images reach it, by scorer; ``*`` for all others."""

    def dtype(self, probes: str) -> str:
        return self.dtypes.get(probes, self.dtypes["*"])

    def images(self, scorer: str) -> Mapping[str, Any]:
        return self.image_options.get(scorer, self.image_options.get("*", {}))


MODELS = {
    name: PaperModel(name, **facts)
    for name, facts in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items()
}


RANDOM = "random-"
"""What folders of checkpoints begin with whose weights were drawn."""


def stand_in(source: str, model: str) -> str:
    """What stands in for one of the three: ``reader``, ``random weights``; nothing where it is the model itself."""
    from sightline.backbones.base import read_config
    from sightline.backbones.loading import checkpoint_folder

    paper = MODELS[model]
    if source.partition("@")[0] == paper.checkpoint:
        return ""
    try:
        folder = checkpoint_folder(source)
        text = read_config(folder).get("text_config") or {}
    except SightlineError:  # whoever wants to run it says so
        return ""
    sizes = {"hidden_size": paper.width, "num_hidden_layers": paper.layers}
    if all(text.get(name, size) == size for name, size in sizes.items()):
        return ""
    return "random weights" if folder.name.startswith(RANDOM) else folder.name


def named_models(given: Sequence[str]) -> dict[str, str]:
    """``PATH`` or ``NAME=PATH`` each -> checkpoint by the paper's name; a bare path is told by its architecture."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or name not in MODELS:
            name, path = _recognised(text), text
        if name in found:
            raise SightlineError(f"--models: both {found[name]} and {path} are given for {MODELS[name].title}")
        found[name] = path
    return found


def _recognised(path: str) -> str:
    from sightline.backbones.loading import checkpoint_folder, model_type

    kind = model_type(checkpoint_folder(path))
    for model in MODELS.values():
        if model.model_type == kind:
            return model.name
    known = ", ".join(f"{model.name} ({model.model_type})" for model in MODELS.values())
    raise SightlineError(f"--models {path}: the paper has no model of architecture '{kind}'; it has {known}")


# Checkpoints for a demonstration: the embedded reader, and random models of the other two architectures.

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


RANDOM_FORMS: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    LLAVA: ("image_token_index", "CLIPImageProcessor", {}),
    INTERNVL: ("image_token_id", "GotOcr2ImageProcessor", {
        "start_image_token": "<|vision_start|>", "end_image_token": "<|vision_end|>",
        "context_image_token": "<|image_pad|>", "video_token": "<|video_pad|>",
    }),
}  # fmt: skip
"""Of each other architecture what its configuration calls the image token, its processor, and its further tokens."""


def demo_models(out: Path, leave_out: Container[str] = ()) -> dict[str, str]:
    """Checkpoint by name: the reader speaks for Qwen, whose form it has; the others know nothing."""
    found = {QWEN: str(asset("reader"))}
    for name, (token, processor, tokens) in RANDOM_FORMS.items():
        folder = out / f"{RANDOM}{name}"
        if name not in leave_out and not (folder / "model.safetensors").is_file():
            shape = shape_named(f"tiny-{name}")
            settings = {**shape.processor, "image_processor_type": processor}
            _write(folder, name, {**shape.config, token: IMAGE_TOKEN}, settings, tokens)
        found[name] = str(folder)
    return {name: path for name, path in found.items() if name not in leave_out}


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
