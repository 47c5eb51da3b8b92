"""``sightline audit``: a model, a folder of documents, and one question: may it be pruned, how far, and what breaks?

``sightline demo`` does the same for what ships with the package.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import Field

from sightline.commands.options import with_options
from sightline.core.flags import OUTPUT, Flag
from sightline.documents.audit import DocumentOptions, audit_documents
from sightline.errors import SightlineError
from sightline.progress import say

if TYPE_CHECKING:
    import pandas as pd

    from sightline.checks.demo import OpenDemo


@with_options
def audit(
    model: Annotated[str, typer.Argument(show_default=False)],
    documents: Annotated[list[str], typer.Argument(show_default=False)],
    options: DocumentOptions,
    open_: Annotated[bool | None, Flag(OUTPUT, name="--open/--no-open", shown="on a terminal")] = None,
) -> None:
    """From a folder of documents to a verdict: may this model be pruned, how far, and what breaks first?

    Reads images and PDFs by OCR, asks about their fields, audits the unpruned model, pruning methods and controls, and
    writes a report. Kill it at any moment and run the same command again: nothing is read or computed twice.

    Exit code 0: there is a verdict; 1: nothing can be concluded from these pages; 2: error.
    """
    done = audit_documents(model, documents, options, say)
    say("")
    for line in done.verdict.lines:
        say(line)
    say("")
    say(f"report       {done.report} (all in {done.seconds:.0f} s)")
    say(f"look         sightline view {done.runs[0]}")
    if open_ or (open_ is None and sys.stdout.isatty()):
        from sightline.commands.report import view

        view([done.runs[0]], images=done.images, browser=True)
    if not done.verdict.says_something:
        raise typer.Exit(1)


@with_options
def demo(
    out: Path = Path("sightline-demo"),
    limit: Annotated[int | None, Flag(shown="40"), Field(ge=2)] = None,
    all_: Annotated[bool, Flag(name="--all")] = False,
) -> None:
    """Audit the shipped reader on the shipped scenes, yes/no and open questions: a minute on a CPU, no network.

    Run it again after an interruption and it goes on where it stopped.
    """
    from sightline.checks.demo import IMAGES, run_demo, run_open_demo

    if all_ and limit is not None:
        raise SightlineError("--all and --limit exclude each other")
    limit = None if all_ else limit or IMAGES
    done = run_demo(out, limit=limit)
    print_table(done.summary, done.run.frame())
    say(f"rows: {done.run.path}")
    if done.picture is not None:
        say(f"picture of an unsupported answer: {done.picture}")
    say(f"report: {done.report}\n")
    spoken = run_open_demo(out, limit=limit)
    runs = [done.run]
    if spoken is not None:
        _say_spoken(spoken)
        runs.append(spoken.run)
    say("\nnext:")
    say(f"  open {done.report} in a browser")
    say(f"  sightline view {' '.join(str(run.path) for run in runs)}")
    say("  sightline doctor --model MODEL    # does your checkpoint work here? A folder or a hub id")


def _say_spoken(spoken: OpenDemo) -> None:
    say("open questions: what the same reader says in its own words")
    print_table(spoken.summary, spoken.run.frame())
    say(f"rows: {spoken.run.path}")
    say(_pictured("an answer that was lost with its evidence", spoken.lost))
    say(_pictured("an answer that survives without its evidence", spoken.survived))
    say(f"report: {spoken.report}")


def _pictured(what: str, path: Path | None) -> str:
    return f"no picture of {what}: the run has none" if path is None else f"picture of {what}: {path}"


def print_table(summary: pd.DataFrame, rows: pd.DataFrame) -> None:
    """One line per arm: each metric of the demo with its 95 % interval, by the panels of the report."""
    from sightline.core.table import Table, TableColumn
    from sightline.progress import SafeConsole
    from sightline.report.columns import heading, in_these_words, panel_of
    from sightline.statistics.metrics import METRICS

    metrics = [metric for metric in METRICS.values() if metric.name in summary]
    columns = [
        TableColumn("arm", "arm"),
        *(TableColumn(metric.name, heading(metric, summary), "score", interval=True) for metric in metrics),
    ]
    panels = rows.drop_duplicates("arm").set_index("arm")["regime"].map(panel_of)
    frame = summary.assign(panel=summary["arm"].map(panels)).sort_values("panel", kind="stable")
    console = SafeConsole()
    Table("demo", "", "", columns, frame, panel="panel").terminal(console)
    unsupported = METRICS["unsupported"]
    meaning = in_these_words(unsupported.definition, summary)
    console.print(f"95 % intervals over images. {unsupported.label}: {meaning}.")
