"""``sightline paper``: the paper's tables by their numbers, published values beside measured ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import BaseModel, Field

from sightline.commands.options import in_words, with_options
from sightline.core.flags import Flag
from sightline.errors import SightlineError
from sightline.progress import say

if TYPE_CHECKING:
    from sightline_paper.paper_table import PaperTable
    from sightline_paper.printed import PrintedTable

app = typer.Typer(help="The paper's tables by number: what each needs, and what comes out here.", no_args_is_help=True)

TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="1, 2, S1, S2, ..., or all.")]
FolderOption = Annotated[Path | None, Field(description="Folder of a study, to say what is measured there.")]


@app.command("list")
@with_options
def list_(out: FolderOption = None) -> None:
    """List the tables: what each shows, what it needs, and how far it is measured in a study's folder."""

    from sightline.core.table import print_rows
    from sightline.progress import SafeConsole
    from sightline_paper.paper_table import PAPER_TABLES, in_order
    from sightline_paper.printed import state_in

    lines = []
    for number in in_order(PAPER_TABLES):
        table = PAPER_TABLES.get(number)
        extras = ", ".join(dict.fromkeys(block.requires for block in table.blocks if block.requires))
        runs = {need.folder for need in table.needs()}
        needs = f"{len(runs)} run{'s' if len(runs) != 1 else ''}" if runs else "no run"
        state = "not run" if out is None else state_in(out, table)
        models = ", ".join(table.models()) or "-"
        lines.append((number, table.title, models, "; ".join(filter(None, (needs, extras))), state))
    print_rows(SafeConsole(), ("table", "shows", "models", "needs", "state"), lines)


@app.command()
@with_options
def show(table: TableArgument) -> None:
    """What a table needs, the commands it stands for, and its published values."""
    from sightline.progress import SafeConsole
    from sightline_paper.printed import explained

    for wanted in chosen(table):
        SafeConsole(soft_wrap=True).print(explained(wanted), markup=False, highlight=False)


@in_words
class DataFolders(BaseModel):
    """Where published data lies."""

    textocr: Path | None = None
    textvqa: Path | None = None
    docvqa: Path | None = None
    ocrbench: Path | None = None

    def open_data(self) -> dict[str, Path]:
        """The folders of questions that were named; one that is none, or TextOCR's, is refused."""
        found = {name: folder for name, folder in self if folder is not None}
        for name, folder in found.items():
            if not folder.is_dir():
                raise SightlineError(f"--{name}: there is no folder {folder}")
        return {name: folder for name, folder in found.items() if name != "textocr"}


class AllFolders(DataFolders):
    gsr: Path | None = Field(
        None, description="Folder with GSR-Bench: coco_qa_two_obj.json, instances_*.json and COCO's images."
    )


@in_words
class StudyFlags(BaseModel):
    """Fields of ``StudyOptions``."""

    lite: bool = False
    demo: bool = False
    profile: Literal["paper", "artifact"] = "paper"
    limit: int | None = Field(None, ge=4)
    clip: str | None = None
    decisions: Path | None = None
    valid: Path | None = None
    annotations: Path | None = None
    second_annotations: Path | None = None


@app.command()
@with_options
def check(
    data: DataFolders,
    models: list[str] | None = None,
    clip: str | None = None,
) -> None:
    """Say in seconds what was found, whether it is the paper's, what is missing and what a study takes.

    Nothing is fetched or loaded. Exits with 1 if something that was named does not fit.
    """
    from rich.text import Text

    from sightline.core.table import print_rows
    from sightline.progress import SafeConsole
    from sightline_paper.check import findings

    open_data = data.open_data()
    found = list(findings(data.textocr, open_data, models or [], clip))
    wrong = sum(each.state == "wrong" for each in found)
    states = (Text(each.state, "bold" if each.state == "wrong" else "") for each in found)
    lines = ((state, each.what, each.words) for state, each in zip(states, found, strict=True))
    print_rows(SafeConsole(), ("", "", ""), lines, header=False)
    if wrong:
        say(f"{wrong} thing{'s' if wrong > 1 else ''} named do{'es' if wrong == 1 else ''} not fit")
        raise typer.Exit(1)


@app.command()
@with_options
def run(
    table: TableArgument,
    out: Path,
    data: AllFolders,
    study: StudyFlags,
    models: list[str] | None = None,
    draws: Annotated[int | None, Flag(shown="10000; over open questions 20000"), Field(ge=100)] = None,
    device: str | None = None,
    dtype: str | None = None,
    execution: str | None = None,
) -> None:
    """Measure a table. Kill it at any moment and run it again; tables of one folder share runs and amend them."""
    from sightline_paper import Study, StudyOptions
    from sightline_paper.printed import run_table, with_earlier, write_paper_page

    further: dict[str, Any] = {"device": device, "dtype": dtype, "execution": execution}
    run_options = {name: value for name, value in further.items() if value is not None}
    drawn: dict[str, Any] = {} if draws is None else {"draws": draws, "example_draws": draws}
    options = StudyOptions(**study.model_dump(), **drawn, run=run_options)
    open_data = data.open_data()
    measured = Study(out, _models(models or [], study.demo, out), data.textocr, options, open_data)
    fresh = []
    for each in chosen(table):
        fresh.append(run_table(measured, each))
        _print(fresh[-1])
    page = write_paper_page(measured, with_earlier(measured, fresh))
    say(f"page: {page}")
    say(f"tables: {page.parent / 'tables'}")
    if not any(printed.measured_lines for printed in fresh):
        say("nothing was measured; the reasons stand below each table")
        raise typer.Exit(1)


def _models(given: list[str], demo: bool, out: Path) -> dict[str, str]:
    from sightline_paper.models import named_models

    found = named_models(given)
    if not demo:
        return found
    from sightline_paper.models import demo_models

    return {**demo_models(out / "models", leave_out=found), **found}


def chosen(text: str) -> list[PaperTable]:
    """The tables that an argument names."""
    from sightline_paper.paper_table import PAPER_TABLES, in_order

    if text.lower() == "all":
        return [PAPER_TABLES.get(number) for number in in_order(PAPER_TABLES)]
    number = text.upper().removeprefix("TABLE").strip()
    if number not in PAPER_TABLES:
        raise SightlineError(f"the paper has no table '{text}'; choose one of {', '.join(in_order(PAPER_TABLES))}")
    return [PAPER_TABLES.get(number)]


def _print(printed: PrintedTable) -> None:
    from rich.text import Text

    from sightline.progress import SafeConsole
    from sightline_paper.printed import notes_below

    console = SafeConsole()
    for line in [printed.heading, *filter(None, [printed.warning]), *printed.plain_lines(), ""]:
        console.print(Text(line), soft_wrap=True)
    for outcome, sentence, said in printed.claims:
        console.print(Text.assemble((f"{outcome:<13}", "bold"), f"{sentence} {said}"), soft_wrap=True)
    for note in notes_below(printed):
        console.print(Text(note), soft_wrap=True)
