"""Sightline audits visual-token pruning in multimodal language models.

``audit(AuditConfig(...))`` runs arms on probes, ``audit_documents(model, documents)`` goes from plain documents to a
verdict, ``load_run(path)`` reads the rows back, ``load_backbone(model)`` opens a checkpoint for work of your own.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sightline.version import __version__ as __version__

if TYPE_CHECKING:
    from sightline.auditing.audit import audit
    from sightline.auditing.config import AuditConfig
    from sightline.backbones import load_backbone
    from sightline.core.probe import Probe
    from sightline.core.selection import (
        Budget,
        LayerSelector,
        LayerState,
        Parity,
        QuerySpan,
        Role,
        Selection,
        Selector,
        TokenView,
    )
    from sightline.documents.audit import DocumentOptions, audit_documents
    from sightline.errors import SightlineError
    from sightline.probes import read_probes
    from sightline.rows.run import Run, load_run
    from sightline.selectors import SELECTORS

_HOMES = {
    "auditing.audit": "audit",
    "auditing.config": "AuditConfig",
    "backbones": "load_backbone",
    "core.probe": "Probe",
    "core.selection": "Budget LayerSelector LayerState Parity QuerySpan Role Selection Selector TokenView",
    "documents.audit": "DocumentOptions audit_documents",
    "errors": "SightlineError",
    "probes": "read_probes",
    "rows.run": "Run load_run",
    "selectors": "SELECTORS",
}
"""Where public names live. Imported on first use, so that the command line starts without torch."""

__all__ = [
    "SELECTORS", "AuditConfig", "Budget", "DocumentOptions", "LayerSelector", "LayerState", "Parity", "Probe",
    "QuerySpan", "Role", "Run", "Selection", "Selector", "SightlineError", "TokenView", "audit", "audit_documents",
    "load_backbone", "load_run", "read_probes",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    home = next((home for home, names in _HOMES.items() if name in names.split()), None)
    if home is None:
        raise AttributeError(f"module 'sightline' has no attribute '{name}'")
    return getattr(importlib.import_module(f"sightline.{home}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
