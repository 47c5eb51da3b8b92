"""Sightline audits visual-token pruning in multimodal language models.

Three calls: ``audit(AuditConfig(...))`` runs arms on probes, ``load_run(path)`` reads the rows back,
``load_backbone(model)`` opens a checkpoint for work of your own.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from sightline.audit import audit
    from sightline.backbones import load_backbone
    from sightline.config import AuditConfig
    from sightline.errors import SightlineError
    from sightline.probes import read_probes
    from sightline.selectors import SELECTORS
    from sightline.store import Run, load_run
    from sightline.types import Budget, Probe, Selection, TokenView

_HOMES = {
    "AuditConfig": "sightline.config",
    "Budget": "sightline.types",
    "Probe": "sightline.types",
    "Run": "sightline.store",
    "SELECTORS": "sightline.selectors",
    "Selection": "sightline.types",
    "SightlineError": "sightline.errors",
    "TokenView": "sightline.types",
    "audit": "sightline.audit",
    "load_backbone": "sightline.backbones",
    "load_run": "sightline.store",
    "read_probes": "sightline.probes",
}
"""Public names and where they live. Imported on first use, so that the command line starts without torch."""

__all__ = [
    "SELECTORS", "AuditConfig", "Budget", "Probe", "Run", "Selection", "SightlineError", "TokenView",
    "audit", "load_backbone", "load_run", "read_probes",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sightline' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)
