"""What pruning costs and saves: as recorded while auditing, and as measured apart, where cost cards were given."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from sightline.core.table import Table, TableColumn, format_value
from sightline.cost.card import CostCard
from sightline.cost.spread import CONDITIONS, BatchCurves, StageBars
from sightline.errors import SightlineError
from sightline.report.charts import Curve, curves_in_words, labelled_lines
from sightline.report.columns import build_table, table_column, table_columns
from sightline.report.sections.base import SECTIONS, ChartGroup, Context, NamedCard, Part, Section, SectionMaker
from sightline.report.svg import CHARACTER, QUALITATIVE, Scale, axes, chart, round_step, tag, tick
from sightline.rows.source import Source
from sightline.statistics.summaries import arm_points

STAGES = ("preprocess_ms", "vision_ms", "boxes_ms", "signal_ms", "select_ms", "materialise_ms", "language_ms")
READ = (
    "arm", "sequence_full", "sequence_pruned", "device", "keep", "probe_id", "image_id", "label", "correct", *STAGES
)  # fmt: skip
"""Columns that the table is made from."""


@SECTIONS.register("cost")
class Cost(SectionMaker):
    id = "cost"
    title = "Cost"
    order = 80
    lead = "What was saved where, as recorded while auditing."

    def fill(self, section: Section, context: Context) -> None:
        section.add(lambda: stage_times_table(context.source))


def stage_times_table(source: Source) -> Table:
    """Mean milliseconds of each stage, as recorded by the run on the device it names."""
    records = []
    for audited in source.runs:
        for arm, rows in audited.frame[list(READ)].groupby("arm", sort=False):
            times = {stage: float(rows[stage].astype(float).mean()) for stage in STAGES}
            records.append(
                {
                    "arm": arm,
                    **arm_points(rows, ("keep",)),
                    "sequence_full": float(rows["sequence_full"].mean()),
                    "sequence_pruned": float(rows["sequence_pruned"].mean()),
                    **times,
                    "total": sum(v for v in times.values() if v == v),
                    "device": ", ".join(sorted({str(d) for d in rows["device"].unique()})),
                }
            )
    frame = pd.DataFrame(records)
    if frame[list(STAGES)].isna().all(axis=None):
        raise SightlineError("the run recorded no stage times")
    stages = [stage for stage in STAGES if stage != "boxes_ms" or frame[stage].notna().any()]
    devices = ", ".join(sorted(set(frame["device"])))
    return build_table("cost", frame, columns={"stages": stages}, devices=devices)


LONG = 12
"""Lines above which the page shows one execution at a time."""


def card_frame(card: CostCard) -> pd.DataFrame:
    """The card's lines: its frame with bounds named as in every table, and three columns per stage in milliseconds."""
    return pd.DataFrame(card.lines())


def varying(frame: pd.DataFrame) -> list[str]:
    """The conditions in which lines of the card differ."""
    return [name for name in CONDITIONS if frame[name].nunique() > 1]


def cost_table(card: CostCard, name: str, frame: pd.DataFrame) -> Table:
    """``frame`` is the card's ``card_frame``; its columns that are not printed are in the CSV all the same."""
    benchmark = card.benchmark
    frame = frame.assign(remark=["out of memory" if gone else "" for gone in frame["out_of_memory"]])
    apart = [name for name in varying(frame) if name != "execution"]
    first = table_columns("arm execution", *apart)
    shown = [
        TableColumn(quantity.key, quantity.title, quantity.unit, quantity.interval, quantity.help)
        for quantity in benchmark.columns(card.results)
        if quantity.page
    ]
    columns = first + [
        column
        for column in (*shown, table_column("remark"))
        if column.key in frame and (column.key == "ms" or frame[column.key].replace("", None).notna().any())
    ]
    return Table(
        name,
        f"Realised cost: {benchmark.title}",
        benchmark.caption + " Operations are estimated from shapes and stand beside the times; they are no times.",
        columns,
        frame,
        sentence=benchmark.sentence(frame.to_dict("records"), format_value),
        filter="execution" if len(frame) > LONG and frame["execution"].nunique() > 1 else "",
        unprinted=tuple(str(key) for key in frame.columns if key != "remark"),
    )


def further_tables(card: CostCard, name: str) -> list[Table]:
    """What the card's benchmark concludes from its lines."""
    return [
        Table(
            f"{name}_{table.name}",
            table.title,
            table.caption,
            [
                TableColumn(
                    quantity.key, quantity.title or quantity.key.capitalize(), quantity.unit, help=quantity.help
                )
                for quantity in table.columns
                if quantity.page
            ],
            pd.DataFrame(list(table.lines)),
        )
        for table in card.further_tables()
    ]


BETWEEN = "between stages"
LONGEST = 34
"""Characters of an arm's name that fit beside its bar."""


@dataclass(frozen=True)
class Bar:
    """One arm under one execution: milliseconds of its stages, and the total that was timed as a whole."""

    label: str
    group: str
    stages: Mapping[str, float]
    total: float
    low: float
    high: float
    speedup: float | None = None
    """As the card has it: against the full prefix under the same conditions."""


def stage_bars(bars: Sequence[Bar], order: Sequence[str], title: str, unit: str = "median milliseconds") -> Markup:
    """A bar of stages per arm, grouped by execution; the mark is the total with its bounds.

    ``order`` holds all stages that the kind of card knows, so that a stage has the same colour on every card.
    """
    colours = {stage: QUALITATIVE[i % len(QUALITATIVE)] for i, stage in enumerate(order)}
    used = [stage for stage in order if any(stage in bar.stages for bar in bars)]
    width, left, right = 900.0, 16 + CHARACTER * min(LONGEST, max(len(bar.label) for bar in bars)), 150.0
    key, top = _key([(stage, colours[stage]) for stage in used], left, width)
    groups = list(dict.fromkeys(bar.group for bar in bars))
    height = top + sum(24 + 26 * sum(bar.group == group for bar in bars) for group in groups) + 56
    longest = max(max(bar.high, sum(bar.stages.values())) for bar in bars)
    x = Scale(0, longest, left, width - right)
    parts = [*_milliseconds(x, top, height - 50, unit), *key]
    at = top
    for group in groups:
        at += 18
        parts.append(tag("text", group, x=left, y=at, class_="name strong"))
        at += 6
        for bar in bars:
            if bar.group == group:
                parts += _bar(bar, at, x, colours)
                at += 26
    description = "; ".join(f"{bar.group}, {_words(bar)}" for bar in bars)
    return chart(width, height, title, description, *parts, class_="chart wide")


def _milliseconds(x: Scale, top: float, bottom: float, unit: str) -> list[Markup]:
    """The axis below the bars; the arms stand where another would have numbers."""
    parts = []
    for value in x.ticks():
        parts.append(tag("line", x1=x(value), x2=x(value), y1=bottom, y2=top, class_="grid"))
        parts.append(tag("text", tick(value), x=x(value), y=bottom + 17, text_anchor="middle", class_="tick"))
    parts.append(tag("line", x1=x.start, x2=x.end, y1=bottom, y2=bottom, class_="axis"))
    parts.append(tag("text", unit, x=(x.start + x.end) / 2, y=bottom + 36, text_anchor="middle", class_="label"))
    return parts


def _bar(bar: Bar, top: float, x: Scale, colours: Mapping[str, str]) -> list[Markup]:
    middle, thickness = top + 9, 18.0
    label = bar.label if len(bar.label) <= LONGEST else bar.label[: LONGEST - 1] + "…"
    parts = [tag("text", tag("title", bar.label), label, x=x.start - 8, y=middle + 4, text_anchor="end", class_="name")]
    ends = 0.0
    for stage, colour in colours.items():
        ms = max(0.0, bar.stages.get(stage, 0.0))
        if ms > 0.0:
            words = f"{bar.group}, {bar.label}: {stage} {ms:.2f} ms"
            parts.append(_piece(x(ends), x(ends + ms), top, thickness, words, fill=colour))
        ends += ms
    if bar.total > ends:
        words = f"{bar.group}, {bar.label}: {bar.total - ends:.2f} ms {BETWEEN}"
        parts.append(_piece(x(ends), x(bar.total), top, thickness, words, class_="rest"))
    reach = max(ends, bar.total, bar.high)
    parts.append(tag("line", x1=x(bar.low), x2=x(bar.high), y1=middle, y2=middle, class_="whisker"))
    parts.append(tag("line", x1=x(bar.total), x2=x(bar.total), y1=middle - 6, y2=middle + 6, class_="whisker"))
    words = f"{format_value(bar.total, 'number')} ms"
    if bar.speedup is not None:
        words += f" · {format_value(bar.speedup, 'ratio')}"
    parts.append(tag("text", words, x=x(reach) + 8, y=middle + 4, class_="name"))
    return parts


def _piece(start: float, end: float, top: float, height: float, words: str, **style: object) -> Markup:
    return tag("rect", tag("title", words), x=start, y=top, width=end - start, height=height, **style)


def _words(bar: Bar) -> str:
    stages = ", ".join(f"{stage} {ms:.2f}" for stage, ms in bar.stages.items())
    return f"{bar.label}: {bar.total:.2f} ms ({stages})"


def _key(entries: Sequence[tuple[str, str]], left: float, width: float) -> tuple[list[Markup], float]:
    """Swatches with names, in lines as wide as the chart, and where the chart may begin below them."""
    parts = []
    at, line = left, 8.0
    for name, colour in [*entries, (BETWEEN, "")]:
        room = 24 + CHARACTER * len(name) + 10
        if at + room > width:
            at, line = left, line + 20
        style: dict[str, object] = {"fill": colour} if colour else {"class_": "rest"}
        parts.append(tag("rect", x=at, y=line, width=12.0, height=12.0, **style))
        parts.append(tag("text", name, x=at + 18, y=line + 10, class_="name"))
        at += room
    return parts, line + 20


def batch_curves(curves: Sequence[Curve], y_title: str, highest: float, over: str = "batch size") -> Markup:
    """One quantity over the batch size, or what is one here, doubling to the right; ``highest`` is the panels' own."""
    width, height = 420.0, 270.0
    batches = sorted({int(value) for curve in curves for value in curve.x})
    room = min(180.0, 14 + CHARACTER * max(len(curve.label) for curve in curves))
    x = Scale(math.log2(batches[0]), math.log2(batches[-1]), 52, width - room)
    step = round_step(1.05 * highest / 4)
    y = Scale(0, math.ceil(1.05 * highest / step) * step, height - 50, 34)
    every = math.ceil(len(batches) / 6)  # More labels than this would touch each other.
    marks = [(math.log2(b), tick(b) if i % every == 0 else "") for i, b in enumerate(batches)]
    parts = [axes(x, y, over, y_title, x_marks=marks, y_ticks=4)]
    parts += labelled_lines([replace(curve, x=[math.log2(value) for value in curve.x]) for curve in curves], x, y)
    return chart(width, height, f"{y_title} over the {over}", curves_in_words(curves, "number"), *parts)


RANDOM = "random weights: times hold, answers do not exist"
NO_GPU = "no GPU was used: these times say nothing about a GPU"


def read_cards(paths: Sequence[Path | str]) -> list[NamedCard]:
    """All cards, checked before anything is made from them."""
    cards: list[NamedCard] = []
    for path in map(Path, paths):
        card = CostCard.read(path)
        same = sum(other.card.kind == card.kind for other in cards)
        cards.append(NamedCard(path.name, f"realised_{card.kind}" + (f"_{same + 1}" if same else ""), card))
        try:
            for table in _part(cards[-1]).tables:
                table.markdown()
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise SightlineError(f"{path} is not a whole cost card ({error}); measure again") from None
    return cards


def card_facts(card: NamedCard) -> list[tuple[str, str]]:
    """The line under the title of a page that has cards alone."""
    shown = [fact for fact in card.card.facts() if fact[0] in ("model", "device", "dtype", "positions")]
    return [("Card", card.file), ("measures", card.card.kind), *shown]


def realised_cost_section(cards: Sequence[NamedCard], *, beside_runs: bool) -> Section:
    lead = "Isolated measurements of a cost card's own model, picture and prompt, every sample kept."
    if beside_runs:
        lead += (
            " The stage times under Cost were recorded while auditing, from batched work that arms and probes share: "
            "no ratio here mixes the two."
        )
    return Section("realised-cost", "Realised cost", lead, parts=[_part(card) for card in cards])


def _part(card: NamedCard) -> Part:
    results = card.card.results
    notes = []
    if any(result["weights"] == "random" for result in results):
        notes.append(RANDOM)
    if any(result["machine"]["device"] == "cpu" for result in results):
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
    asked = card.benchmark.chart
    groups: list[ChartGroup] = []
    for each in asked if isinstance(asked, tuple) else (asked,):
        match each:
            case StageBars():
                groups += _stage_charts(each, card, frame)
            case BatchCurves():
                groups += _batch_charts(each, frame)
    return groups


def _stage_charts(asked: StageBars, card: CostCard, frame: pd.DataFrame) -> list[ChartGroup]:
    summary = card.benchmark.summary
    order = [stage for stage in card.inside_timer if stage not in asked.whole]
    frame = frame[frame["batch"] == frame["batch"].max()] if asked.most else frame
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
                charts.append(batch_curves(curves, y_title, float(frame[key].max()), asked.over))
        if charts:
            groups.append(ChartGroup(f"Over the {asked.over}: {title}", charts))
    return groups


def _curves(lines: pd.DataFrame, key: str, styles: Mapping[str, int]) -> list[Curve]:
    if key not in lines:
        return []
    known = lines[lines[key].notna() & (lines["batch"] > 0)].drop_duplicates(["arm", "batch"]).sort_values("batch")
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


@SECTIONS.register("realised-cost")
class RealisedCost(SectionMaker):
    id = "realised-cost"
    title = "Realised cost"
    order = 90

    def make(self, context: Context) -> Section | None:
        return realised_cost_section(context.cards, beside_runs=True) if context.cards else None
