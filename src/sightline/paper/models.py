"""The three models of the paper, and how each was run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sightline.errors import SightlineError

QWEN, LLAVA, INTERNVL = "qwen", "llava", "internvl"


@dataclass(frozen=True)
class PaperModel:
    """One of the three, with the settings that its rows in the paper have."""

    name: str
    """How presets and folders call it."""
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
    image_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """How images reach it, by scorer; ``*`` for all others."""

    def dtype(self, probes: str) -> str:
        return self.dtypes.get(probes, self.dtypes["*"])

    def images(self, scorer: str) -> Mapping[str, Any]:
        return self.image_options.get(scorer, self.image_options.get("*", {}))


MODELS = {
    model.name: model
    for model in (
        PaperModel(
            QWEN,
            "Qwen3-VL-8B",
            "Qwen",
            "Qwen/Qwen3-VL-8B-Instruct",
            "qwen3_vl",
            {"*": "bfloat16"},
            4096,
            36,
            {
                # One size for every image: 731 to 840 visual tokens on the confirmation set.
                "yes_no": {"min_pixels": 802_816, "max_pixels": 802_816},
                # Open questions see their image at its own size, within bounds.
                "*": {"min_pixels": 50_176, "max_pixels": 802_816},
                # OCRBench's yes/no questions were put to very small images: 47 visual tokens on average.
                "verification": {"min_pixels": 50_176, "max_pixels": 50_176},
            },
        ),
        PaperModel(
            LLAVA,
            "LLaVA-1.5-7B",
            "LLaVA",
            "llava-hf/llava-1.5-7b-hf",
            "llava",
            {"*": "float16", "development": "bfloat16"},
            4096,
            32,
        ),
        PaperModel(
            INTERNVL,
            "InternVL3.5-8B",
            "InternVL",
            "OpenGVLab/InternVL3_5-8B-HF",
            "internvl",
            {"*": "bfloat16"},
            4096,
            36,
            {"*": {"min_tiles": 1, "max_tiles": 12}},
        ),
    )
}


RANDOM = "random-"
"""What folders of checkpoints begin with whose weights were drawn."""


def stand_in(source: str, model: str) -> str:
    """What stands in for one of the three: ``reader``, ``random weights``; nothing where it is the model itself."""
    from sightline.backbones.checkpoints import read_config
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
