"""The processor of any checkpoint, put together from its image processor and tokenizer, without torchvision.

A processor class of transformers turns text and images into a model's inputs: it prepares the pixels and writes as many
placeholders into the text as the image has features. ``AutoProcessor`` refuses most of them on a machine without
torchvision or without a package that only videos need. Images need neither: each class takes its parts as arguments, so
those that images need are loaded and the others stood in for.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError

SAID_IN = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")
"""Files that may name the class, the most particular first."""


class Absent:
    """Stands where a processor keeps its video or audio part: it has no inputs of its own and takes no arguments."""

    model_input_names: list[str] = []
    valid_kwargs = None


def processor_of(folder: Path, config: Any) -> Any:
    """The processor of the checkpoint in ``folder``: an instance of its own class, with the PIL image processor.

    ``config`` is the model's. ``processor(text=..., images=..., return_tensors="pt")`` gives what the model's forward
    takes; ``chat_template`` is that of the processor or, where it has none, of the tokenizer.
    """
    kind = _usable(processor_class(folder, config))
    parts = {name: _part(name, folder, config) for name in kind.get_attributes()}
    said, _ = kind.get_processor_dict(folder)
    settings = {name: said[name] for name in inspect.signature(kind).parameters if name in said and name not in parts}
    with _missing_packages_stood_in(kind):
        try:
            processor = kind(**parts, **settings)
        except (AttributeError, ImportError, TypeError, ValueError) as error:
            raise SightlineError(f"{folder.name}: {kind.__name__} cannot be put together: {_first(error)}") from error
    if getattr(processor, "chat_template", None) is None:
        processor.chat_template = processor.tokenizer.chat_template
    return processor


def processor_class(folder: Path, config: Any) -> Any:
    """The class that the checkpoint names, else the one that transformers has for its type."""
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES, model_type_to_module_name

    named = [_named(folder / file) for file in SAID_IN]
    name = next(filter(None, [*named, PROCESSOR_MAPPING_NAMES.get(config.model_type)]), None)
    if name is None:
        raise SightlineError(f"{folder.name}: transformers has no processor for a '{config.model_type}' model")
    modules = {model_type_to_module_name(kind) for kind, known in PROCESSOR_MAPPING_NAMES.items() if known == name}
    reasons = []
    for module in sorted(modules):
        # The class itself, from its file: transformers puts a dummy in its place where a package is missing.
        try:
            return getattr(importlib.import_module(f"transformers.models.{module}.processing_{module}"), name)
        except (ImportError, AttributeError) as error:
            reasons.append(_first(error))
    reason = next((said for said in reasons if "processing_" not in said), "transformers does not know it")
    raise SightlineError(f"{folder.name}: its processor {name} cannot be imported: {reason}")


def _named(file: Path) -> str | None:
    if not file.is_file():
        return None
    return json.loads(file.read_text(encoding="utf-8")).get("processor_class")


def _usable(kind: Any) -> Any:
    """The class, except that a stand-in is as good as a part: a subclass, so that others see no change."""

    def check_argument_for_proper_class(self: Any, name: str, argument: Any) -> Any:
        return Absent if isinstance(argument, Absent) else kind.check_argument_for_proper_class(self, name, argument)

    # The inherited representation is JSON of all parts, which a stand-in has none of.
    changes = {"check_argument_for_proper_class": check_argument_for_proper_class, "__repr__": object.__repr__}
    return type(kind.__name__, (kind,), changes)


def _part(name: str, folder: Path, config: Any) -> Any:
    """One argument of a processor class."""
    from transformers import AutoTokenizer
    from transformers.models.auto.image_processing_auto import AutoImageProcessor  # by its file: see processor_class

    if "tokenizer" in name:
        place = folder / name if (folder / name).is_dir() else folder
        return AutoTokenizer.from_pretrained(place, config=config)
    if name != "image_processor":
        return Absent()
    try:
        return AutoImageProcessor.from_pretrained(folder, backend="pil")
    except (ImportError, OSError, ValueError) as error:
        raise SightlineError(f"{folder.name}: its image processor cannot be loaded: {_first(error)}") from error


@contextmanager
def _missing_packages_stood_in(kind: Any) -> Iterator[None]:
    """Some classes refuse to be made without a package that only videos need (SmolVLM: num2words).

    Their files hold None in its place, which for the time of making the processor becomes something that is there.
    """
    names = vars(importlib.import_module(kind.__mro__[1].__module__))
    missing = [name for name, value in names.items() if value is None and not name.startswith("_")]
    names.update((name, Absent()) for name in missing)
    try:
        yield
    finally:
        names.update(dict.fromkeys(missing))


def _first(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
