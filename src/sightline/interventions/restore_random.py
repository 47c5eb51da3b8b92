from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.boxes.noise import twister
from sightline.interventions.base import INTERVENTIONS
from sightline.interventions.evidence import SEED, Restoration


@INTERVENTIONS.register("restore_random")
@dataclass(frozen=True)
class RestoreRandom(Restoration):
    """Drops the evidence, then adds as many tokens drawn from those that are neither kept nor evidence."""

    name: ClassVar[str] = "restore_random"

    def instead(self, kept: Tensor, removed: Tensor, evidence: Tensor, probe_id: str) -> Tensor:
        free = ~evidence
        free[kept] = False
        pool = torch.nonzero(free).squeeze(-1).tolist()
        twister(SEED, probe_id, f"{self.share:.2f}".replace(".", "p")).shuffle(pool)
        return torch.tensor(pool[: self.count(removed)], dtype=kept.dtype)
