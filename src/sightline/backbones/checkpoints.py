"""A checkpoint folder through transformers: its files, its configuration, a model that is whole, its processor."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from sightline.errors import SightlineError, first_line

WEIGHTS = "*.safetensors"
DESCRIPTION = ("*.json", "*.jinja", "*.txt", "*.model")
"""What a checkpoint has beside its weights: configuration, image processor, tokenizer, chat template."""
NAMED = 3
"""Missing tensors that a refusal names; it counts the others."""


def read_config(folder: Path) -> dict[str, Any]:
    """The ``config.json`` of a checkpoint folder."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise SightlineError(f"{folder} has no config.json: it is not a checkpoint folder") from None
    except OSError as error:
        raise SightlineError(f"{folder / 'config.json'} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise SightlineError(f"{folder / 'config.json'} is not valid JSON: {error}") from None
    if not isinstance(config, dict):
        raise SightlineError(f"{folder / 'config.json'} does not describe a model: it is no JSON object")
    for name, part in config.items():
        if name.endswith("_config") and not isinstance(part, dict | None):
            raise SightlineError(f"{folder / 'config.json'} does not describe a model: {name} is no JSON object")
    return config


def weight_files(folder: Path, source: str = "") -> list[Path]:
    """``source`` is what the user called the checkpoint, where that is not its folder."""
    files = sorted(folder.glob(WEIGHTS))
    if not files:
        name = source or folder
        raise SightlineError(
            f"{name} has no *.safetensors weights, and pickle files are not loaded; "
            f"`sightline convert {name} --out NEW_FOLDER` makes safetensors of its pytorch_model.bin"
        )
    return files


def weight_digest(folder: Path) -> str:
    """SHA-256 over the names and contents of all safetensors files: what the weights are, wherever they lie."""
    digest = hashlib.sha256()
    files = weight_files(folder)
    with ThreadPoolExecutor() as pool:  # hashing lets other threads run
        for file, content in zip(files, pool.map(_file_digest, files), strict=True):
            digest.update(file.name.encode())
            digest.update(content)
    return f"sha256:{digest.hexdigest()}"


def description_digests(folder: Path) -> dict[str, str]:
    """SHA-256 by name of all files of a checkpoint that are not weights.

    Which of them are read depends on the tokenizer and on the version of transformers: all are taken, so that none is
    missed.
    """
    return _digests(file for pattern in DESCRIPTION for file in folder.glob(pattern))


def subfolder_digests(folder: Path) -> dict[str, str]:
    """The same of files below it, by path: chat templates, tokenizers and processors that libraries find there.

    Hidden folders and checkpoints of their own, such as those of a training, are nobody's description.
    """
    found: dict[str, str] = {}
    for below in sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")):
        if not ((below / "config.json").exists() and any(below.glob(WEIGHTS))):
            own = {**description_digests(below), **subfolder_digests(below)}
            found |= {f"{below.name}/{name}": digest for name, digest in own.items()}
    return found


def checkpoint_digests(folder: Path) -> dict[str, str]:
    """SHA-256 by name of all files of a checkpoint, its weights included."""
    return {**description_digests(folder), **_digests(weight_files(folder))}


def _digests(files: Iterable[Path]) -> dict[str, str]:
    return {file.name: f"sha256:{_file_digest(file).hex()}" for file in sorted(files)}


def _file_digest(file: Path) -> bytes:
    with open(file, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").digest()


def configuration(model_class: str, values: Mapping[str, Any]) -> Any:
    """The configuration in a ``config.json``, read as one of this class of transformers.

    By the type transformers finds the tokenizer, and how weights of older files are called today. A checkpoint of
    another package's architecture has a type it does not know: weights that it misses would be left at random.

    A copy for whoever asks: loading a model asks eight times, and transformers checks every field each time.
    """
    return deepcopy(_checked_configuration(model_class, json.dumps(values)))


@lru_cache(maxsize=8)
def _checked_configuration(model_class: str, text: str) -> Any:
    import transformers

    kind = getattr(transformers, model_class).config_class
    try:
        return kind.from_dict({**json.loads(text), "model_type": kind.model_type})
    except Exception as error:  # transformers checks a configuration in many ways
        raise SightlineError(f"config.json does not describe a {model_class} ({first_line(error)})") from error


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
def stood_in(package: str) -> Iterator[None]:
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
                if isinstance(module, _Hollow) or _took_nothing(module):
                    del sys.modules[name]


def _took_nothing(module: ModuleType) -> bool:
    return any(value is _Hollow.nothing for value in list(getattr(module, "__dict__", {}).values()))


SAID_IN = ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json")
"""Files that may name the processor's class, the most particular first."""


class Absent:
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
    images = _image_processor(folder, config)
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

    names = [*(_content(folder / file).get("processor_class") for file in SAID_IN), KNOWN.get(config.model_type)]
    name = next(filter(None, names), None)
    if name is None:
        raise SightlineError(f"{folder.name}: transformers has no processor for a '{config.model_type}' model")
    with stood_in("torchvision"):  # asked for by files of which only the arithmetic is needed
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
    with stood_in("torchvision"):
        found = _class(name, ["image_processing_pil", "image_processing"], [config.model_type, *holders], folder)
    if issubclass(found, TorchvisionBackend) and not find_spec("torchvision"):
        raise SightlineError(f"{folder.name}: {name} needs torchvision, which is not installed")
    return found


def image_settings(folder: Path) -> Mapping[str, Any]:
    """What a checkpoint says of its image processor, in either of two files; what it leaves out is as usual."""
    within: Mapping[str, Any] | None = _content(folder / "processor_config.json").get("image_processor")
    return within or _content(folder / "preprocessor_config.json")


def _part(name: str, folder: Path, config: Any, images: Any) -> Any:
    """One argument of a processor class; ``images`` is the image processor."""
    from transformers import AutoTokenizer

    if "tokenizer" in name:
        place = folder / name if (folder / name).is_dir() else folder
        return AutoTokenizer.from_pretrained(place, config=config)
    return images if name == "image_processor" else Absent(images)


def _image_processor(folder: Path, config: Any) -> Any:
    kind = image_processor_class(folder, config)
    try:
        return kind.from_pretrained(folder)
    except (ImportError, OSError, ValueError) as error:
        raise SightlineError(f"{folder.name}: its {kind.__name__} cannot be loaded: {first_line(error)}") from error


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
        return Absent if isinstance(argument, Absent) else kind.check_argument_for_proper_class(self, name, argument)

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
    names.update((name, Absent()) for name in missing)
    try:
        yield
    finally:
        names.update(dict.fromkeys(missing))


def _content(file: Path) -> Mapping[str, Any]:
    if not file.is_file():
        return {}
    content: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content
