"""``sightline paper``: the paper's tables by their numbers, published values beside measured ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sightline.errors import SightlineError
from sightline.progress import say

if TYPE_CHECKING:
    from sightline.paper.paper_table import PaperTable
    from sightline.paper.printed import PrintedTable

app = typer.Typer(help="The paper's tables by number: what each needs, and what comes out here.", no_args_is_help=True)

TableArgument = Annotated[str, typer.Argument(metavar="TABLE", help="1, 2, S1, S2, ..., or all.")]
FolderOption = Annotated[Path | None, typer.Option("--out", help="Folder of a study, to say what is measured there.")]


@app.command("list")
def list_(out: FolderOption = None) -> None:
    """List the tables: what each shows, what it needs, and how far it is measured in a study's folder."""

    from sightline.core.table import print_rows
    from sightline.paper.paper_table import PAPER_TABLES, in_order
    from sightline.paper.printed import state_in
    from sightline.progress import SafeConsole

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
def show(table: TableArgument) -> None:
    """What a table needs, the commands it stands for, and its published values."""
    from sightline.paper.printed import explained
    from sightline.progress import SafeConsole

    for wanted in chosen(table):
        SafeConsole(soft_wrap=True).print(explained(wanted), markup=False, highlight=False)


@app.command()
def check(
    textocr: Annotated[Path | None, typer.Option(help="Folder with TextOCR_0.1_val.json and its images.")] = None,
    textvqa: Annotated[Path | None, typer.Option(help="Folder with TextVQA.")] = None,
    docvqa: Annotated[Path | None, typer.Option(help="Folder with DocVQA.")] = None,
    ocrbench: Annotated[Path | None, typer.Option(help="Folder with OCRBench.")] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(help="Checkpoint: folder, hub id or hub id@revision, or NAME=PATH. Repeatable."),
    ] = None,
    clip: Annotated[str | None, typer.Option(help="CLIP checkpoint, for AnchorPrune.")] = None,
) -> None:
    """Say in seconds what was found, whether it is the paper's, what is missing and what a study takes.

    Nothing is fetched or loaded. Exits with 1 if something that was named does not fit.
    """
    from rich.text import Text

    from sightline.core.table import print_rows
    from sightline.paper.check import findings
    from sightline.progress import SafeConsole

    _folders(textocr=textocr)
    open_data = _folders(textvqa=textvqa, docvqa=docvqa, ocrbench=ocrbench)
    found = list(findings(textocr, open_data, models or [], clip))
    wrong = sum(each.state == "wrong" for each in found)
    states = (Text(each.state, "bold" if each.state == "wrong" else "") for each in found)
    lines = ((state, each.what, each.words) for state, each in zip(states, found, strict=True))
    print_rows(SafeConsole(), ("", "", ""), lines, header=False)
    if wrong:
        say(f"{wrong} thing{'s' if wrong > 1 else ''} named do{'es' if wrong == 1 else ''} not fit")
        raise typer.Exit(1)


@app.command()
def run(
    table: TableArgument,
    out: Annotated[Path, typer.Option(help="Folder of the study: probe sets, runs, tables. Shared by all tables.")],
    models: Annotated[
        list[str] | None,
        typer.Option(help="Checkpoint, told by its architecture, or NAME=PATH (qwen, llava, internvl). Repeatable."),
    ] = None,
    textocr: Annotated[
        Path | None, typer.Option(help="Folder with TextOCR_0.1_val.json and the images it names.")
    ] = None,
    textvqa: Annotated[
        Path | None,
        typer.Option(help="Folder with TextVQA: validation-*.parquet or TextVQA_0.5.1_val.json, lite-*.parquet."),
    ] = None,
    docvqa: Annotated[
        Path | None, typer.Option(help="Folder with DocVQA: validation-*.parquet or val_v1.0.json, lite-*.parquet.")
    ] = None,
    ocrbench: Annotated[
        Path | None, typer.Option(help="Folder with OCRBench: test-*.parquet or OCRBench.json.")
    ] = None,
    gsr: Annotated[
        Path | None,
        typer.Option(help="Folder with GSR-Bench: coco_qa_two_obj.json, instances_*.json and COCO's images."),
    ] = None,
    lite: Annotated[
        bool, typer.Option("--lite", help="TextVQA and DocVQA: their 500-question parts instead of full validation.")
    ] = False,
    demo: Annotated[
        bool,
        typer.Option("--demo", help="The embedded reader and tiny random models on drawn pages: shows that it runs."),
    ] = False,
    profile: Annotated[
        Literal["paper", "artifact"],
        typer.Option(help="paper: as the paper defines it, done correctly; artifact: as its figures were made."),
    ] = "paper",
    limit: Annotated[int | None, typer.Option(min=4, help="Images per probe set: a pilot.")] = None,
    clip: Annotated[str | None, typer.Option(help="CLIP checkpoint, for AnchorPrune.")] = None,
    decisions: Annotated[
        Path | None, typer.Option(help="Reviewed screening.csv of text replacements (tables S13, S14).")
    ] = None,
    valid: Annotated[
        Path | None,
        typer.Option(
            help="Images that people found valid (table S7): what 'annotate sign-off' wrote, or one id per line."
        ),
    ] = None,
    annotations: Annotated[
        Path | None, typer.Option(help="Rows of regions that people drew for open questions (tables S22, S23).")
    ] = None,
    second_annotations: Annotated[
        Path | None, typer.Option(help="Rows of a second person about some of the same questions (table S22).")
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(min=100, help="Bootstrap draws.", show_default="10000; over open questions 20000"),
    ] = None,
    device: Annotated[str | None, typer.Option(help="As in sightline run.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Instead of the paper's precision.")] = None,
    execution: Annotated[str | None, typer.Option(help="As in sightline run.")] = None,
) -> None:
    """Measure a table. Kill it at any moment and run it again; tables of one folder share runs and amend them."""
    from sightline.paper import Study, StudyOptions
    from sightline.paper.printed import run_table, with_earlier, write_paper_page

    further: dict[str, Any] = {"device": device, "dtype": dtype, "execution": execution}
    options = StudyOptions(
        demo=demo,
        profile=profile,
        limit=limit,
        clip=clip,
        decisions=decisions,
        valid=valid,
        annotations=annotations,
        second_annotations=second_annotations,
        lite=lite,
        **({} if draws is None else {"draws": draws, "example_draws": draws}),
        run={name: value for name, value in further.items() if value is not None},
    )
    open_data = _folders(textvqa=textvqa, docvqa=docvqa, ocrbench=ocrbench, gsr=gsr)
    _folders(textocr=textocr)
    study = Study(out, _models(models or [], demo, out), textocr, options, open_data)
    fresh = []
    for each in chosen(table):
        fresh.append(run_table(study, each))
        _print(fresh[-1])
    page = write_paper_page(study, with_earlier(study, fresh))
    say(f"page: {page}")
    say(f"tables: {page.parent / 'tables'}")
    if not any(printed.measured_lines for printed in fresh):
        say("nothing was measured; the reasons stand below each table")
        raise typer.Exit(1)


def _folders(**given: Path | None) -> dict[str, Path]:
    """The folders that were named; one that is none is refused."""
    found = {name: folder for name, folder in given.items() if folder is not None}
    for name, folder in found.items():
        if not folder.is_dir():
            raise SightlineError(f"--{name}: there is no folder {folder}")
    return found


def _models(given: list[str], demo: bool, out: Path) -> dict[str, str]:
    from sightline.paper.models import named_models

    found = named_models(given)
    if not demo:
        return found
    from sightline.paper.models import demo_models

    return {**demo_models(out / "models", leave_out=found), **found}


def chosen(text: str) -> list[PaperTable]:
    """The tables that an argument names."""
    from sightline.paper.paper_table import PAPER_TABLES, in_order

    if text.lower() == "all":
        return [PAPER_TABLES.get(number) for number in in_order(PAPER_TABLES)]
    number = text.upper().removeprefix("TABLE").strip()
    if number not in PAPER_TABLES:
        raise SightlineError(f"the paper has no table '{text}'; choose one of {', '.join(in_order(PAPER_TABLES))}")
    return [PAPER_TABLES.get(number)]


def _print(printed: PrintedTable) -> None:
    from rich.text import Text

    from sightline.paper.printed import notes_below
    from sightline.progress import SafeConsole

    console = SafeConsole()
    for line in [printed.heading, *filter(None, [printed.warning]), *printed.plain_lines(), ""]:
        console.print(Text(line), soft_wrap=True)
    for outcome, sentence, said in printed.claims:
        console.print(Text.assemble((f"{outcome:<13}", "bold"), f"{sentence} {said}"), soft_wrap=True)
    for note in notes_below(printed):
        console.print(Text(note), soft_wrap=True)
