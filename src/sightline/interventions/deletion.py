"""Deleting and restoring evidence in an existing mask: no re-encoding, only another set of kept tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sightline.boxes.noise import twister
from sightline.errors import SightlineError
from sightline.types import Selection

SEED = 17
SHARES = (0.25, 0.5, 1.0)
REMOVE, EVIDENCE, RANDOM = "remove_evidence", "restore_evidence", "restore_random"


@dataclass(frozen=True)
class MaskEdit:
    """What is done to a selection: ``remove_evidence``, ``restore_evidence=0.5`` or ``restore_random=0.5``."""

    kind: str
    share: float = 0.0

    def __str__(self) -> str:
        return self.kind if self.kind == REMOVE else f"{self.kind}={self.share}"

    @classmethod
    def parse(cls, text: str) -> MaskEdit:
        kind, equals, value = text.strip().partition("=")
        try:
            share = float(value) if equals else 0.0
        except ValueError:
            share = -1.0
        known = (kind == REMOVE and not equals) or (kind in (EVIDENCE, RANDOM) and equals and 0.0 < share <= 1.0)
        if not known:
            raise SightlineError(
                f"'{text}' is no edit of a mask; write {REMOVE}, {EVIDENCE}=SHARE or {RANDOM}=SHARE, SHARE in (0, 1]"
            )
        return cls(kind, share)

    @property
    def tag(self) -> str:
        """The share in the draws' salt: 0p25, 0p50, 1p00."""
        return f"{self.share:.2f}".replace(".", "p")


def deletion_edits() -> tuple[MaskEdit, ...]:
    """Remove the evidence; restore 25, 50 and 100 % of it; restore as many other tokens."""
    restored = [MaskEdit(kind, share) for share in SHARES for kind in (EVIDENCE, RANDOM)]
    return (MaskEdit(REMOVE), *restored)


def edited(anchors: Tensor, evidence: Tensor, edit: MaskEdit, probe_id: str, seed: int = SEED) -> Tensor:
    """(K,) kept tokens and (N,) whether a token touches evidence -> the kept tokens of the variant, ascending.

    Removal shrinks the budget: nothing takes the place of what is gone. A restoration puts back
    c = round(share * removed) tokens, at least one if any was removed: the first removed ones in raster order, or as
    many drawn from the tokens that are neither kept nor evidence.
    """
    kept = anchors.sort().values
    removed, rest = kept[evidence[kept]], kept[~evidence[kept]]
    if edit.kind == REMOVE or not len(removed):
        return rest
    count = min(len(removed), max(1, round(len(removed) * edit.share)))
    if edit.kind == EVIDENCE:
        return torch.cat([rest, removed[:count]]).sort().values
    free = ~evidence.clone()
    free[kept] = False
    pool = torch.nonzero(free).squeeze(-1).tolist()
    twister(seed, probe_id, edit.tag).shuffle(pool)
    return torch.cat([rest, torch.tensor(pool[:count], dtype=kept.dtype)]).sort().values


def edit_selection(
    selection: Selection, evidence: Tensor, edit: MaskEdit, probe_id: str, seed: int = SEED
) -> Selection:
    """The variant of a deletion. A merge has no token that could be taken out on its own, so it is refused."""
    if selection.mix is not None:
        raise SightlineError(
            "evidence cannot be deleted from a selection that merges tokens; leave merging arms out of --interventions"
        )
    anchors = edited(selection.anchors.cpu(), evidence, edit, probe_id, seed)
    if not len(anchors):
        raise SightlineError(
            f"probe '{probe_id}': removing the evidence leaves no visual token at all; choose a larger budget"
        )
    return Selection(anchors.to(selection.anchors.device), None, selection.merge_at)
