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
    from sightline.rows import Run, load_run
    from sightline.selectors import SELECTORS

_HOMES = {
    "AuditConfig": "sightline.auditing.config",
    "Budget": "sightline.core.selection",
    "DocumentOptions": "sightline.documents.audit",
    "LayerSelector": "sightline.core.selection",
    "LayerState": "sightline.core.selection",
    "Parity": "sightline.core.selection",
    "Probe": "sightline.core.probe",
    "QuerySpan": "sightline.core.selection",
    "Role": "sightline.core.selection",
    "Run": "sightline.rows",
    "SELECTORS": "sightline.selectors",
    "Selection": "sightline.core.selection",
    "Selector": "sightline.core.selection",
    "SightlineError": "sightline.errors",
    "TokenView": "sightline.core.selection",
    "audit": "sightline.auditing.audit",
    "audit_documents": "sightline.documents.audit",
    "load_backbone": "sightline.backbones",
    "load_run": "sightline.rows",
    "read_probes": "sightline.probes",
}
"""Public names and where they live. Imported on first use, so that the command line starts without torch."""

__all__ = [
    "SELECTORS", "AuditConfig", "Budget", "DocumentOptions", "LayerSelector", "LayerState", "Parity", "Probe",
    "QuerySpan", "Role", "Run", "Selection", "Selector", "SightlineError", "TokenView", "audit", "audit_documents",
    "load_backbone", "load_run", "read_probes",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sightline' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
