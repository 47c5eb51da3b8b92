"""``local_contrast``: a pruning method that lives outside Sightline and is found through an entry point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sightline.core.selection import Parity, QuerySpan, Selection, TokenView
from sightline.selectors.scores import top, uniqueness


@dataclass(frozen=True)
class LocalContrast:
    """Keeps the tokens least like their four neighbours in the image.

    Needs: projected tokens and their layout.
    Acts: deletes before the language model.

    Parameters
    ----------
    sharpness: exponent of the contrast; it changes nothing for a top-K rule and shows how an argument reaches a method.
    """

    sharpness: float = 1.0

    name: ClassVar[str] = "local_contrast"
    query: ClassVar[QuerySpan] = "none"
    parity: ClassVar[Parity] = "own"
    needs: ClassVar[frozenset[str]] = frozenset()

    def select(self, view: TokenView, k: int) -> Selection:
        contrast = uniqueness(view.tokens, view.layout)
        return Selection(top(contrast**self.sharpness, k))
