"""Tiny checkpoints of image-text architectures, made from their config classes: random weights, nothing downloaded.

``build(model_type, folder)`` writes one. The named architectures are written down in ``species.yaml``.
"""

from tests.zoo.building import build, deepened
from tests.zoo.specimen import NAMED

__all__ = ["NAMED", "build", "deepened"]
