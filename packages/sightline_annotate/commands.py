"""``sightline annotate``: campaigns, pages to work on, agreement, adjudication, files in and out, sign-off."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import Field

from sightline.commands.options import Commands, Written, with_options
from sightline.commands.probe_evidence import PrefixOption
from sightline.core.flags import Flag
from sightline.errors import SightlineError

if TYPE_CHECKING:
    import pandas as pd

SERVE = "serve"


class CampaignFirst(Commands):
    """A group in which ``annotate CAMPAIGN`` means ``annotate serve CAMPAIGN``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            args = [SERVE, *args]
        found: list[str] = super().parse_args(ctx, args)
        return found


app = typer.Typer(
    cls=CampaignFirst,
    help="People in the loop: 'annotate CAMPAIGN --as NAME' opens its pages; the commands below do the rest.",
    no_args_is_help=True,
)

CampaignArgument = Annotated[Path, typer.Argument(metavar="CAMPAIGN", help="Folder of 'sightline annotate new'.")]
NameOption = Annotated[
    str, Flag(name="--as", metavar="NAME"), Field(description="Your name, as the journal shall have it.")
]
PortOption = Annotated[int, Field(ge=0, le=65535, description="Port to listen on; 0 for any that is free.")]
HostOption = Annotated[str, Field(description="Address of this machine to listen on.")]
BrowserOption = Annotated[bool, Flag(name="--open/--no-open"), Field(description="Open the page in a browser.")]
DrawsOption = Annotated[int, Field(ge=100, description="Bootstrap draws of kappa's interval.")]


@app.command()
@with_options
def new(
    campaign: Annotated[Path, typer.Argument(metavar="CAMPAIGN")],
    kind: Literal["hard-negatives", "text-replacement", "evidence", "texts"],
    probes: Path,
    images: Path,
    n: Annotated[int | None, Field(ge=1)] = None,
    second: Annotated[float, Field(ge=0.0, le=1.0)] = 0.2,
    seed: str = "second-sample-v1",
    batch: Annotated[int, Field(ge=1)] = 100,
    audit: Path | None = None,
    image_prefix: PrefixOption = "",
) -> None:
    """Make a campaign: the suspicious items first, the others from every stratum, a hashed second sample."""
    from sightline.documents.build import read_dropped
    from sightline.probes import read_probes
    from sightline_annotate.make import SamplingRule, create_campaign, read_suspicions

    rule = SamplingRule(n, second, seed, batch)
    look = read_suspicions(kind, audit)
    asked = read_dropped(probes) if kind == "texts" else read_probes(probes, image_prefix=image_prefix or None)
    made = create_campaign(campaign, kind, asked, images, rule, look)
    items = made.items
    typer.echo(f"campaign     {campaign}: {len(items)} items in {items[-1].batch + 1} batches")
    typer.echo(f"suspicious   {sum(bool(item.suspicion) for item in items)}, they come first")
    typer.echo(f"second       {sum(item.second for item in items)} items for a second person")
    typer.echo(f"next         sightline annotate {campaign} --as NAME")


@app.command(SERVE)
@with_options
def serve_campaign(
    campaign: CampaignArgument,
    name: NameOption,
    second: bool = False,
    port: PortOption = 0,
    host: HostOption = "127.0.0.1",
    open_browser: BrowserOption = True,
) -> None:
    """Open the pages of a campaign, as 'annotate CAMPAIGN' does: one person, one pass, nobody else's work in sight."""
    _serve(campaign, name, "second" if second else "first", port, host, open_browser)


@app.command()
@with_options
def adjudicate(
    campaign: CampaignArgument,
    name: NameOption,
    allow_party: bool = False,
    port: PortOption = 0,
    host: HostOption = "127.0.0.1",
    open_browser: BrowserOption = True,
) -> None:
    """Decide, as a third person, the items on which two people differ."""
    _serve(campaign, name, "adjudication", port, host, open_browser, allow_party=allow_party)


def _serve(
    campaign: Path, name: str, pass_: str, port: int, host: str, open_browser: bool, *, allow_party: bool = False
) -> None:
    from sightline.serving.server import serve
    from sightline_annotate.campaign import WorkQueue, open_campaign
    from sightline_annotate.server import annotation_app

    opened = open_campaign(campaign)
    opened.refuse_missing_pictures()
    queue = WorkQueue(opened, name, pass_, allow_party=allow_party)
    if not queue.items():
        raise SightlineError(f"{campaign} has nothing for {name} in the {pass_} pass; see 'sightline annotate status'")
    done = queue.progress()
    typer.echo(f"{queue.campaign.kind.title}, {pass_} pass, {name}: {done['done']} of {done['all']} done")
    serve(annotation_app(queue), port, open_browser, host=host, say=typer.echo)


@app.command()
@with_options
def status(campaign: CampaignArgument) -> None:
    """How far everybody is, without a word of what they said."""
    from sightline_annotate.campaign import open_campaign, status_lines

    for label, words in status_lines(open_campaign(campaign)):
        typer.echo(f"{label:<14} {words}")


@app.command()
@with_options
def agreement(
    campaign: Annotated[Path, typer.Argument(metavar="CAMPAIGN|FILE")],
    other: Annotated[Path | None, typer.Argument(metavar="FILE")] = None,
    out: Path | None = None,
    csv: Annotated[Path | None, Written(".csv")] = None,
    field: list[str] | None = None,
    draws: DrawsOption = 10_000,
) -> None:
    """How far two people agree, before adjudication: fields with kappa, boxes by overlap, roles by F1."""
    from sightline.analysis.regions import agreement_table
    from sightline.core.text import write_csv
    from sightline_annotate.agreement import agreement_report, write_agreement
    from sightline_annotate.campaign import open_campaign, read_judgements

    if other is not None:
        if out is not None:
            raise SightlineError("--out is for a campaign; --csv FILE takes the table of two files")
        table = agreement_table(campaign, other, fields=field or [], draws=draws)
        _print_frame(table)
        if csv is not None:
            write_csv(csv, table)
        return
    if field or csv is not None:
        raise SightlineError("--field and --csv are for two files; a campaign has the fields of its kind, and --out")
    opened = open_campaign(campaign)
    judgements = read_judgements(opened)
    found = agreement_report(opened.kind, judgements, draws=draws)
    for each in found.tables.values():
        _print_frame(each)
    typer.echo(f"disagreements  {found.disputed}, of which {found.adjudicated} adjudicated")
    if out is not None:
        typer.echo(f"page           {write_agreement(out, found, opened, judgements)}")


def _print_frame(frame: pd.DataFrame) -> None:
    """Words to the left, numbers to the right; the columns' names are their titles."""
    from sightline.core.table import Kind, Table, TableColumn
    from sightline.progress import SafeConsole

    kinds: dict[str, Kind] = {"f": "score", "i": "count", "u": "count"}
    columns = [
        TableColumn(str(name), str(name).replace("_", " "), kinds.get(frame[name].dtype.kind, "text"))
        for name in frame.columns
    ]
    Table("agreement", "", "", columns, frame).terminal(SafeConsole())


@app.command()
@with_options
def export(
    campaign: CampaignArgument,
    out: Annotated[Path, Written()],
    file_format: Annotated[Literal["artifact", "label-studio", "decisions"], Flag(name="--format")] = "artifact",
    whose: Literal["final", "first", "second", "adjudication"] = "final",
) -> None:
    """Write answers to a file."""
    from sightline_annotate.campaign import open_campaign
    from sightline_annotate.files import export_answers

    for path, count in export_answers(open_campaign(campaign), file_format, out, whose):
        typer.echo(f"wrote        {path}: {count}")


@app.command("import")
@with_options
def import_(
    campaign: CampaignArgument,
    file: Annotated[Path, typer.Argument()],
    file_format: Annotated[Literal["artifact", "label-studio"], Flag(name="--format")] = "artifact",
    name: Annotated[str | None, Flag(name="--as", metavar="NAME")] = None,
    second: bool = False,
) -> None:
    """Take answers from a file into the journal: all of them, or none."""
    from sightline_annotate.campaign import open_campaign
    from sightline_annotate.files import import_answers, read_artifact
    from sightline_annotate.label_studio import read_label_studio

    opened = open_campaign(campaign)
    if file_format == "artifact":
        answers = {"second" if second else "first": read_artifact(opened, file)}
    else:
        answers = read_label_studio(opened, file)
    count = sum(map(len, answers.values()))
    typer.echo(f"imported     {import_answers(opened, answers, name)} new of {count} answers")


@app.command("sign-off")
@with_options
def sign_off(
    campaign: CampaignArgument,
    name: NameOption,
    out: Annotated[Path | None, Written(".jsonl")] = None,
) -> None:
    """Write the signed decision file.

    It is what 'report --only', 'controls build --decisions', 'paper run' and 'probes build --texts' use.
    """
    from sightline_annotate.campaign import open_campaign
    from sightline_annotate.files import sign_off as signed

    path = campaign / "decisions.jsonl" if out is None else out
    counts = signed(open_campaign(campaign), name, path)
    typer.echo(f"signed       {path}: {sum(counts.values())} decisions by {name}")
    for decision, count in sorted(counts.items(), key=lambda each: (-each[1], each[0])):
        typer.echo(f"{count:>12} {decision}")
