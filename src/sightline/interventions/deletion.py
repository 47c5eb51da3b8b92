"""Deleting and restoring evidence in an existing mask: no re-encoding, only another set of kept tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sightline.boxes.noise import twister
from sightline.errors import SightlineError
from sightline.interventions.edits import REMOVE, RESTORE, Edit
from sightline.selectors.scores import overlap_fraction
from sightline.types import Box, Selection

SEED = 17


def edited(anchors: Tensor, evidence: Tensor, edit: Edit, probe_id: str, seed: int = SEED) -> Tensor:
    """(K,) kept tokens and (N,) whether a token touches evidence -> the kept tokens of the variant, ascending.

    Removal shrinks the budget: nothing takes the place of what is gone. A restoration puts back
    c = round(share * removed) tokens, at least one if any was removed: the first removed ones in raster order, or as
    many drawn from the tokens that are neither kept nor evidence.
    """
    kept = anchors.sort().values
    removed, rest = kept[evidence[kept]], kept[~evidence[kept]]
    if edit.kind == REMOVE or not len(removed):
        return rest
    count = min(len(removed), max(1, round(len(removed) * (edit.share or 0.0))))
    if edit.kind == RESTORE:
        return torch.cat([rest, removed[:count]]).sort().values
    free = ~evidence.clone()
    free[kept] = False
    pool = torch.nonzero(free).squeeze(-1).tolist()
    twister(seed, probe_id, edit.tag).shuffle(pool)
    return torch.cat([rest, torch.tensor(pool[:count], dtype=kept.dtype)]).sort().values


def touches(cells: Tensor, regions: Sequence[Box]) -> Tensor:
    """(N,) whether a cell (N, 4) shares area with a region."""
    boxes = torch.tensor(regions, dtype=torch.float64).reshape(-1, 4)
    return (overlap_fraction(cells.double(), boxes) > 0.0).any(dim=0)


def edit_selection(
    selection: Selection, cells: Tensor, regions: Sequence[Box], edit: Edit, probe_id: str, seed: int = SEED
) -> Selection:
    """The variant of a deletion. A merge has no token that could be taken out on its own, so it is refused."""
    if selection.mix is not None:
        raise SightlineError(
            f"{edit} is not defined for a selection that merges tokens; name the edited arms one by one instead of "
            "--interventions deletion"
        )
    anchors = edited(selection.anchors.cpu(), touches(cells, regions), edit, probe_id, seed)
    if not len(anchors):
        raise SightlineError(
            f"probe '{probe_id}': removing the evidence leaves no visual token at all; choose a larger budget"
        )
    return Selection(anchors.to(selection.anchors.device), None, selection.merge_at)
