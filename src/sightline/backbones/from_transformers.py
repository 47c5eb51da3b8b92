"""What transformers has for a checkpoint: the class that holds it, why the general route cannot be tried, a processor.

All but the processor is told from classes and ``config.json``, before anything is loaded.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from sightline.backbones.base import image_settings, read_settings
from sightline.errors import SightlineError, first_line

TWINS = {
    "internvl_chat": "OpenGVLab/InternVL3_5-8B-HF and others that end in -HF",
    "llava_llama": "llava-hf/llava-1.5-7b-hf",
    "llava_mistral": "llava-hf/llava-v1.6-mistral-7b-hf",
    "llava_qwen": "llava-hf/llava-onevision-qwen2-7b-ov-hf",
    "multi_modality": "deepseek-community/deepseek-vl-7b-chat or deepseek-community/Janus-Pro-7B",
    "GOT": "stepfun-ai/GOT-OCR-2.0-hf",
    "ovis": "thisisiron/Ovis2-2B-hf",
    "phi4mm": "microsoft/Phi-4-multimodal-instruct@refs/pr/70",
}
"""Types whose code is not in transformers, and where the same model is published in a form that is."""
THINKER = "_thinker"
"""How the type of the part that sees and reads ends, of a model that also speaks: published checkpoints hold both."""


def model_class(model_type: str) -> Any:
    """The class of transformers that holds checkpoints of an image-text type; refused in words if there is none."""
    import transformers

    names = image_text_types()
    name = names.get(model_type) or names.get(f"{model_type}{THINKER}")
    if name is None:
        raise SightlineError(
            f"transformers {transformers.__version__} has no image-text type '{model_type}'; a newer one may know it, "
            "or add it as an architecture (docs/add-a-backbone.md)"
        )
    return getattr(transformers, name)


def foreign_code_reason(config: Mapping[str, Any]) -> str | None:
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


@cache
def image_text_types() -> dict[str, str]:
    """Every image-text type of the installed transformers, with the name of its class: those that it calls so, and of
    those that hear as well the ones that have a vision tower."""
    from transformers import CONFIG_MAPPING
    from transformers.models.auto import modeling_auto as known

    names = dict(known.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
    others = known.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES.items() - names.items()
    return names | {kind: name for kind, name in sorted(others) if "vision_config" in CONFIG_MAPPING[kind].sub_configs}


def pixel_names(features: Any) -> list[str]:
    """What a function that makes image features calls the pixel values: ``pixel_values``, ``pixel_values_images``."""
    takes = () if features is None else inspect.signature(features).parameters
    return [name for name in takes if "pixel_values" in name]


def refusal(kind: Any) -> str | None:
    """None for a class that the general route can be tried on, else why not.

    What only a loaded model can tell (tokens without cells, an output head that does more than multiply) is refused
    when it is loaded.
    """
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES as NAMES

    # The class of the model without its output head: some types have image features there alone.
    inside = getattr(transformers, str(NAMES.get(kind.config_class.model_type)), None)
    seeing = next((part for part in (inside, kind) if hasattr(part, "get_image_features")), None)
    if seeing is None:
        return (
            "its class has no get_image_features: what it sees does not become tokens of the sequence "
            "(cross-attention, an encoder of its own, or no vision tower)"
        )
    if getattr(kind.config_class, "is_encoder_decoder", False):
        return "it has an encoder for the whole prompt, not a sequence that could be shortened"
    if not pixel_names(seeing.get_image_features):
        return "its image features are not made of pixel_values"
    takes = inspect.signature(kind.forward).parameters
    lacking = [name for name in ("inputs_embeds", "attention_mask") if name not in takes]
    if lacking:
        return f"its forward takes no {lacking[0]}"
    return None


# The processor of any checkpoint, put together from its image processor and tokenizer, without torchvision.
#
# A processor class of transformers turns text and images into a model's inputs: it prepares the pixels and writes as
# many placeholders into the text as the image has features. ``AutoProcessor`` refuses most of them on a machine
# without torchvision, or without a package that only videos need. Images need neither: every class takes its parts as
# arguments, so those that images need are loaded and the others are stood in for.

# Importing a file whose first lines ask for a package that what we need of it does not use.


class _Nothing:
    """Whatever is taken from a package that is not there, down to the constants of its classes. It does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __or__(self, other: Any) -> Any:  # in annotations
        return self

    __ror__ = __or__


class _Hollow(ModuleType):
    """A module that has every name, and nothing behind it."""

    __path__: ClassVar[list[str]] = []  # type: ignore[misc]
    nothing: ClassVar[_Nothing] = _Nothing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.nothing, name)


class _Finder:
    """Answers for one package and whatever is below it."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] == self.package else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Hollow(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


@contextmanager
def hollow_package(package: str) -> Iterator[None]:
    """Inside, ``import package`` succeeds where it is not installed; afterwards it fails as before.

    Modules that took something from the hollow package are forgotten too, so that the next one to import them is told.
    """
    if importlib.util.find_spec(package) is not None:
        yield
        return
    finder = _Finder(package)
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        if package in sys.modules:
            for name, module in list(sys.modules.items()):
                held = list(getattr(module, "__dict__", {}).values())
                if isinstance(module, _Hollow) or any(value is _Hollow.nothing for value in held):
                    del sys.modules[name]


SAID_IN = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")
"""Files that may name the processor's class, the most particular first."""


class AbsentPart:
    """Stands where a processor keeps its video or audio part: no inputs of its own, settings like those of the images.

    Some classes look at the settings of their video part whatever they are given.
    """

    model_input_names: ClassVar[list[str]] = []
    valid_kwargs = None

    def __init__(self, image_processor: Any = None) -> None:
        self._image_processor = image_processor

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._image_processor, name, None)


def processor_of(folder: Path, config: Any) -> Any:
    """The processor of the checkpoint in ``folder``: an instance of its own class, with the PIL image processor.

    ``config`` is the model's. ``processor(text=..., images=..., return_tensors="pt")`` gives what the model's forward
    takes; ``chat_template`` is that of the processor or, where it has none, of the tokenizer.
    """
    kind = _taking_stand_ins(processor_class(folder, config))
    image_kind = image_processor_class(folder, config)
    try:
        images = image_kind.from_pretrained(folder)
    except (ImportError, OSError, ValueError) as error:
        name = image_kind.__name__
        raise SightlineError(f"{folder.name}: its {name} cannot be loaded: {first_line(error)}") from error
    parts = {name: _part(name, folder, config, images) for name in kind.get_attributes()}
    said, _ = kind.get_processor_dict(folder)
    settings = {name: said[name] for name in inspect.signature(kind).parameters if name in said and name not in parts}
    with _missing_functions_stood_in(kind):
        try:
            processor = kind(**parts, **settings)
        except (AttributeError, ImportError, TypeError, ValueError) as error:
            raise SightlineError(
                f"{folder.name}: {kind.__name__} cannot be put together: {first_line(error)}"
            ) from error
    if getattr(processor, "chat_template", None) is None:
        processor.chat_template = processor.tokenizer.chat_template
    return processor


def processor_class(folder: Path, config: Any) -> Any:
    """The class that the checkpoint names, else the one that transformers has for its type."""
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES as KNOWN

    names = [*(read_settings(folder / file).get("processor_class") for file in SAID_IN), KNOWN.get(config.model_type)]
    name = next(filter(None, names), None)
    if name is None:
        raise SightlineError(f"{folder.name}: transformers has no processor for a '{config.model_type}' model")
    with hollow_package("torchvision"):  # asked for by files of which only the arithmetic is needed
        return _class(
            name, ["processing"], [config.model_type, *(kind for kind in KNOWN if KNOWN[kind] == name)], folder
        )


def image_processor_class(folder: Path, config: Any) -> Any:
    """The image processor's class, with PIL where transformers has such a one."""
    from transformers.image_processing_backends import TorchvisionBackend
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES as KNOWN

    said = image_settings(folder)
    usual = KNOWN.get(config.model_type, {})
    name = said.get("image_processor_type") or usual.get("torchvision") or usual.get("pil")
    if name is None:
        raise SightlineError(f"{folder.name}: transformers has no image processor for a '{config.model_type}' model")
    name = name.removesuffix("Fast").removesuffix("Pil")
    holders = [kind for kind, known in KNOWN.items() if {name, f"{name}Pil"} & set(known.values())]
    name = next((str(KNOWN[kind]["pil"]) for kind in holders if KNOWN[kind].get("pil")), name)
    with hollow_package("torchvision"):
        found = _class(name, ["image_processing_pil", "image_processing"], [config.model_type, *holders], folder)
    if issubclass(found, TorchvisionBackend) and not find_spec("torchvision"):
        raise SightlineError(f"{folder.name}: {name} needs torchvision, which is not installed")
    return found


def _part(name: str, folder: Path, config: Any, images: Any) -> Any:
    """One argument of a processor class; ``images`` is the image processor."""
    from transformers import AutoTokenizer

    if "tokenizer" in name:
        place = folder / name if (folder / name).is_dir() else folder
        return AutoTokenizer.from_pretrained(place, config=config)
    return images if name == "image_processor" else AbsentPart(images)


def _class(name: str, prefixes: Iterable[str], kinds: Iterable[str], folder: Path) -> Any:
    """A class of transformers from the file it is written in.

    Where a package is missing that a file mentions, be it in a comment, ``transformers.NAME`` is a dummy.
    """
    from transformers.models.auto.configuration_auto import model_type_to_module_name

    modules = {model_type_to_module_name(kind) for kind in kinds}
    reason = "transformers does not have it"
    for place in (
        f"transformers.models.{module}.{prefix}_{module}" for module in sorted(modules) for prefix in prefixes
    ):
        try:
            return getattr(importlib.import_module(place), name)
        except ModuleNotFoundError as error:
            reason = reason if error.name == place else first_line(error)
        except AttributeError:
            continue
    raise SightlineError(f"{folder.name}: {name} cannot be imported: {reason}")


def _taking_stand_ins(kind: Any) -> Any:
    """The class, except that a stand-in is as good as a part: a subclass, so that nobody else sees a change."""

    def check_argument_for_proper_class(self: Any, name: str, argument: Any) -> Any:
        return (
            AbsentPart
            if isinstance(argument, AbsentPart)
            else kind.check_argument_for_proper_class(self, name, argument)
        )

    # The inherited representation is JSON of all parts, which a stand-in has none of.
    changes = {"check_argument_for_proper_class": check_argument_for_proper_class, "__repr__": object.__repr__}
    return type(kind.__name__, (kind,), changes)


@contextmanager
def _missing_functions_stood_in(kind: Any) -> Iterator[None]:
    """Some classes refuse to be made without a package that only videos need (SmolVLM: num2words).

    Their files hold None in its place, which for the time of making the processor becomes something that is there.
    """
    names = kind.__init__.__globals__
    missing = [name for name, value in names.items() if value is None and not name.startswith("_")]
    names.update((name, AbsentPart()) for name in missing)
    try:
        yield
    finally:
        names.update(dict.fromkeys(missing))
