"""A table in words: what it needs, the commands it stands for, its published values and its claims."""

from __future__ import annotations

from collections.abc import Iterator

from sightline.paper.models import MODELS
from sightline.paper.needs import Need, merged
from sightline.paper.paper_table import Block, PaperTable
from sightline.paper.printed import published_text
from sightline.paper.probe_sets import PROBE_SETS, scorer_of


def explained(table: type[PaperTable]) -> str:
    return "\n".join(_lines(table))


def _lines(table: type[PaperTable]) -> Iterator[str]:
    yield f"Table {table.number}. {table.title}"
    yield table.about
    needs = merged(table.needs())
    if needs:
        yield "\nProbe sets"
        for name in dict.fromkeys(need.probes for need in needs):
            yield f"  {name}: {PROBE_SETS[name].about}"
            yield f"    {PROBE_SETS[name].command}"
        yield "\nRuns (shared with other tables; arms are added to what is there)"
        for need in needs:
            yield f"  {command(need)}"
    for requires in dict.fromkeys(block.requires for block in table.blocks if block.requires):
        yield f"\nAlso needs {requires}"
    for block in table.blocks:
        yield f"\nPublished{f': {block.title}' if block.title else ''}"
        yield from _published(block)
    if table.claims:
        yield "\nClaims"
        yield from (f"  {claim.sentence}" for claim in table.claims)
    yield ""


def command(need: Need) -> str:
    """The ``sightline run`` that a need stands for."""
    model = MODELS[need.model]
    parts = [
        "sightline run",
        f"--model {model.checkpoint}",
        f"--probes {PROBE_SETS[need.probes].file}",
        PROBE_SETS[need.probes].images,
        f"--dtype {model.dtype(need.probes)}",
        "--no-matched-controls",
        *(f"--image-option {name}={value}" for name, value in model.images(scorer_of(need)).items()),
        *([] if need.box_source == "annotation" else [f"--box-source {need.box_source}"]),
        *([f"--scorer {need.scorer}"] if need.scorer else []),
        *(f"--arm {arm}" for arm in need.arms),
        f"--out runs/{need.folder}",
    ]
    return " ".join(parts)


def _published(block: Block) -> Iterator[str]:
    heads = [*block.words, *(column.title for column in block.columns)]
    rows = [heads]
    for line in block.lines:
        cells = [published_text(value, column) for column, value in zip(block.columns, line.published, strict=True)]
        rows.append([*line.words, *cells])
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    panel = ""
    for number, row in enumerate(rows):
        if number and block.lines[number - 1].panel != panel:
            panel = block.lines[number - 1].panel
            yield f"  {panel}"
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
