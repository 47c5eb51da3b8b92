"""Ovis2: the general route, with markers between tiles that are embedded by the table of visual words."""

from __future__ import annotations

from torch import Tensor

from sightline.backbones.base import BACKBONES
from sightline.backbones.general import General


@BACKBONES.register("ovis2")
class Ovis2(General):
    """Tokens are mixtures of visual words; the last words of that table are the markers around tiles and rows."""

    def span_embeds(self, ids: tuple[int, ...]) -> Tensor:
        marks = list(self.model.config.visual_indicator_token_ids)
        words = self.body.visual_embeddings_table.weight
        embeds = super().span_embeds(ids).clone()
        for slot, token in enumerate(ids):
            if token in marks:
                embeds[slot] = words[len(words) - len(marks) + marks.index(token)]
        return embeds
