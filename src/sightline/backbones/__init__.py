"""Architectures: image and prompt in, projected tokens with their cells and a language forward out."""

from sightline.backbones.base import BACKBONES, Backbone, weight_digest
from sightline.backbones.images import ImageOptions, Pixels
from sightline.backbones.loading import load_backbone, options_for

__all__ = ["BACKBONES", "Backbone", "ImageOptions", "Pixels", "load_backbone", "options_for", "weight_digest"]
