from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from sightline.interventions.base import INTERVENTIONS
from sightline.interventions.evidence import Restoration


@INTERVENTIONS.register("restore_evidence")
@dataclass(frozen=True)
class RestoreEvidence(Restoration):
    """Drops the evidence, then puts a share of it back: the first removed tokens in raster order."""

    name: ClassVar[str] = "restore_evidence"

    def instead(self, kept: Tensor, removed: Tensor, evidence: Tensor, probe_id: str) -> Tensor:
        return removed[: self.count(removed)]
