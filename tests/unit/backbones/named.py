"""Architectures that declare for the general route what it would find, and pictures to show them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from sightline.backbones import load_backbone
from sightline.backbones.base import BACKBONES
from sightline.backbones.general import General
from tests.zoo import NAMED

TYPES = tuple(name for name, kind in BACKBONES.items() if issubclass(kind, General) and name in NAMED)
QUESTION, TARGET = "Is the word EXIT visible in the image?", "EXIT"


def general(folder: Path, attention: str = "sdpa") -> General:
    """Its cells are found anew whenever they are asked for: what another version remembered would prove nothing."""
    backbone = load_backbone(str(folder), dtype="float32", device="cpu", attention=attention)
    assert isinstance(backbone, General)
    backbone.identity = {}
    return backbone


def photograph(width: int = 200, height: int = 130, seed: int = 3) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))
