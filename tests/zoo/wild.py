"""Architectures that nobody wrote down: the default configuration of a type with every size reduced by rules."""

import inspect
import json
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from sightline.backbones.from_transformers import image_processor_class, image_text_types, processor_class
from tests.zoo.specimen import STANDARD, Id, Species, Vocabulary, flat, load_data

# Any architecture of transformers made tiny: its default configuration with every size reduced.


WIDTH, HEAD = 64, 16
"""Of a language model and of its heads."""
GRID = 8
"""Patches along a side of an image or tile."""
RULES = load_data("shrinking.yaml")


def shrunk(settings: Mapping[str, Any], tower: bool = False) -> dict[str, Any]:
    """A copy of a configuration's settings with every size reduced; nested configurations too."""
    rules = {**RULES["everywhere"], **RULES["tower" if tower else "language"]}
    small = {name: _shrunk(name, value, rules, tower) for name, value in settings.items()}
    for name in ("num_hidden_layers", "num_layers", "depth"):
        if isinstance(settings.get(name), int):
            small.update(_cut_to_layers(small, settings[name], small[name]))
    if isinstance(small.get("image_size"), int | list | tuple) and "patch_size" in small:
        patch = small["patch_size"]
        side = GRID * (patch if isinstance(patch, int) else patch[0])
        small["image_size"] = side if isinstance(small["image_size"], int) else [side, side]
    if isinstance(small.get("window_size"), int):  # in pixels or in patches
        small["window_size"] = 4 * (small["patch_size"] if small["window_size"] > WIDTH else 1)
    return small


def _shrunk(name: str, value: Any, rules: Mapping[str, Any], tower: bool) -> Any:
    if isinstance(value, Mapping) and name.endswith("config"):
        return shrunk(value, bool(re.search("vision|image|tower|sam|vit|clip|audio|qformer|perceiver|vq", name)))
    if name in ("rope_parameters", "rope_scaling") and isinstance(value, Mapping):
        return _rope(value)
    if not value or isinstance(value, bool | str):
        return value
    found = [small for pattern, small in rules.items() if small is not None and re.fullmatch(pattern, name)]
    if found and isinstance(value, list) and not isinstance(found[0], list):
        return [found[0]] * len(value)
    return type(value)(found[0]) if found else value


def _rope(value: Mapping[str, Any]) -> dict[str, Any]:
    """Sections of M-RoPE share the frequencies of a smaller head: 2 for time, 3 for rows, 3 for columns."""
    small: dict[str, Any] = {name: _rope(part) if isinstance(part, Mapping) else part for name, part in value.items()}
    if "mrope_section" in small:
        turned = HEAD // 2 * float(small.get("partial_rotary_factor") or 1)
        small["mrope_section"] = {8: [2, 3, 3], 4: [2, 1, 1], 2: [1, 1, 0]}.get(int(turned), [2, 3, 3])
    return small


def _cut_to_layers(settings: Mapping[str, Any], before: int, layers: int) -> dict[str, Any]:
    """Lists with an entry per layer, cut so that every kind of layer is still there."""
    cut = {}
    for name, value in settings.items():
        if isinstance(value, list | tuple) and len(value) == before > layers:
            kinds = list(dict.fromkeys(value))
            cut[name] = [kinds[0]] * (layers - len(kinds) + 1) + kinds[1:]
    return cut


# A species for an architecture that nobody wrote down: read off its config, processor and image processor classes.


ROLES = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
CODES = [f"IMGIMG{''.join(chr(ord('A') + int(digit)) for digit in str(code))}Z" for code in range(64)]
"""Chameleon's tokens of its visual codebook: the digits of a code as letters."""
EXCEPTIONS = load_data("exceptions.yaml")
for _model, _image in (("chameleon", "<image>"), ("emu3", "<|image_token|>")):
    _tokens = CODES if _model == "chameleon" else list(flat(EXCEPTIONS["emu3"]["tokens"]))
    EXCEPTIONS[_model]["tokens"] = _tokens
    EXCEPTIONS[_model]["config"]["vocabulary_map"] = {"<image>": Id(_image), **{token: Id(token) for token in _tokens}}
LITERAL = r"""["'](<[^\s"'>]+>|\[[A-Z_/]+\])["']"""
"""A special token in a processor's source."""


def species_of(name: str) -> Species:
    """The species of any image-text type. What cannot be read off its classes stands in ``EXCEPTIONS``.

    Beside types there are forms of them by a name of their own, ``of`` the type.
    """
    from transformers import CONFIG_MAPPING

    odd = EXCEPTIONS.get(name, {})
    model_type = odd.get("of", name)
    odd = _merged(EXCEPTIONS.get(model_type, {}), odd)
    config = _merged(shrunk(_own(CONFIG_MAPPING[model_type]().to_dict())), odd.get("config", {}))
    with TemporaryDirectory() as place:
        kind, image_kind = _classes(model_type, odd, Path(place) / model_type)
    source = Path(inspect.getfile(kind)).read_text(encoding="utf-8")
    roles = {role: f"<|{role}|>" for role in _roles(source) if role not in odd.get("no_roles", ())}
    literals = (*re.findall(LITERAL, source), *flat(odd.get("tokens", ())))
    parameter = inspect.signature(kind).parameters.get("image_token")
    default = None if parameter is None or parameter.default is parameter.empty else parameter.default
    image = odd.get("image_token") or roles.get("image_token") or default
    image = image or next((token for token in literals if re.search("(?i)im(a?g|_patch)|patch", token)), "<image>")
    config = _with_ids(config, {"image_token": image, **roles, **ROLES})
    tokens = dict.fromkeys((image, *literals, *roles.values(), *_tokens_of(config)))
    return Species(
        model_class=image_text_types()[model_type],
        model_type=model_type,
        processor_class=kind.__name__,
        config=config,
        vocabulary=Vocabulary(
            first=tuple(ROLES.values()),
            last=tuple(token for token in tokens if token not in ROLES.values()),
            roles={**ROLES, **roles},
        ),
        image_processor=_image_settings(image_kind, config) | odd.get("image_processor", {}),
        processor=_settings(kind, config) | odd.get("processor", {}),
        template=TEMPLATE.replace("IMAGE", odd.get("placeholder", image) * odd.get("placeholders", 1)),
        text_config="text_config" in config,
        adapter=odd.get("adapter"),
    )


TEMPLATE = """\
{%- for turn in messages -%}
{{- turn['role'] + ': ' -}}
{%- for part in turn['content'] -%}
{{- 'IMAGE' if part['type'] == 'image' else part['text'] -}}
{%- endfor -%}
{{- '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- 'assistant:' -}}{%- endif -%}
"""
"""No type's own: survey checkpoints show that the parts fit together, not how a published one was asked."""


def _classes(model_type: str, odd: Mapping[str, Any], folder: Path) -> tuple[Any, Any]:
    """Processor and image processor class, looked up as for a checkpoint that names what the exceptions name."""
    folder.mkdir()
    for file, key in (
        ("processor_config.json", "processor_class"),
        ("preprocessor_config.json", "image_processor_type"),
    ):
        if key in odd:
            (folder / file).write_text(json.dumps({key: odd[key]}), encoding="utf-8")
    config = SimpleNamespace(model_type=model_type)
    return processor_class(folder, config), image_processor_class(folder, config)


def _own(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without those that every configuration has, whatever its model."""
    from transformers import PreTrainedConfig

    common = set(PreTrainedConfig().to_dict()) - {"tie_word_embeddings", "is_encoder_decoder", "model_type"}
    common.add("per_layer_config")  # made from the kinds of layers where it is not given
    return {
        name: _own(value) if isinstance(value, Mapping) and name.endswith("config") else value
        for name, value in settings.items()
        if name not in common
    }


def _merged(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``changes`` laid over ``settings``; a nested configuration is changed, not replaced."""
    merged = dict(settings)
    for name, value in changes.items():
        nested = isinstance(value, Mapping) and isinstance(settings.get(name), Mapping)
        merged[name] = _merged(settings[name], value) if nested else value
    return merged


def _roles(source: str) -> list[str]:
    """Tokens that a processor asks its tokenizer for by name."""
    asked = re.findall(r"tokenizer\.(\w*token)\b", source) + re.findall(r'tokenizer, "(\w*token)"', source)
    return [role for role in dict.fromkeys(asked) if role not in (*STANDARD, "add_bos_token", "add_eos_token")]


def _with_ids(settings: Mapping[str, Any], tokens: Mapping[str, str]) -> dict[str, Any]:
    """Every ``..._token_id`` or ``..._token_index`` becomes the id of the token of that role, or of one made for it."""
    filled: dict[str, Any] = {}
    for name, value in settings.items():
        role = re.fullmatch(r"(\w*token)_(?:id|index|idx)", name)
        if isinstance(value, Mapping) and name.endswith("config"):
            filled[name] = _with_ids(value, tokens)
        elif role and not isinstance(value, Id) and (value is not None or role[1] == "image_token"):
            filled[name] = Id(tokens.get(role[1], f"<|{role[1]}|>"))
        else:
            filled[name] = value
    return filled


def _tokens_of(settings: Any) -> list[str]:
    if isinstance(settings, Id):
        return [str(settings)]
    parts = settings.values() if isinstance(settings, Mapping) else settings if isinstance(settings, list) else ()
    return [token for part in parts for token in _tokens_of(part)]


def _patch(config: Mapping[str, Any]) -> int:
    """Its side in pixels, wherever the settings of the vision tower are kept; ``GRID`` of them are an image or tile."""
    patch = (config.get("vision_config") or config).get("patch_size") or 14
    return int(patch if isinstance(patch, int) else patch[0])


def _image_settings(kind: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """Small sizes in the form in which the image processor keeps its own."""
    side = GRID * _patch(config)
    small = {"height": side, "width": side, "longest_edge": 4 * side, "shortest_edge": side}
    areas = {"shortest_edge": 4 * 28 * 28, "longest_edge": 64 * 28 * 28}
    settings: dict[str, Any] = {"image_processor_type": kind.__name__.removesuffix("Pil")}
    for name in ("size", "crop_size", "max_image_size", "high_res_size"):
        value = getattr(kind, name, None)
        if isinstance(value, Mapping):
            area = value.get("shortest_edge", 0) > 2000 or value.get("longest_edge", 0) > 20_000
            settings[name] = {edge: (areas if area else small).get(edge, old) for edge, old in value.items()}
    if isinstance(getattr(kind, "patch_size", None), int):
        settings["patch_size"] = _patch(config)
    return settings


def _settings(kind: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a processor class that have to agree with the model."""
    known = {
        "patch_size": _patch(config),
        "img_size": GRID * _patch(config),
        "vision_feature_select_strategy": config.get("vision_feature_select_strategy"),
        "num_image_tokens": GRID * GRID,
        "image_seq_length": GRID * GRID // 4,
        "spatial_merge_size": config.get("spatial_merge_size"),
        "num_additional_image_tokens": int(
            (config.get("vision_config") or config).get("model_type") == "clip_vision_model"
        ),
    }
    return {name: known[name] for name in inspect.signature(kind).parameters if known.get(name) is not None}
