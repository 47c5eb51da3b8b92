"""Gemma 3: one square picture of 64 x 64 patches, pooled to 16 x 16 tokens that see each other both ways."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from sightline.backbones.base import BACKBONES
from sightline.backbones.general import PIXELS, SquarePicture
from sightline.backbones.prompting import Layout
from sightline.errors import SightlineError
from sightline.geometry.cells import Cells


@BACKBONES.register("gemma3")
class Gemma3(SquarePicture):
    """The image is stretched to a square, so cells are a plain grid.

    Tokens of the picture attend to each other, whatever their order; the question sees them causally. The decoder is
    the model's own, which makes that mask from token types. Pan-and-scan, which shows crops behind the picture and is
    off in published checkpoints, is refused: it also writes sentences around them.
    """

    fixed_tokens = f"{SquarePicture.fixed_tokens} (256 tokens in Gemma 3)"

    @property
    def side(self) -> int:
        """Tokens along the edge of the picture."""
        return math.isqrt(int(self.model.config.mm_tokens_per_image))

    def cells(self, size: tuple[int, int], inputs: Mapping[str, Tensor]) -> tuple[Cells, Tensor, Layout]:
        if len(inputs[PIXELS]) > 1:
            raise SightlineError(
                "the image processor pans and scans, whose crops have no place in the prompt here: set do_pan_and_scan "
                "to false in the checkpoint's processor_config.json"
            )
        return super().cells(size, inputs)
