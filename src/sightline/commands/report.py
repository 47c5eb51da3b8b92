"""``sightline report``, ``compare`` and ``gate``: from run folders and cost cards alone, without a model."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import BaseModel, Field

from sightline.commands.options import AsOneOption, Written, in_words, place_argument, runs_or_one, with_options
from sightline.core.flags import TAKES_URL, Flag
from sightline.places.listing import Place
from sightline.progress import say, waiting_for

if TYPE_CHECKING:
    from sightline.gate.decisions import GatedRun
    from sightline.store.folder import RunPlace


OutOption = Annotated[Path, Field(description="Folder for report.html and tables/.")]
CasesOption = Annotated[int, Field(ge=0, description="How many images to put into the page.")]


@in_words
class ReadingOptions(BaseModel):
    """How rows are read and resampled, by report, compare and gate alike."""

    threshold: Annotated[list[str] | None, Flag(metavar="[MODEL=]RULE")] = None
    development: Annotated[list[Any] | None, TAKES_URL] = None
    draws: int = Field(10_000, ge=100)
    seed: int = 17

    def arguments(self) -> dict[str, Any]:
        """For whoever computes."""
        developments, threshold = self.development or (), self.threshold or None
        return {"developments": developments, "threshold": threshold, "draws": self.draws, "seed": self.seed}


@contextmanager
def _steps() -> Iterator[Callable[[str], None]]:
    """A line that names the current step while it runs, and leaves nothing behind."""
    from sightline.progress import SafeConsole

    with SafeConsole(stderr=True).status("starting") as status:
        yield lambda step: status.update(f"{step} ...")


def _note_unfinished(runs: Sequence[RunPlace]) -> None:
    """One line on stderr for every run that is not finished, before anything is computed from it."""
    from sightline.rows.run import load_run

    for run in map(load_run, runs):
        if run.unfinished:
            say(f"note: {run.path}: {run.unfinished}", err=True)


@with_options
def report(
    runs: Annotated[list[Place] | None, place_argument("[RUN...]")] = None,
    out: OutOption = Path("report"),
    cost: list[Path] | None = None,
    reference: list[str] | None = None,
    only: Path | None = None,
    as_one: AsOneOption = False,
    margin: Annotated[float, Field(ge=0, le=0.99)] = 0.02,
    cases: CasesOption = 60,
    *,
    reading: ReadingOptions,
) -> None:
    """Write a self-contained HTML report with images, and every table as CSV, Markdown and LaTeX."""
    from sightline.report.build import build_report

    places = runs_or_one(runs or (), as_one=as_one)
    _note_unfinished(places)
    with _steps() as progress:
        page = build_report(
            places,
            out,
            references=reference or (),
            costs=cost or (),
            only=only,
            margin=margin,
            cases=cases,
            progress=progress,
            **reading.arguments(),
        )
    say(f"report: {page}")
    say(f"tables: {page.parent / 'tables'}")


@with_options
def compare(
    first: Annotated[Place, place_argument("RUN_A")],
    second: Annotated[Place, place_argument("RUN_B")],
    out: OutOption = Path("comparison"),
    cases: CasesOption = 60,
    *,
    reading: ReadingOptions,
) -> None:
    """Compare two runs over the same probes: two checkpoints, two library versions, two devices."""
    from sightline.report.compare import compare_runs

    _note_unfinished([first, second])
    with _steps() as progress:
        page = compare_runs(first, second, out, cases=cases, progress=progress, **reading.arguments())
    say(f"comparison: {page}")
    say(f"tables: {page.parent / 'tables'}")


@with_options
def gate(
    runs: Annotated[list[Place], place_argument("RUN...")],
    rule: list[str] | None = None,
    rules: Path | None = None,
    least_n: Annotated[int, Field(ge=1)] = 50,
    allow_partial: bool = False,
    as_one: AsOneOption = False,
    junit: Annotated[Path | None, Written(".xml")] = None,
    markdown: Annotated[Path | None, Written(".md")] = None,
    *,
    reading: ReadingOptions,
) -> None:
    """Decide rules on interval bounds, for continuous integration. Exit code 0: passed; 1: not; 2: error."""
    with errors_are_two("the gate could not decide"):
        from sightline.gate import decisions
        from sightline.gate.decisions import gate_runs
        from sightline.gate.rules import read_rules
        from sightline.places.writing import append, write_whole

        asked = [*(rule or ()), *(read_rules(rules) if rules is not None else ())]
        with _steps() as progress:
            progress("resampling images")
            gated = gate_runs(
                runs_or_one(runs, as_one=as_one),
                asked,
                least_n=least_n,
                allow_partial=allow_partial,
                **reading.arguments(),
            )
        for run in gated:
            _print_gated(run)
            for note in run.notes:
                say(f"note: {f'{run.name}: ' if len(gated) > 1 else ''}{note}", err=True)
        if junit is not None:
            write_whole(junit, decisions.junit(gated))
        if markdown is not None:
            append(markdown, decisions.markdown(gated).encode())
    if not all(run.passed for run in gated):
        raise typer.Exit(1)


def _print_gated(run: GatedRun) -> None:
    from rich.text import Text

    from sightline.core.table import TableColumn, print_rows
    from sightline.gate.decisions import interval_words, value_words
    from sightline.progress import SafeConsole

    numbers = (TableColumn(title, title, "score") for title in ("n", "Value", "95% interval"))
    colours = {"passed": "green", "failed": "red", "undecided": "yellow", "refused": "yellow"}
    lines = (
        (
            Text(outcome.verdict, style=colours[outcome.verdict]),
            outcome.rule.text,
            str(outcome.n),
            value_words(outcome),
            interval_words(outcome),
            outcome.words,
        )
        for outcome in run.outcomes
    )
    print_rows(SafeConsole(), ("", "Rule", *numbers, "Why"), lines, title=f"Gate on {run.name}")


@contextmanager
def errors_are_two(failure: str) -> Iterator[None]:
    """Whatever breaks inside exits with 2: a pipeline must not take a bug for a rule that is not passed."""
    from sightline.errors import SightlineError

    try:
        yield
    except Exception as error:
        if isinstance(error, SightlineError | MemoryError) and "--debug" not in sys.argv:
            raise  # one line and exit code 2 for every command
        traceback.print_exc()
        say(f"error: {failure}", err=True)
        raise typer.Exit(2) from None


# ``sightline view``: runs in a browser, while they are written or long after.

PORT = 7447


@with_options
def view(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...")],
    images: Path | None = None,
    port: Annotated[int, Field(ge=0, le=65535)] = PORT,
    host: str = "127.0.0.1",
    browser: Annotated[bool, Flag(name="--open/--no-open")] = True,
    bundle: Path | None = None,
    query: str = "",
    most: Annotated[int, Field(ge=1)] = 100,
) -> None:
    """View runs in a browser: overview, rows, cases with what every arm kept, two runs compared. Reads only.

    The address that is printed holds a token; nobody else on the machine can open it. With --bundle a folder is written
    that can be sent to somebody, or put on any web server.
    """
    from sightline.serving.server import listen, serve
    from sightline.view.runs import viewed_runs
    from sightline.view.server import PageData, viewer

    if bundle is None:
        listen(host, port).close()  # a port that is taken is said before rows are read
    with waiting_for("reading rows"):
        viewed = viewed_runs(runs, images)
        for run in viewed:
            run.numbers()
    answers = PageData(viewed)
    try:
        if bundle is not None:
            from sightline.view.bundle import write_bundle

            page = write_bundle(answers, bundle, query, most)
            typer.echo(f"bundle: {page}")
            return
        serve(viewer(answers), port, browser, host=host, say=typer.echo)
    finally:
        for run in viewed:
            run.intervals.stop()
