"""``sightline report``, ``compare`` and ``gate``: from run folders and cost cards alone, without a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

OutOption = Annotated[Path, typer.Option(help="Folder for report.html and tables/.")]
CasesOption = Annotated[int, typer.Option(min=0, help="How many images to put into the page.")]
DrawsOption = Annotated[int, typer.Option(min=100, help="Bootstrap draws.")]
SeedOption = Annotated[int, typer.Option(help="Seed of the draws.")]


@contextmanager
def _steps() -> Iterator[Callable[[str], None]]:
    """A line that names the current step while it runs, and leaves nothing behind."""
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield lambda step: status.update(f"{step} ...")


def report(
    runs: Annotated[list[Path] | None, typer.Argument(metavar="[RUN...]", help="Run folders.")] = None,
    out: OutOption = Path("report"),
    cost: Annotated[
        list[Path] | None, typer.Option(help="Cost card of sightline bench, with or without a run. Repeatable.")
    ] = None,
    reference: Annotated[
        list[str] | None, typer.Option(help="Compare all arms with this one too, for example random:0.3. Repeatable.")
    ] = None,
    development: Annotated[
        list[Path] | None,
        typer.Option(help="Run over other images of the same model: thresholds are chosen there. Repeatable."),
    ] = None,
    only: Annotated[
        Path | None, typer.Option(help="Report on these probes alone: a file with one probe id per line.")
    ] = None,
    cases: CasesOption = 60,
    draws: DrawsOption = 10_000,
    seed: SeedOption = 17,
) -> None:
    """Write a self-contained HTML report with images, and every table as CSV, Markdown and LaTeX."""
    from sightline.report.build import build_report

    with _steps() as progress:
        page = build_report(
            runs or (),
            out,
            references=reference or (),
            costs=cost or (),
            developments=development or (),
            only=only,
            cases=cases,
            draws=draws,
            seed=seed,
            progress=progress,
        )
    typer.echo(f"report: {page}")
    typer.echo(f"tables: {page.parent / 'tables'}")


def compare(
    first: Annotated[Path, typer.Argument(metavar="RUN_A", help="The run to compare with.")],
    second: Annotated[Path, typer.Argument(metavar="RUN_B", help="The run to compare.")],
    out: OutOption = Path("comparison"),
    cases: CasesOption = 60,
    draws: DrawsOption = 10_000,
    seed: SeedOption = 17,
) -> None:
    """Compare two runs over the same probes: two checkpoints, two library versions, two devices."""
    from sightline.report.compare import compare_runs

    with _steps() as progress:
        page = compare_runs(first, second, out, cases=cases, draws=draws, seed=seed, progress=progress)
    typer.echo(f"comparison: {page}")
    typer.echo(f"tables: {page.parent / 'tables'}")


def gate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    rule: Annotated[
        list[str],
        typer.Option(
            help="For example 'posecr(target:0.3) >= 0.5' or 'accuracy(target:0.3) - accuracy(full) >= -0.02'."
        ),
    ],
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML here.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Append a Markdown summary to this file.")] = None,
    draws: DrawsOption = 10_000,
    seed: SeedOption = 17,
) -> None:
    """Decide rules on interval bounds, for continuous integration. Exit code 0: passed; 1: not; 2: bad input."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from sightline.errors import SightlineError
    from sightline.report import gate as gates

    with _steps() as progress:
        progress("resampling images")
        outcomes, notes = gates.run_gate(run, rule, draws=draws, seed=seed)
    name = run.resolve().name
    table = Table(title=f"Gate on {name}", title_justify="left")
    table.add_column("")
    table.add_column("Rule", overflow="fold")
    table.add_column("Value", justify="right")
    table.add_column("95% interval", justify="right")
    table.add_column("Why", overflow="fold")
    colours = {"passed": "green", "failed": "red", "undecided": "yellow"}
    for outcome in outcomes:
        table.add_row(
            Text(outcome.verdict, style=colours[outcome.verdict]),
            Text(outcome.rule.text),
            gates.value_words(outcome),
            gates.interval_words(outcome),
            Text(outcome.words),
        )
    Console().print(table)
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    try:
        if junit is not None:
            junit.write_bytes(gates.junit(outcomes, name))
        if markdown is not None:
            with open(markdown, "a", encoding="utf-8") as handle:
                handle.write(gates.markdown(outcomes, name))
    except OSError as error:
        raise SightlineError(f"cannot write {error.filename}: {error.strerror}") from None
    if not all(outcome.passed for outcome in outcomes):
        raise typer.Exit(1)
