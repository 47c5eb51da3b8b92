"""``sightline agreement``: two annotators' files, compared field by field."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sightline.commands.options import file_option


def agreement(
    first: Annotated[Path, typer.Argument(help="One annotator's file: CSV or JSON lines with a probe_id per row.")],
    second: Annotated[Path, typer.Argument(help="The other's.")],
    field: Annotated[list[str] | None, typer.Option(help="Compare this field alone. Repeatable.")] = None,
    draws: Annotated[int, typer.Option(min=100, help="Bootstrap draws of kappa's interval.")] = 10_000,
    out: Annotated[Path | None, file_option("CSV to write as well.", endings=(".csv",))] = None,
) -> None:
    """Compare two annotators: agreement and kappa of labels, overlap of boxes, with 95 % intervals."""
    from rich.table import Table

    from sightline.analysis.regions import agreement_table
    from sightline.core.text import without_formulas
    from sightline.places.writing import write_whole
    from sightline.progress import SafeConsole

    found = agreement_table(first, second, fields=field or (), draws=draws)
    table = Table(box=None, pad_edge=False)
    for column in found.columns:
        table.add_column(str(column).replace("_", "\n"), justify="left" if column == "field" else "right")
    for line in found.itertuples(index=False):
        table.add_row(str(line[0]), str(line[1]), *("-" if value != value else f"{value:.3f}" for value in line[2:]))
    SafeConsole().print(table)
    if out is not None:
        write_whole(out, without_formulas(found).to_csv(index=False).encode())
