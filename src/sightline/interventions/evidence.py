"""Which kept tokens touch the evidence, and what becomes of a mask without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.boxes.sources import seeded_random
from sightline.core.probe import Box, Probe
from sightline.errors import SightlineError
from sightline.interventions.base import INTERVENTIONS, Intervention
from sightline.selectors.scores import overlap_fraction

SHARES = (0.25, 0.5, 1.0)
SEED = 17


def touches(cells: Tensor, regions: Sequence[Box]) -> Tensor:
    """(N,) whether a cell (N, 4) shares area with a region."""
    boxes = torch.tensor(regions, dtype=torch.float64).reshape(-1, 4)
    return (overlap_fraction(cells.double(), boxes) > 0.0).any(dim=0)


@dataclass(frozen=True)
class OnEvidence(Intervention):
    """Removes every kept token that touches the evidence; ``instead`` says what comes back.

    Removal shrinks the budget: nothing takes the place of what is gone.
    """

    family: ClassVar[str] = "deletion"
    on_mask: ClassVar[bool] = True
    needs_regions: ClassVar[bool] = True

    def kept(self, anchors: Tensor, cells: Tensor, probe: Probe) -> Tensor:
        changed = self.without_evidence(anchors, touches(cells, probe.regions), probe.id)
        if not len(changed):
            raise SightlineError(
                f"probe '{probe.id}': removing the evidence leaves no visual token at all; choose a larger budget"
            )
        return changed

    def without_evidence(self, anchors: Tensor, evidence: Tensor, probe_id: str) -> Tensor:
        """(K,) kept tokens and (N,) whether a token touches evidence -> the kept tokens instead, ascending."""
        kept = anchors.sort().values
        removed, rest = kept[evidence[kept]], kept[~evidence[kept]]
        if not len(removed):
            return rest
        return torch.cat([rest, self.instead(kept, removed, evidence, probe_id)]).sort().values

    def instead(self, kept: Tensor, removed: Tensor, evidence: Tensor, probe_id: str) -> Tensor:
        """Tokens that come back: of the removed ones, or of those that are neither kept nor evidence."""
        return removed[:0]


@dataclass(frozen=True)
class Restoration(OnEvidence):
    """Puts back c = round(share * removed) tokens, at least one if any was removed."""

    share: float

    def __post_init__(self) -> None:
        try:
            share = float(self.share)
        except ValueError:
            share = 0.0
        if not 0.0 < share <= 1.0:
            raise SightlineError(f"'{self.name}={self.share}' needs a share in (0, 1], for example {self.name}=0.5")
        object.__setattr__(self, "share", share)

    @classmethod
    def usual(cls) -> tuple[Intervention, ...]:
        return tuple(cls(share) for share in SHARES)

    def count(self, removed: Tensor) -> int:
        return min(len(removed), max(1, round(len(removed) * self.share)))


@INTERVENTIONS.register("remove_evidence")
@dataclass(frozen=True)
class RemoveEvidence(OnEvidence):
    """Drops every kept token that touches the evidence."""

    name: ClassVar[str] = "remove_evidence"


@INTERVENTIONS.register("restore_evidence")
@dataclass(frozen=True)
class RestoreEvidence(Restoration):
    """Drops the evidence, then puts a share of it back: the first removed tokens in raster order."""

    name: ClassVar[str] = "restore_evidence"

    def instead(self, kept: Tensor, removed: Tensor, evidence: Tensor, probe_id: str) -> Tensor:
        return removed[: self.count(removed)]


@INTERVENTIONS.register("restore_random")
@dataclass(frozen=True)
class RestoreRandom(Restoration):
    """Drops the evidence, then adds as many tokens drawn from those that are neither kept nor evidence."""

    name: ClassVar[str] = "restore_random"

    def instead(self, kept: Tensor, removed: Tensor, evidence: Tensor, probe_id: str) -> Tensor:
        free = ~evidence
        free[kept] = False
        pool = torch.nonzero(free).squeeze(-1).tolist()
        seeded_random(SEED, probe_id, f"{self.share:.2f}".replace(".", "p")).shuffle(pool)
        return torch.tensor(pool[: self.count(removed)], dtype=kept.dtype)
