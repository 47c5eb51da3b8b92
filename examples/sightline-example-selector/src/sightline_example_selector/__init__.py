"""``local_contrast``: a pruning method that lives outside Sightline and is found through an entry point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sightline import Parity, Role, Selection, Selector, TokenView
from sightline.selectors.scores import top, uniqueness


@dataclass(frozen=True)
class LocalContrast(Selector):
    """Keeps the tokens least like their four neighbours in the image.

    Needs: projected tokens and their layout.
    Acts: deletes before the language model.

    Parameters
    ----------
    sharpness: exponent of the contrast; it changes nothing for a top-K rule and shows how an argument reaches a method.
    """

    sharpness: float = 1.0

    name: ClassVar[str] = "local_contrast"
    parity: ClassVar[Parity] = "own"
    role: ClassVar[Role] = "control"
    merges: ClassVar[bool] = False
    reads_boxes: ClassVar[bool] = False

    def select(self, view: TokenView, k: int) -> Selection:
        contrast = uniqueness(view.tokens, view.layout)
        return Selection(top(contrast**self.sharpness, k))
