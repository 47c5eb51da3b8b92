"""What a form of the reader is: a stock architecture at the reader's size, its files, and its forward."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch

import sightline
from lab.reader.forward import BatchedForward

PIXELS = {
    "do_convert_rgb": True,
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "resample": 3,
    "rescale_factor": 1 / 255,
}
"""What image processors of all forms do to pixels: -1 to 1, as the forwards here take them."""


class Form(ABC):
    """Everything that training, export and the model card have to know about an architecture."""

    name: ClassVar[str]
    folder: ClassVar[str]
    """Of the shipped checkpoint, under ``assets``."""
    words: ClassVar[str]
    """The architecture, as the model card says it."""
    other_sizes: ClassVar[str]
    """What becomes of images that are not of the scenes' size, for the card."""
    story: ClassVar[str]
    """What the card tells about the training of the shipped checkpoint beside the record of it."""
    limits: ClassVar[str]
    """List items that the limits in the card have for the shipped checkpoint of this form alone."""
    side: ClassVar[int]
    """Visual tokens per side of a scene."""
    units_per_state: ClassVar[int] = 1
    """Units of ``lab.reader.token_grid`` that one state of the vision tower stands for."""
    has_page: ClassVar[bool] = False
    """Whether the tower has a class token, which is then trained to say what stands on the page."""
    prefix: ClassVar[tuple[int, ...]]
    """Ids before the visual tokens, for a yes/no question."""
    open_prefix: ClassVar[tuple[int, ...]]
    """The same for an open question. Equally long, so that positions are the same."""
    presets: ClassVar[Mapping[str, Mapping[str, Mapping[str, Any]]]]
    """Sizes of ``vision`` and ``text`` by name: ``full`` is shipped, ``toy`` is for trying things out."""
    processor_files: ClassVar[Mapping[str, Mapping[str, Any]]]
    """File -> its content, beside the tokenizer's."""

    @property
    def tokens(self) -> int:
        return self.side**2

    @property
    def shipped(self) -> Path:
        return Path(sightline.__file__).parent / "assets" / self.folder

    def model(self, preset: str = "full", seed: int = 0) -> Any:
        """Freshly initialised, float32."""
        torch.manual_seed(seed)
        return self.build(preset)

    @abstractmethod
    def build(self, preset: str) -> Any: ...

    @abstractmethod
    def forward(self, model: Any, device: torch.device | str) -> BatchedForward: ...
