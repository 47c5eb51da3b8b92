"""Signals of a vision tower that the model's own code runs, where a class says which rows a token is made from."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

from torch import Tensor

from sightline.backbones.base import Backbone
from sightline.backbones.own_decoder import OwnDecoder
from sightline.backbones.recorded import blocks_of
from sightline.backbones.signals import BLOCK_KINDS, HIDDEN_KINDS, split_name
from sightline.backbones.token_signals import CLASS_KINDS, token_signal
from sightline.core.prefix import Encoded
from sightline.errors import SightlineError

SERVED_KINDS = (*HIDDEN_KINDS, *BLOCK_KINDS)


class TowerSignals(Backbone):
    """What the general route serves of signals; a class that declares ``token_rows`` has those of the tower too."""

    class_token: ClassVar[bool] = False
    """Whether the vision tower puts a class token before the patches of every tile."""

    @cached_property
    def vision_blocks(self) -> Any:
        return blocks_of(self.vision_tower)

    @property
    def vision_tower(self) -> Any:
        return self.model.get_encoder("image")

    def serves(self, name: str) -> str | None:
        kind, _ = split_name(name)
        if kind.startswith("lm."):
            language = self.language
            return language.reason if isinstance(language, OwnDecoder) else None
        if type(self).token_rows is TowerSignals.token_rows:
            return f"nobody has said which rows of its vision tower a token is made from, so there is no {kind}"
        if kind.startswith("clip."):
            return f"its vision tower is not the one of a CLIP checkpoint, so there is no {kind}"
        if kind.startswith("image."):
            return f"nobody has said which values of the prepared image a token is made from, so there is no {kind}"
        if kind in CLASS_KINDS and not self.class_token:
            return f"its vision tower has no class token, so there is no {kind}"
        return None if kind in SERVED_KINDS else f"{type(self).__name__} has no signal {kind}"

    def token_rows(self, size: tuple[int, int]) -> Tensor:
        """(N, m) rows of the vision tower, all tiles one behind the other, that each token is made from.

        A class that says so serves signals of the tower.
        """
        raise SightlineError(f"{type(self).__name__} does not say which rows of its tower a token is made from")

    def token_weights(self, size: tuple[int, int]) -> Tensor | None:
        """(N, m) how much of a token comes from each of its ``token_rows``; None: all have the same part in it."""
        return None

    def vision_signal(self, name: str, encoded: Encoded) -> Tensor:
        return token_signal(name, encoded.captured, len(self.vision_blocks), self.class_token)
