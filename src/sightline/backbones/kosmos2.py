"""KOSMOS-2: 64 queries of a resampler in front of every text, which stand where the processor writes ordinary words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from sightline.backbones.base import BACKBONES, as_dtype
from sightline.backbones.general import PIXELS, General, rows
from sightline.backbones.processors import WrittenImage
from sightline.device.work import on_device


@BACKBONES.register("kosmos-2")
class Kosmos2(General):
    """No query comes from a place in the image. The processor itself writes ``<image>``, ids and ``</image>``: those in
    between are the first of the vocabulary, and their places alone say that they are not read.

    Questions are asked as published, on a line without turns. Positions go on from the number of the padding token.
    """

    placeholder = ""
    _feature_arguments = frozenset({PIXELS})

    def features(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """By the model without an output head, whose parts the one with it has."""
        from transformers import Kosmos2Model

        given = as_dtype({PIXELS: on_device(inputs[PIXELS], self.language.device)}, self.language.dtype)
        return rows(Kosmos2Model.get_image_features(self.model, **given, return_dict=True).pooler_output), ()

    @property
    def first_position(self) -> int:  # type: ignore[override]
        return int(self.model.config.text_config.pad_token_id) + 1

    @property
    def image_token_id(self) -> int:
        """Of the first place; the others count on."""
        return int(self.tokenizer.unk_token_id) + 1

    @property
    def marks(self) -> list[int]:
        """Ids of what stands before and behind an image."""
        return list(self.tokenizer.convert_tokens_to_ids([self.processor.boi_token, self.processor.eoi_token]))

    def plain_prompt(self, question: str) -> str:
        return f"Question: {question} Answer:"

    def render(self, question: str, answer: str | None, *, in_words: bool = False) -> str:
        prompt = self.plain_prompt(self.asked(question, in_words=in_words))
        return prompt if answer is None else f"{prompt} {answer.strip()}{self.tokenizer.eos_token}"

    def _around_image(self, text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        behind = self.tokenizer(f"{self.processor.eoi_token} {text}", add_special_tokens=False).input_ids
        return (int(self.tokenizer.bos_token_id),), tuple(behind[1:])

    def written(self, processed: Any) -> WrittenImage:
        ids = processed["input_ids"][0].tolist()
        first, last = (ids.index(mark) for mark in self.marks)
        return WrittenImage("", tuple(ids[first : last + 1]))

    def placeholders(self, ids: tuple[int, ...]) -> Tensor:
        return torch.arange(1, len(ids) - 1)

    def sequence_types(self, sequence: Tensor) -> Tensor:
        first, last = ((sequence == mark).long().argmax(dim=1, keepdim=True) for mark in self.marks)
        places = torch.arange(sequence.shape[1], device=sequence.device)
        return ((places > first) & (places < last)).int()
