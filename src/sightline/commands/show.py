"""``sightline show``: one probe of a run, what every arm answered, and a picture of what each kept."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sightline.commands.options import RunArgument, file_option, place_option
from sightline.errors import SightlineError
from sightline.places import Place
from sightline.progress import say

if TYPE_CHECKING:
    import pandas as pd

    from sightline.rows import Run


def show(
    folder: RunArgument,
    probe: Annotated[str, typer.Argument(metavar="PROBE", help="Identifier of a probe, as the rows have it.")],
    arm: Annotated[
        list[str] | None, typer.Option(help="Show this arm alone, as run.json spells it. Repeatable.")
    ] = None,
    out: Annotated[
        Path | None, file_option("Picture to write, for example picture.png: the arms side by side.")
    ] = None,
    images: Annotated[
        Place | None,
        place_option("Folder that image names are relative to: the picture is then as sharp as the file."),
    ] = None,
    view: Annotated[
        str | None, typer.Option(help="View of the image, where the probe set asks about several; the original.")
    ] = None,
) -> None:
    """Show one probe: question, regions, every arm's answer with its coverage, and what the arms kept as a picture.

    Of an open question also the accepted answers, what each region is to it, and the score of what every arm said.

    Without --arm the table has all arms and the picture those without an intervention.
    """
    from sightline.rows import load_run

    if out is not None:
        _refuse_unknown_kind(out)
    run = load_run(folder)
    rows = _rows(run, probe, arm or [], view)
    _print_probe(run, rows)
    _print_arms(rows)
    if run.unfinished:
        say(f"note: {folder}: {run.unfinished}", err=True)
    if out is not None:
        _write_picture(run, probe, arm or [], images, view, out)


def _refuse_unknown_kind(out: Path) -> None:
    from PIL import Image

    from sightline.places.writing import refuse_binary_on_terminal

    refuse_binary_on_terminal(out, "a picture")
    if _ending(out) not in Image.registered_extensions() or Image.EXTENSION[_ending(out)] not in Image.SAVE:
        raise SightlineError(f"--out {out}: no kind of picture ends in '{out.suffix}'; write .png or .jpg")


def _ending(out: Path) -> str:
    """By which a picture's format is known; what has no ending, such as standard output, gets PNG."""
    return out.suffix.lower() or ".png"


def _rows(run: Run, probe: str, arms: list[str], view: str | None) -> pd.DataFrame:
    """The probe's rows in the order of the run's arms, or of those that are named."""
    import pandas as pd

    if arms:
        return pd.DataFrame([run.row(probe, arm, view) for arm in arms])
    frame = run.frame(texts=False)
    rows: pd.DataFrame = frame[frame["probe_id"] == probe]
    if view is not None:
        rows = rows[rows["view"] == view]
    if rows.empty:
        run.row(probe, run.arms[0], view)  # says what is wrong, and what was meant
    return rows


def _print_probe(run: Run, rows: pd.DataFrame) -> None:
    from rich.table import Table
    from rich.text import Text

    from sightline.geometry.marks import marks_of
    from sightline.progress import SafeConsole
    from sightline.rows.run import image_of, probe_of

    first = rows.iloc[0]
    probe, record = probe_of(run, first), image_of(run, first)
    lines = {
        "probe": f"{first['probe_id']}{f' ({kind})' if (kind := first['kind']) else ''}",
        "question": probe["question"],
        **(_accepted(probe) if probe.get("answers") else _asked_for(probe, first["label"])),
        "image": f"{record['image']}, {record['width']} x {record['height']} pixels, {first['n_tokens']} tokens",
    }
    table = Table.grid(padding=(0, 2))
    for name, text in lines.items():
        table.add_row(name, Text(str(text)))
    regions = probe.get("regions") or ()
    for number, (box, mark) in enumerate(zip(regions, marks_of(probe.get("roles") or (), len(regions)), strict=True)):
        role = f"{mark.letter} {mark.words}: " if mark.letter else ""
        table.add_row("regions" if number == 0 else "", Text(role + _box_words(box, record)))
    SafeConsole().print(table)


def _asked_for(probe: dict[str, Any], label: str) -> dict[str, str]:
    return {"label": label, "target": probe["target_text"], "in the regions": probe["source_text"]}


def _accepted(probe: dict[str, Any]) -> dict[str, str]:
    """The accepted answers of an open question, with how many people gave each where several did."""
    counts = Counter(probe["answers"])
    said = ", ".join(f"{answer} ({n} times)" if n > 1 else answer for answer, n in counts.items())
    return {"accepted": said, **({"task": probe["task"]} if probe.get("task") else {})}


def _box_words(box: list[float], record: dict[str, Any]) -> str:
    """A box as the probe file has it, and in pixels."""
    x1, y1, x2, y2 = (round(v * side) for v, side in zip(box, (record["width"], record["height"]) * 2, strict=True))
    fractions = ", ".join(f"{value:.4f}" for value in box)
    return f"{fractions}: {x2 - x1} x {y2 - y1} pixels at {x1}, {y1}"


def _print_arms(rows: pd.DataFrame) -> None:
    from rich.table import Table
    from rich.text import Text

    from sightline.progress import SafeConsole

    table = Table(box=None, pad_edge=False)
    table.add_column("arm", overflow="fold")
    several_views = bool(rows.duplicated("arm").any())
    in_words = "score" in rows
    sure = ["score", "loss"] if in_words else ["margin"]
    columns = ["view"] * several_views + ["answer", "", *sure, "tokens", "coverage", "visible", "legibility px"]
    for column in columns:
        words = in_words and column == "answer"
        table.add_column("\n".join(column.split()), justify="left" if words else "right", no_wrap=not words)
    for row in rows.to_dict("records"):
        values = [
            str(row["predicted"]),
            "right" if row["correct"] else "wrong",
            *_sure(row, in_words),
            str(row["k_tokens"]),
            *(_number(row[name], ".3f") for name in ("ecr", "visible")),
            _number(row["legibility"], ".1f"),
        ]
        table.add_row(Text(str(row["arm"])), *([str(row["view"])] * several_views), *map(Text, values))
    SafeConsole().print(table)


def _sure(row: dict[Any, Any], in_words: bool) -> list[str]:
    """What the answer is worth and how sure the model was of it; of yes and no, by how far."""
    if not in_words:
        return [_number(row.get("margin"), "+.3f")]
    return [_number(row["score"], ".3f"), _number(row["answer_loss"], ".3f")]


def _number(value: Any, form: str) -> str:
    return "-" if value is None or value != value else format(value, form)


def _write_picture(run: Run, probe: str, arms: list[str], images: Place | None, view: str | None, out: Path) -> None:
    import io

    from PIL import Image

    from sightline.places.writing import write_whole

    picture = run.picture(probe, *arms, images=images, view=view)
    sources = picture.info["sources"]
    buffer = io.BytesIO()
    picture.save(buffer, format=Image.registered_extensions()[_ending(out)])
    write_whole(out, buffer.getvalue())
    blurred = sources.count("preview")
    origin = (
        "the image file"
        if not blurred
        else "the stored preview"
        if blurred == len(sources)
        else "the image file and, where an arm saw something else, the stored preview"
    )
    say(f"wrote {out}: {picture.width} x {picture.height} pixels, from {origin}")
    if images is None:
        say("note: --images FOLDER draws it as sharp as the image file", err=True)
