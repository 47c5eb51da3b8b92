"""LLaVA under another ``model_type``, whose images may lose their colours first."""

from __future__ import annotations

from dataclasses import dataclass

from PIL import Image

from sightline.backbones.images import option
from sightline.backbones.llava import Llava, LlavaOptions


@dataclass(frozen=True)
class GrayOptions(LlavaOptions):
    gray: bool = option(False, "Take the colours out of every image before the processor sees it.")


class GrayLlava(Llava):
    """LLaVA's weights, prompts and geometry; one option more."""

    image_options = GrayOptions
    options: GrayOptions

    def altered(self, image: Image.Image) -> Image.Image:
        return image.convert("L").convert("RGB") if self.options.gray else image
