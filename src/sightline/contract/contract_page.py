"""An image of noise and a question about it, on the path that every audit takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sightline.answering.materialise import materialise
from sightline.backbones.base import Backbone
from sightline.core.prefix import Encoded, PositionPolicy, Prefix, Prompt
from sightline.core.probe import Probe
from sightline.core.selection import Selection

PROBE = Probe(
    id="contract", image="noise.png", image_id="noise", label="yes", target_text="word", source_text="word",
    question="Is the word visible? Answer yes or no.", regions=(),
)  # fmt: skip


@dataclass(frozen=True)
class CheckedPage:
    """An encoded image of noise and a question about it."""

    backbone: Backbone
    image: Image.Image
    encoded: Encoded

    @staticmethod
    def of(backbone: Backbone, size: tuple[int, int]) -> CheckedPage:
        width, height = size
        noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
        image = Image.fromarray(noise)
        return CheckedPage(backbone, image, backbone.encode([backbone.preprocess(image)])[0])

    @property
    def name(self) -> str:
        return f"{type(self.backbone).__name__}, an image of {self.image.width} x {self.image.height}"

    @property
    def prompt(self) -> Prompt:
        return self.backbone.prompt(PROBE.question, PROBE.target_text)

    def prefix(self, anchors: Tensor, policy: PositionPolicy = "preserve", prompt: Prompt | None = None) -> Prefix:
        """With these (K,) of the N tokens."""
        return materialise(self.backbone, self.encoded, prompt or self.prompt, Selection(anchors), policy)

    @property
    def everything(self) -> Tensor:
        return torch.arange(self.encoded.n)

    @property
    def some(self) -> list[Tensor]:
        """Tokens to keep: the first alone, the last alone, every third."""
        n = self.encoded.n
        return [torch.tensor([0]), torch.tensor([n - 1]), torch.arange(0, n, 3)]


def said(cell: np.ndarray) -> str:
    return f"({', '.join(f'{edge:.3f}' for edge in cell)})"
