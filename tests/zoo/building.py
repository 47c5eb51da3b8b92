"""From a species to a checkpoint folder that looks like a published one."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from sightline.backbones.loading import DEPTHS
from tests.zoo.specimen import NAMED, Id, Species, Vocabulary
from tests.zoo.stand_ins import stood_in_for
from tests.zoo.wild import species_of

SEED = 7
LARGEST = 5_000_000
"""Parameters of a checkpoint that still counts as tiny."""


def build(model_type: str, folder: Path) -> Path:
    """Writes the tiny checkpoint of an architecture into ``folder``, which is made where it is missing."""
    with stood_in_for(model_type):
        return write(NAMED.get(model_type) or species_of(model_type), folder)


def build_wrapped(wrapper: str, folder: Path) -> Path:
    """A model that also speaks, as it is published: the part that sees is one of its configuration and of its names."""
    from safetensors.torch import load_file, save_file

    build(f"{wrapper}_thinker", folder)
    thinker = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    _write(folder / "config.json", {"model_type": wrapper, "thinker_config": thinker})
    file = folder / "model.safetensors"
    save_file({f"thinker.{name}": value for name, value in load_file(file).items()}, file, {"format": "pt"})
    return folder


def deepened(source: Path, folder: Path, blocks: int) -> Path:
    """A copy of a tiny checkpoint whose vision tower has so many blocks, every other of them attending to all where
    some attend in windows; weights are drawn anew."""
    import transformers

    shutil.copytree(source, folder)
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    tower = settings["vision_config"]
    tower |= {name: blocks for name in DEPTHS if name in tower}
    tower |= {
        name: list(range(1, blocks, 2)) for name in ("fullatt_block_indexes", "global_attn_indexes") if name in tower
    }
    config = transformers.CONFIG_MAPPING[settings["model_type"]].from_dict(settings)
    model = getattr(transformers, settings["architectures"][0])(config)
    fill(model)
    model.save_pretrained(folder)
    return folder


def write(species: Species, folder: Path) -> Path:
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    model_class = getattr(transformers, species.model_class)
    settings = _with_ids(species.config, species.vocabulary)
    text = settings.setdefault("text_config", {}) if species.text_config else settings
    text["vocab_size"] = species.vocabulary.size
    config_class = transformers.CONFIG_MAPPING[species.model_type] if species.model_type else model_class.config_class
    settings.pop("model_type", None)
    config = config_class(**settings, dtype="float32")
    with torch.device("meta"):
        size = sum(weight.numel() for weight in model_class(config).parameters())
    if size > LARGEST:
        raise ValueError(f"{size:,} parameters: a size was not reduced")
    model = model_class(config)
    fill(model)
    ends = {role: species.vocabulary.roles.get(role) for role in ("bos_token", "eos_token", "pad_token")}
    model.generation_config.update(**{f"{role}_id": species.vocabulary.id(end) for role, end in ends.items() if end})
    model.save_pretrained(folder)
    if species.adapter is not None:
        write_adapter(model, folder / species.adapter["folder"], species.adapter)
    species.vocabulary.write(folder, species.processor_class)
    _write(folder / "preprocessor_config.json", {**species.image_processor, "processor_class": species.processor_class})
    _write(folder / "processor_config.json", {**species.processor, "processor_class": species.processor_class})
    if species.template is not None:
        (folder / "chat_template.jinja").write_text(species.template, encoding="utf-8")
    return folder


def write_adapter(model: torch.nn.Module, folder: Path, settings: dict[str, Any]) -> None:
    """A LoRA adapter of random weights for the layers whose names end as ``target_modules`` say."""
    from safetensors.torch import save_file

    random, rank, tensors = torch.Generator().manual_seed(SEED + 1), settings["r"], {}
    for name, layer in model.named_modules():
        if name.endswith(tuple(settings["target_modules"])):
            out, width = layer.weight.shape
            tensors[f"base_model.model.{name}.lora_A.weight"] = torch.randn(rank, width, generator=random) / width**0.5
            tensors[f"base_model.model.{name}.lora_B.weight"] = torch.randn(out, rank, generator=random) / rank
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    _write(folder / "adapter_config.json", {"peft_type": "LORA", **settings})


@torch.no_grad()
def fill(model: torch.nn.Module, seed: int = SEED) -> None:
    """Seeded random weights of a size that lets every part speak: matrices keep the variance of what they read.

    The usual initialisation of 0.02 would leave a narrow model nearly blind: attention uniform, features near zero.
    """
    random = torch.Generator().manual_seed(seed)
    for name, weight in sorted(model.named_parameters()):
        if name.endswith("gate") and weight.numel() == 1:  # closed until it is trained
            weight.fill_(1.0)
        elif weight.dim() >= 2:
            read = weight[0].numel() if weight.dim() > 3 else weight.shape[-1]
            weight.copy_(torch.randn(weight.shape, generator=random) / read**0.5)
        else:
            weight.add_(torch.randn(weight.shape, generator=random) * 0.05)


def _with_ids(settings: Any, vocabulary: Vocabulary) -> Any:
    """A copy in which every ``Id`` is the number of its token."""
    if isinstance(settings, Id):
        return vocabulary.id(settings)
    if isinstance(settings, dict):
        return {key: _with_ids(value, vocabulary) for key, value in settings.items()}
    if isinstance(settings, list):
        return [_with_ids(value, vocabulary) for value in settings]
    return settings


def _write(file: Path, settings: dict[str, Any]) -> None:
    file.write_text(json.dumps(settings, indent=2), encoding="utf-8")
