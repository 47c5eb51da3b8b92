"""Prompts by the processor of any checkpoint: its chat template, what it writes where an image stands, its cells."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

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
        """What the template writes where an image is part of a turn: all placeholders, if the processor adds none."""
        parts = [{"type": "image"}, {"type": "text", "text": "word"}]
        seen, blind = (
            self.apply_template([{"role": "user", "content": each}], ask=False) for each in (parts, parts[1:])
        )
        same = next((at for at, pair in enumerate(zip(seen, blind, strict=False)) if pair[0] != pair[1]), len(blind))
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
        offsets = processed.get("text_replacement_offsets") or [[]]
        replaced = next((str(each["replacement"]) for each in offsets[0] if each["type"] == "image"), None)
        text = replaced or self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        # From the first to the last id of a token that was added to the vocabulary for its meaning.
        ids, added = self.tokenizer(text, add_special_tokens=False).input_ids, self.tokenizer.added_tokens_decoder
        marks = [index for index, token in enumerate(ids) if token in added]
        if not marks:
            raise SightlineError(f"{type(self.processor).__name__} writes ordinary text where the image stands")
        return WrittenImage(text, tuple(ids[marks[0] : marks[-1] + 1]))


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
    reads_beyond: bool = False
    """Whether convolutions of its tower read far beyond the cells that were found."""
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

    def written_for(self, size: tuple[int, int]) -> tuple[tuple[int, ...], dict[str, Tensor]]:
        """The ids that the processor writes for an image of this (width, height), and what else it hands the model."""
        processed = self.processed(Image.new("RGB", size, (255, 255, 255)))
        return self.written(processed).ids, image_inputs(processed)

    def _worked_out(self, size: tuple[int, int]) -> SpanPlan:
        ids, inputs = self.written_for(size)
        features = self.placeholders(ids)
        if self.no_cells is None:
            cells, sourced, layout = self.cells(size, inputs)
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
            positions=self.span_positions(ids, inputs),
        )

    def placeholders(self, ids: tuple[int, ...]) -> Tensor:
        """(P,) slots of a span whose embeddings the image's features replace."""
        return (torch.tensor(ids) == self.image_token_id).nonzero()[:, 0]

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
            made, tower, beyond = self.features, self.tower_module, self.reads_beyond
            return find_cells(size, self.image_inputs, lambda given: made(given)[0], tower, self.pixels, beyond=beyond)

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
