"""An encoded page and a question about it, on the path that every audit takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from PIL import Image, ImageDraw

from sightline.answering.answerer import Answerer
from sightline.answering.arm_pass import ArmPass
from sightline.answering.scorers import Scorer
from sightline.answering.scorers.generation import Generation
from sightline.arms import parse_arm
from sightline.backbones import Backbone
from sightline.backbones.found_cells import FoundCells
from sightline.checks.doctor.finding_cells import found_in
from sightline.core.prefix import Encoded, PositionPolicy, Prefix, Prompt
from sightline.core.probe import Probe

PROBE = Probe(
    id="doctor", image="page.png", image_id="page", label="yes", target_text="INVOICE", source_text="INVOICE",
    question='Does the image contain the exact text "INVOICE"? Answer yes or no.', regions=(),
)  # fmt: skip
PRUNED = ("grid:0.34", "target:0.5", "random:0.2")
TOLERANCE = {torch.float32: 1e-4, torch.float16: 5e-2, torch.bfloat16: 5e-1}
"""Largest allowed logit difference by dtype; half precisions differ by kernel, not by path."""


@dataclass(frozen=True)
class AskedPage:
    backbone: Backbone
    image: Image.Image
    encoded: Encoded

    @staticmethod
    def of(backbone: Backbone, image: Image.Image) -> AskedPage:
        return AskedPage(backbone, image, backbone.encode([backbone.preprocess(image)])[0])

    def over(self, arm: str, scorer: Scorer, positions: PositionPolicy | None = None) -> ArmPass:
        return Answerer(self.backbone, scorer, positions=positions).over(parse_arm(arm), [PROBE], [self.encoded])

    def prefix(self, arm: str, positions: PositionPolicy | None = None) -> Prefix:
        """What is left for the language model, without continuations behind it."""
        return self.over(arm, Generation(), positions).prefix(0)

    @property
    def prompt(self) -> Prompt:
        return self.backbone.prompt(PROBE.question, PROBE.target_text)

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self.backbone.language.dtype]

    @cached_property
    def found(self) -> FoundCells | None:
        """Cells by ramps, whatever the architecture declares; None where its features cannot be traced to pixels."""
        return found_in(self.backbone, self.image.size)


def drawn_image() -> Image.Image:
    """A page-like image, wider than high so that a crop or a tiling shows."""
    image = Image.new("RGB", (640, 448), (246, 244, 238))
    draw = ImageDraw.Draw(image)
    for line in range(14):
        draw.text(
            (24, 20 + 30 * line),
            f"INVOICE {line:03d}   item {line * 7919 % 1000}   {line * 3.17:.2f}",
            fill=(30, 30, 40),
        )
    return image
