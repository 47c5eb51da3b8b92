"""What pruning costs and saves as measured by ``sightline bench``: each cost card with its conditions and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from sightline.cost.cost_card import CostCard
from sightline.cost.presentation import BatchCurves, StageBars
from sightline.errors import SightlineError
from sightline.report.charts import Curve
from sightline.report.cost_charts import Bar, batch_curves, stage_bars
from sightline.report.cost_tables import card_frame, cost_table, further_tables, varying
from sightline.report.sections import ChartGroup, Part, Section

RANDOM = "random weights: times hold, answers do not exist"
NO_GPU = "no GPU was used: these times say nothing about a GPU"


@dataclass(frozen=True)
class Card:
    """A cost card with what the report calls it."""

    file: str
    name: str
    """File stem of its tables; the kind, numbered where several cards are of one kind."""
    card: CostCard

    @property
    def model(self) -> str:
        return str(self.card.records()[0]["model"])


def read_cards(paths: Sequence[Path | str]) -> list[Card]:
    """All cards, checked before anything is made from them."""
    cards: list[Card] = []
    for path in map(Path, paths):
        card = CostCard.read(path)
        same = sum(other.card.kind == card.kind for other in cards)
        cards.append(Card(path.name, f"realised_{card.kind}" + (f"_{same + 1}" if same else ""), card))
        try:
            for table in _part(cards[-1]).tables:
                table.markdown()
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise SightlineError(f"{path} is not a whole cost card ({error}); measure again") from None
    return cards


def card_facts(card: Card) -> list[tuple[str, str]]:
    """The line under the title of a page that has cards alone."""
    shown = [fact for fact in card.card.facts() if fact[0] in ("model", "device", "dtype", "positions")]
    return [("Card", card.file), ("measures", card.card.kind), *shown]


def realised_cost_section(cards: Sequence[Card], *, beside_runs: bool) -> Section:
    lead = "Isolated measurements of a cost card's own model, picture and prompt, every sample kept."
    if beside_runs:
        lead += (
            " The stage times under Cost were recorded while auditing, from batched work that arms and probes share: "
            "no ratio here mixes the two."
        )
    return Section("realised-cost", "Realised cost", lead, parts=[_part(card) for card in cards])


def _part(card: Card) -> Part:
    results = card.card.results
    notes = []
    if any(result["weights"] == "random" for result in results):
        notes.append(RANDOM)
    if any(result["machine"]["device"] != "cuda" for result in results):
        notes.append(NO_GPU)
    benchmark = card.card.benchmark
    facts = card.card.facts()
    if benchmark.together:
        arms = dict.fromkeys(arm for result in results for arm in result["request"]["arms"])
        facts.append(("arms", ", ".join(arms)))
    title = f"{benchmark.title}: {card.model}, {card.file}"
    frame = card_frame(card.card)
    return Part(
        title=title[0].upper() + title[1:],
        facts=[("Conditions", facts), ("Inside the timer", list(card.card.inside_timer.items()))],
        notes=notes,
        charts=_charts(card.card, frame),
        tables=[cost_table(card.card, card.name, frame), *further_tables(card.card, card.name)],
    )


def _charts(card: CostCard, frame: pd.DataFrame) -> list[ChartGroup]:
    match card.benchmark.chart:
        case StageBars() as asked:
            return _stage_charts(asked, card, frame)
        case BatchCurves() as asked:
            return _batch_charts(asked, frame)
        case None:
            return []


def _stage_charts(asked: StageBars, card: CostCard, frame: pd.DataFrame) -> list[ChartGroup]:
    summary = card.benchmark.summary
    order = [stage for stage in card.inside_timer if stage not in asked.whole]
    bars = [
        Bar(
            label=str(line["arm"]),
            group=group,
            stages={stage: line[f"{stage}_ms"] for stage in order if _known(line.get(f"{stage}_ms"))},
            total=line["ms"],
            low=line["ms_low"],
            high=line["ms_high"],
            speedup=line["speedup"] if _known(line.get("speedup")) else None,
        )
        for group, lines in _panels(frame)
        for line in lines.to_dict("records")
        if _known(line.get("ms"))
    ]
    if not bars:
        return []
    title = f"Stages and total, with its {summary.bounds_words}; × is against the full prefix under the same execution"
    taken = [stage for stage in order if any(stage in bar.stages for bar in bars)]
    return [ChartGroup(title, [stage_bars(bars, taken, asked.title, f"{summary.centre_word} milliseconds")])]


def _batch_charts(asked: BatchCurves, frame: pd.DataFrame) -> list[ChartGroup]:
    """Quantities over the batch size, for conditions that were measured at several."""
    groups = []
    styles = {str(arm): style for style, arm in enumerate(frame["arm"].unique())}
    for title, lines in _panels(frame):
        charts: list[Markup] = []
        for key, y_title in asked.quantities:
            curves = _curves(lines, key, styles)
            if curves:
                charts.append(batch_curves(curves, y_title, float(frame[key].max())))
        if charts:
            groups.append(ChartGroup(f"Over the batch size: {title}", charts))
    return groups


def _curves(lines: pd.DataFrame, key: str, styles: Mapping[str, int]) -> list[Curve]:
    if key not in lines:
        return []
    known = lines[lines[key].notna()].drop_duplicates(["arm", "batch"]).sort_values("batch")
    return [
        Curve(arm, [float(b) for b in points["batch"]], [float(v) for v in points[key]], style)
        for arm, style, points in ((arm, style, known[known["arm"] == arm]) for arm, style in styles.items())
        if len(points) > 1
    ]


def _panels(frame: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Lines under the same conditions, named by what tells them apart, in the order measured."""
    named = list(dict.fromkeys([*varying(frame), "execution"]))
    labels = frame[named].astype(str).agg(", ".join, axis=1)
    return [(str(label), frame[labels == label]) for label in labels.unique()]


def _known(value: Any) -> bool:
    return value is not None and value == value
