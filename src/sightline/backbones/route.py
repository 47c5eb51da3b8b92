"""By which route a checkpoint is served: whose code makes its tokens, and whose code runs its language layers."""

from __future__ import annotations

from sightline.backbones.base import Backbone
from sightline.backbones.own_decoder import OwnDecoder


def served_by(backbone: Backbone) -> dict[str, str]:
    """``images``: the class that encodes them, and why its type's own does not; ``language``: our loop, or the model's
    own decoder and why."""
    language = backbone.language
    own = f"the model's own decoder: {language.reason}" if isinstance(language, OwnDecoder) else "loop"
    images = type(backbone).__name__
    return {"images": images if backbone.instead is None else f"{images} ({backbone.instead})", "language": own}
