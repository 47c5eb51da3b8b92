"""``box_average``: what lies in the boxes stays, what lies beside it is averaged in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline import Parity, Role, Selection, Selector, TokenView
from sightline.core.selection import ByModel
from sightline.errors import SightlineError
from sightline.selectors.scores import centre_prior, centres, order, overlap_fraction


@dataclass(frozen=True)
class BoxAverage(Selector):
    """Keeps the tokens that lie deepest in the boxes; each becomes the mean of itself and the others nearest to it.

    Needs: boxes.
    Acts: merges projected tokens before the language model. A token that is farther than ``reach`` from every kept one
    is deleted, so that the lineage is less than the whole image.
    Degenerate inputs: without boxes, or where they hold fewer than K tokens, those nearest to the image centre follow.
    Ties go to the lower index.

    Parameters
    ----------
    reach: largest distance between the centres of two cells that are averaged, in fractions of the image.
    """

    reach: float = 0.1

    name: ClassVar[str] = "box_average"
    parity: ClassVar[Parity] = "own"
    role: ClassVar[Role] = "method"
    merges: ClassVar[bool] = True
    reads_boxes: ClassVar[bool] = True
    artifact: ClassVar[ByModel] = {"gray_llava": {"reach": 0.25}}

    def __post_init__(self) -> None:
        if self.reach < 0.0:
            raise SightlineError(f"box_average: reach must not be negative, got {self.reach}")

    def select(self, view: TokenView, k: int) -> Selection:
        inside = overlap_fraction(view.cells, view.boxes).sum(dim=0)
        kept = order(-inside, -centre_prior(view.cells))[:k].sort().values
        return Selection(kept, mean_of_nearest(view.cells, kept, self.reach).to(view.tokens.device))


def mean_of_nearest(cells: Tensor, kept: Tensor, reach: float) -> Tensor:
    """(N, 4) cells, (K,) kept tokens -> (K, N) float32 mix: row u is the mean of kept token u and what joins it.

    A token joins the nearest kept one, by the centres of their cells, unless that is farther than ``reach``.
    """
    centre = torch.stack(centres(cells), dim=1)
    distance = torch.cdist(centre, centre[kept])
    distance[kept, torch.arange(len(kept))] = -1.0  # a kept token joins itself, whatever else has the same centre
    nearest = torch.argsort(distance, dim=1, stable=True)[:, :1]
    joins = (distance.gather(1, nearest) <= reach).double()
    members = torch.zeros_like(distance).scatter_(1, nearest, joins).T
    return (members / members.sum(dim=1, keepdim=True)).float()
