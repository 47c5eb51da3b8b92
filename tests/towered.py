"""Backbones whose tower runs from a file of its own, for tests of what only those can do."""

from sightline.backbones import Backbone
from sightline.backbones.towered import Towered


def towered(backbone: Backbone) -> Towered:
    assert isinstance(backbone, Towered)
    return backbone
