"""PaliGemma and PaliGemma 2: one square picture, a prompt without turns that is read both ways, a causal answer."""

from __future__ import annotations

from torch import Tensor

from sightline.backbones.base import BACKBONES
from sightline.backbones.general import SquarePicture
from sightline.backbones.own_decoder import CONTINUATION


@BACKBONES.register("paligemma")
class PaliGemma(SquarePicture):
    """The image is stretched to a square, one token per patch, so cells are a plain grid.

    A prompt is the image, ``<bos>``, the question and a line end; all of it attends to all of it. What follows is
    causal and ends with ``<eos>``. Positions are counted from 1.
    """

    first_position = 1

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
