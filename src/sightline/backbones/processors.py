"""The processor of any checkpoint, and prompts by it: its chat template, what it writes where the image stands."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from sightline.backbones.base import image_settings, read_settings
from sightline.backbones.found_cells import Found, FoundCells, cached, cached_cells, find_cells
from sightline.backbones.found_rows import FoundPixels, FoundRows, find_pixels, find_rows
from sightline.backbones.images import ImageOptions
from sightline.backbones.prompting import Layout, Prompting, SpanPlan, occurrences, owners
from sightline.core.span import SlotPositions
from sightline.errors import SightlineError, first_line
from sightline.geometry.cells import Cells, split_tiles, token_blocks

TEXTS = frozenset(
    {"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "text_replacement_offsets", "labels"}
)
"""What a processor returns about the text."""
SAMPLE = (96, 64)
"""(width, height) of an image that is only there to see what the processor writes for one."""


@dataclass(frozen=True)
class WrittenImage:
    """What a processor writes where an image stands."""

    text: str
    ids: tuple[int, ...]
    """From its first to its last token that is no ordinary text: that alone does not depend on what stands around."""


class ProcessorPrompting(Prompting):
    """The text side of a checkpoint with a processor of its own."""

    processor: Any

    @cached_property
    def placeholder(self) -> str:
        """What stands for an image in a text before the processor sees it: as the processor says, or the template."""
        said = getattr(self.processor, "image_placeholder_token", None) or getattr(self.processor, "image_token", None)
        found = said or (self.processor.chat_template and self._written_for_an_image())
        if not found:
            raise SightlineError(f"{type(self.processor).__name__} does not say what stands for an image in a text")
        return str(found)

    def _written_for_an_image(self) -> str:
        """What the template writes where an image is part of a turn: all placeholders, where the processor adds none."""
        parts = [{"type": "image"}, {"type": "text", "text": "word"}]
        seen, blind = (
            self.apply_template([{"role": "user", "content": each}], ask=False) for each in (parts, parts[1:])
        )
        same = len(os.path.commonprefix([seen, blind]))
        return seen[same : len(seen) - (len(blind) - same)]

    def render(self, question: str, answer: str | None, *, in_words: bool = False) -> str:
        if self.processor.chat_template is not None:
            return super().render(question, answer, in_words=in_words)
        return self.plain_prompt(self.asked(question, in_words=in_words)) + (answer or "")

    def plain_prompt(self, question: str) -> str:
        """A prompt of a checkpoint that has no chat template."""
        return f"{self.placeholder}{question}\n"

    def processor_text(self, question: str) -> str:
        """What the processor is handed to write the prompt of a question: all of it, where it adds nothing."""
        return self.render(question, None)

    def user_content(self, question: str) -> Any:
        if self._takes_parts:
            return super().user_content(question)
        return f"{self.placeholder}\n{question}"

    def assistant_content(self, text: str) -> Any:
        return [{"type": "text", "text": text}] if self._answers_in_parts else text

    def apply_template(self, messages: list[dict[str, Any]], *, ask: bool) -> str:
        text: str = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=ask, chat_template=self.processor.chat_template
        )
        return text

    @cached_property
    def _takes_parts(self) -> bool:
        """Whether the template wants a turn as a list of parts, the image one of them."""
        parts = [{"type": "image"}, {"type": "text", "text": "word"}]
        return self._written([{"role": "user", "content": parts}], self.placeholder, "word")

    @cached_property
    def _answers_in_parts(self) -> bool:
        turn = {"role": "user", "content": self.user_content("word")}
        return not self._written([turn, {"role": "assistant", "content": "answer"}], "answer")

    def _written(self, messages: list[dict[str, Any]], *wanted: str) -> bool:
        """Whether the template makes these messages a text in which every wanted one stands once."""
        try:
            text = self.apply_template(messages, ask=False)
        except Exception:  # a template is a program of somebody else
            return False
        return all(text.count(each) == 1 for each in wanted)

    def token_ids(self, text: str) -> list[int]:
        """As the processor itself calls the tokenizer: a text that begins with the first token gets no second one."""
        first = self.tokenizer.bos_token
        doubled = first is not None and text.startswith(first)
        return list(self.tokenizer(text, add_special_tokens=not doubled).input_ids)

    def _around_image(self, text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if text.count(self.placeholder) != 1:
            raise SightlineError(
                f"the chat template gives {text.count(self.placeholder)} image placeholders where one is needed; "
                "is this the processor's own template?"
            )
        sample = self._sample
        ids = self.token_ids(text.replace(self.placeholder, sample.text))
        found = occurrences(ids, sample.ids)
        if len(found) != 1:
            raise SightlineError("what the processor writes for an image is not found again in its prompt")
        at = found[0]
        return tuple(ids[:at]), tuple(ids[at + len(sample.ids) :])

    @cached_property
    def _sample(self) -> WrittenImage:
        return self.written(self.processed(Image.new("RGB", SAMPLE, (255, 255, 255))))

    def processed(self, image: Image.Image) -> Any:
        """What the processor makes of an image and its bare placeholder, between its marks where it insists on them."""
        marks = [getattr(self.processor, f"image_{end}_token", None) for end in ("start", "end")]
        marked = f"{marks[0]}{self.placeholder}{marks[1]}" if all(marks) else self.placeholder
        try:
            return self._processed(image, self.placeholder)
        except (ValueError, StopIteration) as error:
            problem = error
        try:
            return self._processed(image, marked)
        except (ValueError, StopIteration):
            raise SightlineError(
                f"{type(self.processor).__name__} cannot expand a bare placeholder: {first_line(problem)}"
            ) from problem

    def _processed(self, image: Image.Image, text: str) -> Any:
        return self.processor(
            text=[text],
            images=[image],
            return_tensors="pt",
            text_kwargs={"return_text_replacement_offsets": True},
            images_kwargs=self.processor_arguments(),
        )

    def processor_arguments(self) -> dict[str, Any]:
        """What the checkpoint's image processor must be called with to honour the image options."""
        return {}

    def written(self, processed: Any) -> WrittenImage:
        ids = processed["input_ids"][0].tolist()
        text = self._replacement(processed) or self.tokenizer.decode(
            ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return WrittenImage(text, self._marked(self.tokenizer(text, add_special_tokens=False).input_ids))

    @staticmethod
    def _replacement(processed: Any) -> str | None:
        offsets = processed.get("text_replacement_offsets") or [[]]
        return next((str(each["replacement"]) for each in offsets[0] if each["type"] == "image"), None)

    def _marked(self, ids: Sequence[int]) -> tuple[int, ...]:
        """From the first to the last id of a token that was added to the vocabulary for its meaning."""
        added = self.tokenizer.added_tokens_decoder
        marks = [index for index, token in enumerate(ids) if token in added]
        if not marks:
            raise SightlineError(f"{type(self.processor).__name__} writes ordinary text where the image stands")
        return tuple(ids[marks[0] : marks[-1] + 1])


def image_inputs(processed: Any) -> dict[str, Tensor]:
    """What a processor says about the image alone."""
    return {name: value for name, value in processed.items() if name not in TEXTS and isinstance(value, Tensor)}


# How the span of every image of a checkpoint is made up, worked out once per size.


class SpanPlanning(ProcessorPrompting):
    """Cells, separators and positions of a checkpoint's images, by their size.

    A plan may have to send ramps through the model, its attention silenced: plans are made where images are encoded,
    never beside it.
    """

    options: ImageOptions
    axes: int
    no_cells: str | None
    seeing: Any
    """The part of the model that makes features of images, and knows their positions."""
    pixels: str
    """What it calls the pixel values."""
    identity: Mapping[str, Any]
    """What cells depend on beside the size and the options of an image; empty: they are found anew every time."""
    plans: dict[tuple[ImageOptions, tuple[int, int]], SpanPlan]
    known: dict[tuple[str, ImageOptions, tuple[int, int]], Any]
    """Rows and pixels that were found."""
    vision_blocks: Any

    @abstractmethod
    def features(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """(P, D) features in the order of the placeholders, and DeepStack levels, by the model's own code."""

    def image_inputs(self, image: Image.Image) -> dict[str, Tensor]:
        return image_inputs(self.processed(image))

    def span_ids(self, size: tuple[int, int]) -> tuple[int, ...]:
        return self.plan(size).ids

    def token_count(self, size: tuple[int, int]) -> int:
        return self.plan(size).n

    def plan(self, size: tuple[int, int]) -> SpanPlan:
        """How the span of an image of this (width, height) is made up."""
        key = (self.options, size)
        if key not in self.plans:
            self.plans[key] = self._worked_out(size)
        return self.plans[key]

    def _worked_out(self, size: tuple[int, int]) -> SpanPlan:
        processed = self.processed(Image.new("RGB", size, (255, 255, 255)))
        ids = self.written(processed).ids
        features = (torch.tensor(ids) == self.image_token_id).nonzero()[:, 0]
        if self.no_cells is None:
            cells, sourced, layout = self.cells(size, image_inputs(processed))
        else:
            count = len(features)
            cells, sourced, layout = np.full((count, 4), np.nan), torch.ones(count, dtype=torch.bool), ((1, count),)
        if len(sourced) != len(features):
            raise SightlineError(
                f"{type(self.model).__name__}: the processor writes {len(features)} placeholders and the tower makes "
                f"{len(sourced)} features for an image of {size[0]} x {size[1]}"
            )
        if not sourced.any():
            raise SightlineError(
                f"{type(self.model).__name__}: no visual token comes from a place in the image (a Q-Former, a "
                "resampler, a codebook): there are no cells to audit"
            )
        return SpanPlan(
            ids=ids,
            features=features,
            sourced=sourced,
            cells=cells,
            layout=layout,
            owners=owners(len(ids), features, sourced, layout),
            positions=self.span_positions(ids, image_inputs(processed)),
        )

    def cells(self, size: tuple[int, int], inputs: Mapping[str, Tensor]) -> tuple[Cells, Tensor, Layout]:
        """(N, 4) cells, (P,) which features have one, and the layout of the N; found, where no class declares them."""
        found = self.found_cells(size)
        cells, tiles = found.cells[found.sourced], found.tiles[found.sourced]
        layout = token_blocks(cells, tiles)
        split = split_tiles(layout, tiles) if tiles.any() else 0
        if split:
            raise SightlineError(
                f"{split} of {len(set(tiles))} tiles that its image processor makes of {size[0]} x {size[1]} pixels "
                "are no rectangle of tokens, so that there are no tiles to choose from"
            )
        return cells, torch.from_numpy(found.sourced), layout

    def found_cells(self, size: tuple[int, int]) -> FoundCells:
        """Cells of all features of an image of this (width, height), by ramps; remembered if possible."""

        def find() -> FoundCells:
            features = self.features
            return find_cells(size, self.image_inputs, lambda given: features(given)[0], self.tower_module, self.pixels)

        if not self.identity:
            return find()
        return cached_cells({**self.identity, "options": self.options.as_dict()}, size, find)

    def found_rows(self, size: tuple[int, int]) -> FoundRows:
        """Rows of the vision tower that each feature of such an image is made from."""
        return self._found("rows", FoundRows, size, partial(find_rows, blocks=self.vision_blocks))

    def found_pixels(self, size: tuple[int, int]) -> FoundPixels:
        """Values of such an image, as it is prepared, that each feature is made from."""
        return self._found("pixels", FoundPixels, size, find_pixels)

    def _found(self, what: str, kind: type[Found], size: tuple[int, int], find: Callable[..., Found]) -> Found:
        """Found once, and remembered as cells are."""

        def look() -> Found:
            features = self.features
            return find(
                size, self.image_inputs, lambda given: features(given)[0], self.tower_module, pixels=self.pixels
            )

        key = (what, self.options, size)
        if key not in self.known:
            parts = {**self.identity, "options": self.options.as_dict()}
            self.known[key] = cached(what, kind, parts, size, look) if self.identity else look()
        found: Found = self.known[key]
        return found

    @property
    def tower_module(self) -> nn.Module:
        """What makes features of pixels; its attention is silenced while cells are found."""
        module: nn.Module = self.seeing
        return module

    def span_positions(self, ids: tuple[int, ...], inputs: Mapping[str, Tensor]) -> SlotPositions:
        """The model's own, asked with one text token before and behind the span."""
        if self.axes == 1:
            return SlotPositions.sequential(len(ids))
        head, tail = self._around_image(self.render("word", None))
        sequence = torch.tensor([[*head, *ids, *tail]])
        asked = {
            **inputs,
            "input_ids": sequence,
            "attention_mask": torch.ones_like(sequence),
            "mm_token_type_ids": (sequence == self.image_token_id).int(),
        }
        takes = inspect.signature(self.seeing.get_rope_index).parameters
        found, _ = self.seeing.get_rope_index(**{name: value for name, value in asked.items() if name in takes})
        start = len(head)
        span = found[:, 0, start : start + len(ids)].cpu() - start
        return SlotPositions(span, int(found[:, 0, start + len(ids)].max()) - start)


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

    names = [*(read_settings(folder / file).get("processor_class") for file in SAID_IN), KNOWN.get(config.model_type)]
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
