"""Every architecture that has a file of its own, on a tiny checkpoint, and pictures to show them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sightline.answering.materialise import materialise
from sightline.backbones import Backbone, load_backbone
from sightline.backbones.base import BACKBONES
from sightline.backbones.general import General
from sightline.backbones.images import ImageOptions
from sightline.core.prefix import Encoded, Prefix, Prompt
from sightline.core.selection import PositionPolicy, Selection
from sightline.core.span import KeptSpan
from tests.conftest import DATA
from tests.zoo import NAMED
from tests.zoo.stand_ins import stood_in_for

Zoo = Callable[[str], Path]
"""From a type to the folder of its tiny checkpoint."""
SHIPPED: dict[str, dict[str, int]] = {"qwen3vl": {"max_pixels": 100352}, "llava": {}, "internvl": {"max_tiles": 3}}
"""Checkpoints of tests/data, and image options that keep them quick."""
TYPES = tuple(name for name, kind in BACKBONES.items() if issubclass(kind, General) and name in NAMED)
"""Those that declare for the general route what it would find."""
SECOND_FORM = "internvl"
"""Of the zoo: Qwen2's text model behind the tower that has a file of its own."""
ARCHITECTURES = (*(f"shipped-{name}" for name in SHIPPED), SECOND_FORM, *TYPES)
POLICIES: tuple[PositionPolicy, ...] = ("preserve", "compact")
QUESTION, TARGET = "Is the word EXIT visible in the image?", "EXIT"


def architecture(name: str, zoo: Zoo, attention: str = "sdpa", dtype: str = "float32") -> Backbone:
    """One of ``ARCHITECTURES``, loaded."""
    kind, _, model = name.partition("-")
    shipped = kind == "shipped"
    folder, options = (DATA / "tiny" / model, SHIPPED[model]) if shipped else (zoo(name), {})
    with stood_in_for(name):
        backbone = load_backbone(str(folder), dtype=dtype, device="cpu", attention=attention, options=options)
    if isinstance(backbone, General):
        backbone.identity = {}  # cells are found anew: what another version remembered would prove nothing
    return backbone


def general(folder: Path, attention: str = "sdpa") -> General:
    """The checkpoint in a folder by the general route."""
    backbone = architecture(folder.name, lambda _: folder, attention)
    assert isinstance(backbone, General)
    return backbone


def plainly(folder: Path, attention: str = "sdpa") -> General:
    """The checkpoint by the general route, whatever else is known of its type."""
    backbone = General.load(
        str(folder), dtype=torch.float32, device=torch.device("cpu"), attention=attention, options=ImageOptions()
    )
    backbone.identity = {}
    return backbone


def photograph(width: int = 200, height: int = 130, seed: int = 3) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def kept_span(encoded: Encoded, anchors: Tensor) -> KeptSpan | None:
    return None if encoded.separators is None else KeptSpan.of(encoded.separators, anchors, encoded.n)


def prefix_of(
    backbone: Backbone, encoded: Encoded, prompt: Prompt, anchors: Tensor, policy: PositionPolicy = "preserve"
) -> Prefix:
    """The prompt with these of the image's tokens."""
    return materialise(backbone, encoded, prompt, Selection(anchors), policy, kept_span(encoded, anchors))
