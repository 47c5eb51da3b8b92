"""Writes the pages of docs/reference from the code: no sentence of them stands anywhere else.

    python docs/reference.py [FOLDER]

A test compares the files with what this module makes, so they cannot go stale.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer
from generate import table
from registry_homes import homes
from wording import code, first_paragraph, prose, shown, signature, type_name

import sightline
from sightline.answering.scorers import SCORERS, Scorer
from sightline.auditing.config import AuditConfig
from sightline.backbones.loading import with_defaults
from sightline.cli import app
from sightline.core.probe import ORIGINAL
from sightline.core.registry import Registry
from sightline.core.row import IMAGE_COLUMNS, ROW_COLUMNS, SCHEMA_VERSION, Column
from sightline.core.selection import LayerSelector, Selector
from sightline.interventions import INTERVENTIONS, Intervention
from sightline.selectors import SELECTORS
from sightline.statistics.metrics import METRICS

FOLDER = Path(__file__).parent / "reference"
NOTICE = "<!-- Written by docs/reference.py; change the code it reads and run `make reference`. -->"


def rows() -> str:
    """Every column of a run's tables."""
    parts = [
        f"The tables of a [run folder](../runs.md), schema {SCHEMA_VERSION}. `sightline rows RUN` exports the first;",
        "in Python it is `sightline.load_run(folder).frame()`.",
        "",
        "## Rows: one per probe and arm",
        "",
        columns(ROW_COLUMNS),
        *(line for name, kind in SCORERS.items() for line in scored(name, kind)),
        "",
        "## Images: one per image and view",
        "",
        columns(IMAGE_COLUMNS),
    ]
    return "\n".join(parts)


def scored(name: str, kind: type[Scorer]) -> list[str]:
    """What a scorer adds to every row."""
    idea = prose((inspect.getdoc(kind) or "").partition("\n")[0])
    metrics = ", ".join(f"`{metric}`" for metric in kind.metrics)
    return ["", f"### With `--scorer {name}`", "", idea, "", columns(kind.columns), "", f"Metrics: {metrics}."]


def columns(declared: Sequence[Column]) -> str:
    lines = [
        [f"`{each.name}`", each.type.replace("list<", "list of ").rstrip(">"), prose(each.doc)] for each in declared
    ]
    return table(("column", "type", "what it holds"), lines)


def selectors() -> str:
    """Every pruning method, its arguments and what it declares about itself."""
    parts = [
        "An arm is a method, a budget and arguments: `scope:0.4:alpha=0`. [Published methods](../methods.md) shows all",
        "of them in one table, [signals](../signals.md) what they may look at,",
        "[write a selector](../write-a-selector.md) how to add one.",
    ]
    for name in SELECTORS:
        kind: Any = SELECTORS.get(name)
        idea, _, rest = (inspect.getdoc(kind) or "").partition("\n\n")
        parts += ["", f"## `{name}`", "", prose(idea), "", *facts(kind, rest)]
        if fields(kind):
            parts += ["", table(("argument", "type", "default", "what it does"), map(argument(kind), fields(kind)))]
    return "\n".join(parts)


def facts(kind: Any, text: str) -> list[str]:
    """What a method's docstring says under headings such as ``Reference:``, then what its class declares."""
    heading = r"[A-Z][A-Za-z -]+: "
    said = re.findall(rf"^({heading})(.*?)(?=\n\n|\n{heading}|\Z)", text, re.DOTALL | re.MULTILINE)
    lines = [f"- {name}{prose(sentence)}" for name, sentence in said]
    declared = [f"{name} {value}" for name, value in traits(kind)]
    return [*lines, f"- Declares: {', '.join(declared)}."]


def traits(kind: Any) -> Iterator[tuple[str, str]]:
    """(name, value) of everything that the contract of a method lets a class say about itself."""
    method = with_defaults(kind)
    contract = LayerSelector if hasattr(kind, "cut") else Selector
    names = dict.fromkeys(name for base in reversed(contract.__mro__) for name in declarations(base))
    for name in names:
        value = getattr(method, name, None)
        repeats_the_heading = name in ("name", "salt")
        if not repeats_the_heading and value not in (None, "", {}) and not callable(value):
            yield name.replace("_", " "), shown(value)


def declarations(base: type) -> Iterator[str]:
    """Properties and class variables without an underscore."""
    if base.__module__.startswith("sightline."):
        yield from (name for name, value in vars(base).items() if isinstance(value, property) and name[0] != "_")
        annotations = inspect.get_annotations(base)
        yield from (name for name, kind in annotations.items() if "ClassVar" in str(kind) and name[0] != "_")


def required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def argument(kind: Any) -> Callable[[Field[Any]], list[str]]:
    """A line of the table of arguments; its sentence stands under ``Parameters`` in the docstring of a class."""
    sentences: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        _, _, listed = inspect.cleandoc(base.__doc__ or "").partition("Parameters\n----------\n")
        found = re.findall(r"^([\w, ]+): (.*?)(?=\n\n|\n[\w, ]+: |\Z)", listed, re.DOTALL | re.MULTILINE)
        sentences.update({name: text for names, text in found for name in names.split(", ")})

    def line(field: Field[Any]) -> list[str]:
        default = "needed" if required(field) else shown(field.default)
        return [f"`{field.name}`", code(str(field.type)), default, prose(sentences.get(field.name, ""))]

    return line


def metrics() -> str:
    """Every metric, as reports, gates and Python know it."""
    known: list[Any] = [METRICS.get(name) for name in METRICS]
    lines = [
        [f"`{name}`", prose(metric.label), prose(metric.definition), metric.over, metric.better]
        for name, metric in zip(METRICS, known, strict=True)
    ]
    parts = [
        "The names are what `sightline gate --rule` and the functions of `sightline.statistics` take, the labels are",
        "what reports show. [Statistics](../statistics.md) says how intervals and differences come about.",
        "",
        table(("name", "label", "definition", "taken over", "better"), lines),
    ]
    return "\n".join(parts)


def interventions() -> str:
    """Every change that can be made to an arm on purpose."""
    lines = []
    for name in INTERVENTIONS:
        kind = INTERVENTIONS.get(name)
        written = ", ".join(f"`+{each}`" for each in kind.usual())
        lines.append([written, f"`{kind.family}`", changes(kind), needs(kind), prose(first_paragraph(kind))])
    parts = [
        "Behind an arm: `target:0.3+remove_evidence`. `--interventions FAMILY` adds all of a family to every arm they",
        "apply to. [Interventions](../interventions.md) says what each of them tells.",
        "",
        table(("written", "family", "changes", "needs regions", "what it does"), lines),
    ]
    return "\n".join(parts)


def changes(kind: type[Intervention]) -> str:
    if kind.view != ORIGINAL:
        return f"the image (view `{kind.view}`)"
    return "the mask" if kind.on_mask else "the positions"


def needs(kind: type[Intervention]) -> str:
    return "yes" if kind.needs_regions else "no"


def commands() -> str:
    """Every command with its arguments and options, as ``--help`` prints them."""
    tree = typer.main.get_command(app)
    return "\n".join(["`--help` behind any of them prints the same.", *command(tree, "sightline")])


def command(node: Any, name: str) -> Iterator[str]:
    """A command and, below it, its sub-commands."""
    context = node.context_class(node, info_name=name)
    usage = " ".join([name, *node.collect_usage_pieces(context)])
    yield from ("", f"## `{name}`", "", prose(node.help or ""), "", f"    {usage}", "")
    records = [parameter.get_help_record(context) for parameter in node.params]
    lines = [[code(record[0]), prose(record[1])] for record in records if record is not None]
    if lines:
        yield table(("option", "what it does"), lines)
    for below in node.list_commands(None) if hasattr(node, "list_commands") else ():
        child = node.get_command(None, below)
        if not child.hidden:
            yield from command(child, f"{name} {below}")


def config() -> str:
    """Every key of a run's configuration."""
    lines = [
        [f"`{name}`", code(type_name(field.annotation)), default_of(field), prose(field.description or "")]
        for name, field in AuditConfig.model_fields.items()
    ]
    parts = [
        "The keys of `sightline run --config FILE` (YAML) and the arguments of `sightline.AuditConfig`. A flag of",
        "[`sightline run`](commands.md#sightline-run) wins over the file; an unknown key is an error.",
        "",
        table(("key", "type", "default", "what it is"), lines),
    ]
    return "\n".join(parts)


def default_of(field: Any) -> str:
    """The default of a pydantic field; one that is made from other fields may differ between a CPU and a GPU."""
    if field.is_required():
        return "needed"
    if not field.default_factory_takes_validated_data:
        return shown(field.get_default(call_default_factory=True))
    cpu, gpu = (field.default_factory({"device": device}) for device in ("cpu", "cuda"))
    return shown(cpu) if cpu == gpu else f"{shown(cpu)}, on a GPU {shown(gpu)}"


def python() -> str:
    """Every public name of the package root."""
    parts = ["`import sightline`: these names are public and stay; everything below the root may move."]
    for name in sorted(sightline.__all__, key=str.lower):
        parts += ["", f"## `{name}`", "", *described(name, getattr(sightline, name))]
    return "\n".join(parts)


def described(name: str, thing: Any) -> Iterator[str]:
    if get_origin(thing) is Literal:
        yield f"One of {', '.join(f'`{choice}`' for choice in get_args(thing))}."
        return
    if isinstance(thing, Registry):
        yield f"The registry of every {thing.kind}: see [registries](registries.md#{anchor(thing)})."
        return
    yield prose(first_paragraph(thing))
    if thing is AuditConfig:
        yield from ("", "Its arguments are the [configuration keys](config.md).")
    elif not (inspect.isclass(thing) and issubclass(thing, Exception)):
        yield from ("", "```python", f"{name}{signature(thing)}", "```")
        methods = list(members(thing)) if inspect.isclass(thing) else []
        if methods:
            yield from ("", table(("member", "what it is"), methods))


def members(kind: type) -> Iterator[list[str]]:
    """Public methods and properties that the class itself defines and documents."""
    for name, value in vars(kind).items():
        plain = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if name[0] == "_" or not (callable(plain) or hasattr(plain, "__get__")) or not inspect.getdoc(plain):
            continue
        called = f"{name}{signature(plain)}" if inspect.isfunction(plain) else name
        yield [code(called), prose(first_paragraph(plain))]


def registries() -> str:
    """Everything that can be added from outside, and what is there."""
    parts = [
        "A registry maps names to objects of one kind. A file inside the package registers itself by a decorator;",
        "another package names its object in an entry-point group, and nothing here needs to know of it. How to add",
        "each kind stands in [contributing](../../CONTRIBUTING.md).",
    ]
    for home in homes():
        registry = home.registry
        group = f"entry-point group `{registry._group}`" if registry._group else "no entry-point group"
        parts += ["", f"## {registry.kind}", "", f"`{home.module}.{home.variable}`, {group}.", ""]
        lines = [[f"`{name}`", prose(first_paragraph(registry.get(name)))] for name in registry]
        parts += [table(("name", "what it is"), lines)]
    return "\n".join(parts)


def anchor(registry: Registry[Any]) -> str:
    return registry.kind.replace(" ", "-")


PAGES: Mapping[str, tuple[str, Callable[[], str]]] = {
    "commands": ("Commands", commands),
    "config": ("Configuration keys", config),
    "interventions": ("Interventions", interventions),
    "metrics": ("Metrics", metrics),
    "python": ("Python names", python),
    "registries": ("Registries", registries),
    "rows": ("Rows", rows),
    "selectors": ("Selectors", selectors),
}
"""File name -> title and content."""


def index() -> str:
    """The list of these pages, each with what its function says it makes."""
    lines = []
    for name, (title, make) in PAGES.items():
        said = first_paragraph(make)
        lines.append(f"- [{title}]({name}.md): {said[0].lower()}{said[1:]}")
    return "\n".join(["Made from the code; a test compares.", "", *lines])


def documents() -> dict[str, str]:
    """File name -> the page as it should be."""
    pages = {"index": ("Reference", index), **PAGES}
    return {f"{name}.md": f"{NOTICE}\n\n# {title}\n\n{make()}\n" for name, (title, make) in pages.items()}


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    for name, text in documents().items():
        (folder / name).write_text(text, encoding="utf-8")
