"""Gemma 3: one square picture of 64 x 64 patches, pooled to 16 x 16 tokens that see each other both ways.

Where it pans and scans, a long image is shown once more in two to four crops behind the picture, each a square of its
own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from sightline.backbones.base import BACKBONES
from sightline.backbones.general import PIXELS, SquarePicture
from sightline.backbones.images import ImageOptions, option
from sightline.backbones.processors import SpanPlanning, WrittenImage
from sightline.backbones.prompting import Layout, SpanPlan
from sightline.geometry.cells import Cells


@dataclass(frozen=True)
class Gemma3Options(ImageOptions):
    pan_and_scan: bool = option(False, "Show long images in crops behind the picture as well (do_pan_and_scan).")


@BACKBONES.register("gemma3")
class Gemma3(SquarePicture):
    """The image is stretched to a square, so cells are a plain grid; those of crops are found.

    Tokens of a picture attend to each other, whatever their order; the question sees them causally. The decoder is
    the model's own, which makes that mask from token types.
    """

    image_options = Gemma3Options
    options: Gemma3Options
    fixed_tokens = f"{SquarePicture.fixed_tokens} (256 tokens in Gemma 3)"

    @property
    def side(self) -> int:
        """Tokens along the edge of the picture."""
        return math.isqrt(int(self.model.config.mm_tokens_per_image))

    def processor_arguments(self) -> dict[str, Any]:
        return {"do_pan_and_scan": True} if self.options.pan_and_scan else {}

    def cells(self, size: tuple[int, int], inputs: Mapping[str, Tensor]) -> tuple[Cells, Tensor, Layout]:
        return super().cells(size, inputs) if len(inputs[PIXELS]) == 1 else SpanPlanning.cells(self, size, inputs)

    def token_rows(self, size: tuple[int, int]) -> Tensor:
        pictures = len(self.plan(size).layout)
        return torch.cat([super(Gemma3, self).token_rows(size) + i * self.patches**2 for i in range(pictures)])

    # Sentences announce picture and crops, others than around a picture without crops: with what the template writes
    # before them, back to its last mark, they are part of the span.

    @cached_property
    def _lead(self) -> str:
        before = self.render("word", None).partition(self.placeholder)[0]
        marks = [str(token) for token in self.tokenizer.added_tokens_decoder.values()]
        return before[max((before.rfind(mark) + len(mark) for mark in marks if mark in before), default=0) :]

    def written(self, processed: Any) -> WrittenImage:
        written = super().written(processed)
        if not self.options.pan_and_scan:
            return written
        ids = self.tokenizer(self._lead + written.text, add_special_tokens=False).input_ids
        last = len(ids) - ids[::-1].index(written.ids[-1])
        return WrittenImage(written.text, tuple(ids[:last]))

    def _worked_out(self, size: tuple[int, int]) -> SpanPlan:
        """What stands before the picture stays for as long as any token does: the template wrote some of it."""
        plan = super()._worked_out(size)
        owners = plan.owners.clone()
        owners[plan.between < plan.features[0]] = torch.tensor([0, plan.n])
        return replace(plan, owners=owners)
