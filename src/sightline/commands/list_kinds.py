"""``sightline list``: everything that has a name, the built-in ones and those of other packages."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sightline.errors import SightlineError

if TYPE_CHECKING:
    from sightline.core.registry import Registry

KINDS = {
    "selectors": "sightline.selectors:SELECTORS",
    "backbones": "sightline.backbones.base:BACKBONES",
    "policies": "sightline.policies:POLICIES",
    "interventions": "sightline.interventions:INTERVENTIONS",
    "scorers": "sightline.answering.scorers:SCORERS",
    "launchers": "sightline.auditing.launchers:LAUNCHERS",
    "formats": "sightline.probes.formats:FORMATS",
    "box-sources": "sightline.boxes.sources:BOX_SOURCES",
    "detectors": "sightline.boxes.detectors:DETECTORS",
    "metrics": "sightline.statistics.metrics:METRICS",
    "sections": "sightline.report.sections:SECTIONS",
    "benchmarks": "sightline.cost.benchmarks.base:BENCHMARKS",
    "paper-tables": "sightline.paper.paper_table:PAPER_TABLES",
}
"""Where each kind is registered; imported when it is asked for."""


def list_(kind: Annotated[str | None, typer.Argument(help="One kind alone, for example scorers.")] = None) -> None:
    """List what can be named on the command line: selectors, interventions, scorers, metrics, formats and the rest."""
    from rich.table import Table

    from sightline.progress import SafeConsole

    if kind is not None and kind not in KINDS:
        raise SightlineError(f"unknown kind '{kind}'; choose one of {', '.join(KINDS)}")
    console = SafeConsole(highlight=False)
    for name in KINDS if kind is None else [kind]:
        registry = registry_of(name)
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        for known, entry in registry.items():
            table.add_row(f"  {known}", idea_of(entry))
        console.print(name, style="bold")
        console.print(table)
        for reason in registry.broken().values():
            console.print(f"  broken: {reason}", markup=False, soft_wrap=True)


def registry_of(kind: str) -> Registry[Any]:
    module, _, variable = KINDS[kind].partition(":")
    registry: Registry[Any] = getattr(importlib.import_module(module), variable)
    return registry


def idea_of(entry: Any) -> str:
    """One line: what it says of itself, or the first of its docstring."""
    for said in ("definition", "description", "title"):
        if isinstance(getattr(entry, said, None), str):
            return str(getattr(entry, said))
    return (inspect.getdoc(entry) or "").partition("\n")[0]
