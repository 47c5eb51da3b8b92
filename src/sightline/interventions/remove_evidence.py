from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sightline.interventions.base import INTERVENTIONS
from sightline.interventions.evidence import OnEvidence


@INTERVENTIONS.register("remove_evidence")
@dataclass(frozen=True)
class RemoveEvidence(OnEvidence):
    """Drops every kept token that touches the evidence."""

    name: ClassVar[str] = "remove_evidence"
