"""Engines that people ship: they answer questions about images and show none of their layers. One file each."""

from sightline.engines.base import ENGINES, Engine, Heard, Question, engine_of

__all__ = ["ENGINES", "Engine", "Heard", "Question", "engine_of"]
