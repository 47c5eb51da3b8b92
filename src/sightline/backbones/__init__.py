"""Architectures: picture and prompt in, projected tokens with their cells and a language forward out."""

from sightline.backbones.base import BACKBONES, Backbone
from sightline.backbones.loading import load_backbone, weight_digest
from sightline.backbones.pixels import ImageOptions, Pixels

__all__ = ["BACKBONES", "Backbone", "ImageOptions", "Pixels", "load_backbone", "weight_digest"]
