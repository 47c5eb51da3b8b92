"""``sightline selectors``, ``backbones`` and ``list``: what can be named, and where it runs."""

from __future__ import annotations

import importlib
import inspect
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sightline.commands.options import with_options
from sightline.core.flags import Flag
from sightline.core.registry import one_line_summary
from sightline.errors import SightlineError

if TYPE_CHECKING:
    from sightline.core.registry import Registry
    from sightline.core.selection import Method


@with_options
def selectors(
    name: Annotated[str | None, typer.Argument()] = None,
    model: Annotated[str | None, Flag(metavar="MODEL")] = None,
) -> None:
    """List the pruning methods: one line each, or one in full.

    With --model only the checkpoint's config.json is read, no weights.
    """
    from rich.text import Text

    from sightline.arms.arm import parameters
    from sightline.core.selection import PARITY_WORDS
    from sightline.core.table import print_rows
    from sightline.progress import SafeConsole
    from sightline.selectors import SELECTORS

    console = SafeConsole()
    reasons: dict[str, str] = {}
    if model is not None:
        from sightline.backbones.base import BACKBONES
        from sightline.backbones.loading import Served, checkpoint_folder, methods_that_run

        place = model if model in BACKBONES else checkpoint_folder(model)
        reasons = methods_that_run(Served.by_description(place))
    if name is not None:
        kind: Any = SELECTORS.get(name)
        console.print(Text.assemble((name, "bold"), f"  arguments: {parameters(kind) or 'none'}"))
        console.print("\n".join(f"{trait}: {value}" for trait, value in traits(kind).items()), markup=False)
        if model is not None:
            console.print(f"runs on {model}: {reasons[name]}", markup=False, highlight=False, soft_wrap=True)
        console.print(f"\n{inspect.getdoc(kind) or ''}", markup=False)
        return
    if model is not None:
        print_rows(console, ("selector", f"runs on {model}"), ((known, reasons[known]) for known in SELECTORS.names()))
    else:
        lines = ((known, one_line_summary(kind), kind.parity, parameters(kind)) for known, kind in SELECTORS.items())
        print_rows(console, ("selector", "idea", "parity", "arguments"), lines)
        console.print(f"\npaper-algorithm: {PARITY_WORDS['paper-algorithm']}", highlight=False, soft_wrap=True)
    for reason in SELECTORS.broken().values():
        console.print(f"broken: {reason}", markup=False, highlight=False, soft_wrap=True)


@with_options
def backbones(name: Annotated[str | None, typer.Argument()] = None) -> None:
    """List the architectures: position policy, and what ``--image-option`` takes for each."""
    from rich.text import Text

    from sightline.backbones import BACKBONES
    from sightline.core.table import print_rows
    from sightline.progress import SafeConsole

    console = SafeConsole(highlight=False)
    for known, kind in BACKBONES.items() if name is None else [(name, BACKBONES.get(name))]:
        about = inspect.getdoc(inspect.getmodule(kind)) or inspect.getdoc(kind) or ""
        console.print(Text.assemble((known, "bold"), f"  positions: {kind.paper_positions}"))
        console.print(about.partition("\n")[0], markup=False)
        described, published = kind.image_options.described(), kind.image_options.artifact
        said = {option: f"artifact: {json.dumps(value)}" for option, value in published.items() if value is not None}
        lines = ((f"  {option}", sentence, said.get(option, "")) for option, sentence in described.items())
        print_rows(console, ("", "", ""), lines, header=False)
    for reason in BACKBONES.broken().values() if name is None else ():
        console.print(f"broken: {reason}", markup=False, soft_wrap=True)


def _where(kind: type[Method]) -> str:
    from sightline.core.selection import TwoStages

    if kind.resizes:
        return "on the image, before the vision tower"
    if issubclass(kind, TwoStages):
        return "before the language model, then between its layers"
    return "between language layers" if kind.inside else "before the language model"


def traits(kind: type[Method]) -> dict[str, str]:
    """What a method says about itself, in words; what depends on arguments, for their defaults."""
    from sightline.backbones.loading import with_defaults
    from sightline.core.selection import PARITY_WORDS, PUBLISHED_BLOCKS, Method, of_image

    word = {True: "yes", False: "no", None: "its class does not say"}
    bare = with_defaults(kind)
    declared = inspect.getattr_static(kind, "reads_boxes")
    varies = isinstance(declared, property) and declared is not inspect.getattr_static(Method, "reads_boxes")
    parts = (of_image(bare.needs), bare.needs - of_image(bare.needs))  # of the image, once, and between the layers
    described = {
        "role": kind.role,
        "acts": _where(kind),
        "a budget counts": {"kept": "tokens that are left", "layers": "tokens that a language layer reads, on average"}[
            kind.budget_counts
        ],
        "merges tokens": word[kind.merges],
        "reads boxes": word[bare.reads_boxes] + (", unless its arguments say so" if varies else ""),
        "parity": kind.parity,
        "parity means": PARITY_WORDS[kind.parity],
        "signals": "; ".join(", ".join(sorted(names)) for names in parts if names) or "none",
        **({"needs a file": f"{kind.needs_file}=FILE"} if kind.needs_file else {}),
    }
    if (other := bare.other_form(PUBLISHED_BLOCKS)) is not None:
        described["on models that lack these"] = other.form
        described["its signals there"] = ", ".join(sorted(other.needs)) or "none"
    elif bare.unpublished:
        described["on models that lack these"] = bare.unpublished
    for model_type, arguments in kind.artifact.items():
        where = "artifact profile" if model_type == "*" else f"artifact profile, {model_type}"
        described[where] = ", ".join(f"{name}={value}" for name, value in arguments.items())
    return described


# ``sightline list``: everything that has a name, the built-in ones and those of other packages.

KINDS = {
    "selectors": "sightline.selectors:SELECTORS",
    "backbones": "sightline.backbones.base:BACKBONES",
    "engines": "sightline.engines:ENGINES",
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
    "paper-tables": "sightline_paper.paper_table:PAPER_TABLES",
}
"""Where each kind is registered; imported when it is asked for."""


@with_options
def list_(kind: Annotated[str | None, typer.Argument()] = None) -> None:
    """List what can be named on the command line: selectors, interventions, scorers, metrics, formats and the rest."""
    from sightline.core.table import print_rows
    from sightline.progress import SafeConsole

    if kind is not None and kind not in KINDS:
        raise SightlineError(f"unknown kind '{kind}'; choose one of {', '.join(KINDS)}")
    console = SafeConsole(highlight=False)
    for name in KINDS if kind is None else [kind]:
        registry = registry_of(name)
        console.print(name, style="bold")
        lines = ((f"  {known}", one_line_summary(entry)) for known, entry in registry.items())
        print_rows(console, ("", ""), lines, header=False)
        for reason in registry.broken().values():
            console.print(f"  broken: {reason}", markup=False, soft_wrap=True)


def registry_of(kind: str) -> Registry[Any]:
    module, _, variable = KINDS[kind].partition(":")
    registry: Registry[Any] = getattr(importlib.import_module(module), variable)
    return registry
