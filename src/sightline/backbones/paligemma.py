"""PaliGemma and PaliGemma 2: one square picture, a prompt without turns that is read both ways, a causal answer."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from sightline.backbones.base import BACKBONES
from sightline.backbones.general import General
from sightline.backbones.own_decoder import CONTINUATION
from sightline.backbones.prompting import Layout
from sightline.geometry.cells import Cells, grid_cells


@BACKBONES.register("paligemma")
class PaliGemma(General):
    """The image is stretched to a square, one token per patch, so cells are a plain grid.

    A prompt is the image, ``<bos>``, the question and a line end; all of it attends to all of it. What follows is
    causal and ends with ``<eos>``. Positions are counted from 1.
    """

    first_position = 1
    fixed_tokens = "its processor makes a square of one size of every image, large or small"

    def plain_prompt(self, question: str) -> str:
        return f"{self.placeholder}{self.tokenizer.bos_token}{question}\n"

    def processor_text(self, question: str) -> str:
        """The processor puts ``<bos>`` and the line end where they belong."""
        return f"{self.placeholder}{question}"

    def render(self, question: str, answer: str | None, *, in_words: bool = False) -> str:
        prompt = super().render(question, None, in_words=in_words)
        return prompt if answer is None else f"{prompt}{answer}{self.tokenizer.eos_token}"

    def token_types(self, kinds: Tensor) -> Tensor:
        """0 for the prompt, 1 for the answer, which alone is causal."""
        return (kinds == CONTINUATION).long()

    @property
    def side(self) -> int:
        """Tokens along the edge of the picture."""
        vision = self.model.config.vision_config
        return int(vision.image_size) // int(vision.patch_size)

    @property
    def token_pixels(self) -> int:
        return int(self.model.config.vision_config.patch_size) ** 2

    def cells(self, size: tuple[int, int], inputs: Mapping[str, Tensor]) -> tuple[Cells, Tensor, Layout]:
        return grid_cells(self.side, self.side), torch.ones(self.side**2, dtype=torch.bool), ((self.side, self.side),)

    def token_rows(self, size: tuple[int, int]) -> Tensor:
        return torch.arange(self.side**2)[:, None]
