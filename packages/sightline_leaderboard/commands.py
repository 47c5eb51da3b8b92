"""``sightline leaderboard``: every method on some models at some budgets, ranked with what the intervals allow."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from sightline.auditing.config import flag_of
from sightline.commands.options import named_models, pairs, with_options
from sightline.core.flags import Flag
from sightline.errors import SightlineError
from sightline.progress import say

if TYPE_CHECKING:
    from sightline_leaderboard.contest import Contest
    from sightline_leaderboard.standings import Record


BUDGETS = "0.1,0.3,0.5"


@with_options
def leaderboard(
    out: Path,
    model: Annotated[list[str] | None, Flag(metavar="[NAME=]MODEL")] = None,
    probes: Path | None = None,
    images: Path | None = None,
    demo: bool = False,
    open_questions: bool = False,
    budgets: str = (BUDGETS),
    method: Annotated[
        list[str] | None, Flag(metavar="NAME[:ARGUMENTS]", shown="every registered method and control")
    ] = None,
    limit: Annotated[int | None, Flag(shown="all; in the demo 40, of open questions 50"), Field(ge=2)] = None,
    rank_by: Annotated[str, Flag(shown="accuracy; of open questions score")] = "",
    clip: str | None = None,
    box_source: str | None = None,
    scorer: str | None = None,
    image_option: Annotated[list[str] | None, Flag(metavar="[MODEL:]NAME=VALUE")] = None,
    dtype: str | None = None,
    device: str | None = None,
    draws: Annotated[int, Field(ge=100)] = 10_000,
) -> None:
    """Rank every method on some models: answers, surviving evidence, unsupported answers, cost, with intervals.

    Methods that a model cannot serve are listed with the reason. Run it again and nothing is computed twice.
    """
    from sightline.statistics.bootstrap import SEED
    from sightline_leaderboard.contest import Contest, chosen_methods, demo_contest, measure, read_budgets
    from sightline_leaderboard.page import write_leaderboard
    from sightline_leaderboard.standings import ranking_metric, record_of

    methods, wanted = chosen_methods(method or []), read_budgets([budgets])
    if rank_by:
        ranking_metric(rank_by, in_words=False)
    given: dict[str, Any] = {"box_source": box_source, "scorer": scorer, "dtype": dtype, "device": device}
    run = {name: value for name, value in given.items() if value is not None}
    contest: Contest
    if demo:
        if probes or images or image_option:
            raise SightlineError("--demo brings its own pages; leave out --probes, --images and --image-option")
        contest = demo_contest(
            out, methods, wanted, models=model or [], in_words=open_questions, pages=limit, clip=clip, run=run
        )
    else:
        if open_questions:
            raise SightlineError(
                "--open-questions chooses among the questions of --demo; your own probes say what they ask"
            )
        if not model or probes is None or images is None:
            raise SightlineError("name --model, --probes and --images, or take the shipped ones with --demo")
        models = named_models(model)
        options = image_options(image_option or [], models)
        contest = Contest(out, models, probes, images, methods, wanted, limit, clip, run, options)
    record = record_of(contest, measure(contest), rank_by=rank_by, draws=draws, seed=SEED)
    page = write_leaderboard(record, out)
    _print(record)
    say(f"digest without times: {record['digest']}")
    say(f"page: {page}")


def image_options(given: list[str], models: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Image options by model: those of all, and over them those that name it."""
    read = pairs(given, flag_of("image_options"))
    found = {name: {key: value for key, value in read.items() if ":" not in key} for name in models}
    for key, value in read.items():
        name, colon, option = key.rpartition(":")
        if colon and name not in found:
            raise SightlineError(f"--image-option {key}: no model is called '{name}'; choose from {', '.join(found)}")
        if colon:
            found[name][option] = value
    return found


def _print(record: Record) -> None:
    """Mean ranks with those of each model behind them, what each model comes to, and who does not take part."""
    import pandas as pd
    from rich.text import Text

    from sightline.core.table import Table, TableColumn
    from sightline.progress import SafeConsole
    from sightline_leaderboard.page import headlines, notes

    console, models = SafeConsole(), record["models"]
    columns = [
        TableColumn("method", "method"),
        TableColumn("mean_rank", "mean rank", "number"),
        TableColumn("gain", "− Random", "signed"),
        *(TableColumn(f"ranks {model['name']}", f"{model['name']} {'/'.join(model['standings'])}") for model in models),
    ]
    lines = []
    for line in record["overview"]:
        ranks = {(rank["model"], rank["budget"]): str(rank["rank"]) for rank in line["ranks"]}
        by_model = {
            f"ranks {model['name']}": "/".join(ranks.get((model["name"], budget), "-") for budget in model["standings"])
            for model in models
        }
        lines.append({**{key: line[key] for key in ("panel", "method", "mean_rank", "gain")}, **by_model})
    Table("leaderboard", "", "", columns, pd.DataFrame(lines), panel="panel").terminal(console)
    for sentence in [*notes(record), *headlines(record)]:
        console.print(Text(sentence), soft_wrap=True)
    for model in models:
        for refusal in model["refused"]:
            who = f"{refusal['method']} at {refusal['budget']}" if refusal["budget"] else refusal["method"]
            console.print(Text(f"not on {model['name']}: {who}: {refusal['reason']}"), soft_wrap=True)
