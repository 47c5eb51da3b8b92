"""The table of a cost card: its numbers, its columns by kind, and the sentence that they allow."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from sightline.cost.card import MAIN, TITLES, CostCard
from sightline.report.table import Column, Table, format_value

CONDITIONS = ("model", "device", "dtype", "positions", "box_source", "execution", "batching")
"""Columns of a card that must agree before two of its lines may be drawn in one panel."""
WHOLE = ("total", "decode")
"""Entries of the timer that are no stage on the way to the first token."""
EARLY = ("preprocess", "vision")
"""Stages on the way to the first token that come before selecting."""
LONG = 12
"""Lines above which the page shows one execution at a time."""


def card_frame(card: CostCard) -> pd.DataFrame:
    """The card's frame with its bounds named as in every table, and three columns per stage in milliseconds."""
    frame = card.frame().rename(columns={"low_ms": "ms_low", "high_ms": "ms_high"})
    stages = pd.DataFrame(
        [
            {
                f"{stage}_ms{bound}": value
                for stage, summary in point.items()
                if stage != MAIN[card.kind]
                for bound, value in (("", summary.median), ("_low", summary.low), ("_high", summary.high))
            }
            for point in card.stages()
        ],
        index=frame.index,
    )
    return pd.concat([frame.drop(columns="spread", errors="ignore"), stages], axis=1)


def varying(frame: pd.DataFrame) -> list[str]:
    """The conditions in which lines of the card differ."""
    return [name for name in CONDITIONS if frame[name].nunique() > 1]


def cost_table(card: CostCard, name: str, frame: pd.DataFrame) -> Table:
    """``frame`` is the card's ``card_frame``; its columns that are not printed are in the CSV all the same."""
    kind = card.kind
    frame = frame.assign(remark=["out of memory" if gone else "" for gone in frame["out_of_memory"]])
    apart = [name for name in varying(frame) if name != "execution"]
    titles = {"box_source": "Boxes", "batching": "Batching"}
    first = [
        Column("arm", "Arm"),
        Column("execution", "Execution"),
        *(Column(name, titles.get(name, name.capitalize())) for name in apart),
    ]
    makers = {"prefill": _prefill_columns, "ttft": _ttft_columns, "sweep": _sweep_columns}
    columns = first + [
        column
        for column in makers[kind](card)
        if column.key in frame and (column.key == "ms" or frame[column.key].replace("", None).notna().any())
    ]
    return Table(
        name,
        f"Realised cost: {TITLES[kind]}",
        CAPTIONS[kind] + " Operations are estimated from shapes and stand beside the times; they are no times.",
        columns,
        frame,
        reading=_sweep_reading(frame) if kind == "sweep" else _speed_reading(frame),
        filter="execution" if len(frame) > LONG and frame["execution"].nunique() > 1 else "",
        unprinted=tuple(str(key) for key in frame.columns if key != "remark"),
    )


CAPTIONS = {
    "prefill": "Median milliseconds per batch with the 10th and 90th percentile of all samples. Speed-up and memory "
    "saved are against the full prefix under the same execution, kernels, dtype and batch size; where that was not "
    "measured there is no ratio. Memory is counted on a GPU only.",
    "ttft": "Median milliseconds with the 10th and 90th percentile of all samples; stages as medians of their own, so "
    "that they need not add up to the total, which also holds what lies between them. Speed-up is of the total, "
    "against the full prefix under the same execution, kernels and dtype.",
    "sweep": "Rows per second of the whole sweep through the engine, and of one sample at a time, in one process.",
}


def _prefill_columns(_: CostCard) -> list[Column]:
    return [
        Column("batch", "Batch", "count"),
        Column("kept_tokens", "K", "count", help="Visual tokens kept."),
        Column("length", "Length", "count", help="Positions per sequence that the language layers read."),
        Column("ms", "ms", "number", interval=True, help="Per batch; median, 10th and 90th percentile."),
        Column("samples_per_s", "Samples/s", "number"),
        *_estimates(),
        Column("speedup", "Speed-up", "ratio"),
        Column("incremental_gib", "GiB", "number", help="Allocated peak above what the model holds at rest."),
        Column("memory_saved", "Memory saved", "percent", help="Of the full prefix's GiB, under the same conditions."),
        *_ends(),
    ]


def _ttft_columns(card: CostCard) -> list[Column]:
    stages = [stage for stage in card.inside_timer if stage not in WHOLE]
    decoded = dict.fromkeys(stage for point in card.stages() for stage in point if stage.startswith("decode_"))
    return [
        Column("kept_tokens", "K", "count", help="Visual tokens kept."),
        Column("length", "Length", "count", help="Positions that the language layers read."),
        Column("ms", "Total, ms", "number", interval=True, help=card.inside_timer.get("total", "")),
        Column("speedup", "Speed-up", "ratio"),
        Column("than_stock", "Than stock", "ratio"),
        *(_stage_column(stage, card.inside_timer[stage]) for stage in stages),
        *(_stage_column(stage, "Further tokens, outside the total.") for stage in decoded),
        *_estimates(),
        Column("incremental_gib", "GiB", "number", help="Allocated peak above what the model holds at rest."),
        *_ends(),
    ]


def _sweep_columns(_: CostCard) -> list[Column]:
    return [
        Column("rows", "Rows", "count"),
        Column("ms", "Sweep, ms", "number", help="The whole sweep once."),
        Column("rows_per_s", "Rows/s, engine", "number"),
        Column("one_sample_rows_per_s", "Rows/s, one sample", "number"),
        Column(
            "throughput_ratio", "Ratio", "ratio", help="Engine over one sample at a time, both from the picture on."
        ),
        Column(
            "ratio_to_model_alone",
            "Ratio to model alone",
            "ratio",
            help="Engine, preprocessing included, over one sample at a time without its image processor.",
        ),
        *_estimates(),
        *_ends(),
    ]


def _estimates() -> list[Column]:
    return [
        Column("estimated_gflop", "Est. GFLOP", "number", help="Estimated from shapes, not measured."),
        Column(
            "of_ceiling", "Of ceiling", "percent", help="Estimated operations over measured time, over the ceiling."
        ),
    ]


def _ends() -> list[Column]:
    return [
        Column("setup_s", "Set-up, s", "number", help="Compiling and capturing, outside every other time."),
        Column("remark", "Remark"),
    ]


def _stage_column(stage: str, covers: str) -> Column:
    return Column(f"{stage}_ms", stage.replace("_", " ").capitalize(), "number", help=covers[:1].upper() + covers[1:])


def is_full(arm: str) -> bool:
    """Whether an arm is the full prefix, as the card's ratios understand it."""
    return arm.split(":")[0] == "full"


def _speed_reading(frame: pd.DataFrame) -> str:
    """The fastest pruned arm, said together with whether its samples stand apart from those of the full prefix."""
    lines = frame.to_dict("records")
    pruned = [line for line in lines if not is_full(line["arm"])]
    known = [line for line in pruned if line.get("speedup", math.nan) > 0]
    if not pruned:
        return ""
    if not known:
        return "No full prefix was timed under the conditions of a pruned one: there is no speed-up to report."
    best = max(known, key=lambda line: float(line["speedup"]))
    if best["speedup"] <= 1.0:
        return "No pruned arm was faster than the full prefix under the same conditions."
    shared = (*CONDITIONS, "batch")
    full = next(line for line in lines if is_full(line["arm"]) and all(line[key] == best[key] for key in shared))
    share = best["kept_tokens"] / best["visual_tokens"]
    return (
        f"At best, {best['arm']} ({best['execution']}, batch {best['batch']}) is "
        f"{format_value(best['speedup'], 'ratio')} as fast as the full prefix, with {share:.0%} of the visual tokens"
        + _certainty(full, best)
        + _saved_early(full, best)
    )


def _certainty(full: dict[Any, Any], best: dict[Any, Any]) -> str:
    """How a ratio of two medians ends: it means little where the samples do not stand apart."""
    if 1 in (full["samples"], best["samples"]):
        return "; a single sample, whose spread is not known."
    return "." if best["ms_high"] < full["ms_low"] else "; the two spreads overlap, so that this may be chance."


def _saved_early(full: dict[Any, Any], best: dict[Any, Any]) -> str:
    """Says so when much of what was saved was saved before anything was selected: most likely noise, or a cache."""
    saved = full["ms"] - best["ms"]
    early = sum(full.get(f"{stage}_ms", 0.0) - best.get(f"{stage}_ms", 0.0) for stage in EARLY)
    if not early > 0.1 * saved:
        return ""
    return f" Of the {saved:.2f} ms saved, {early:.2f} lie before selection ({', '.join(EARLY)})."


def _sweep_reading(frame: pd.DataFrame) -> str:
    best = max(frame.to_dict("records"), key=lambda line: float(line["throughput_ratio"]))
    ratio = best.get("ratio_to_model_alone")
    alone = "" if pd.isna(ratio) else f", or {format_value(ratio, 'ratio')} without the latter's image processor"
    return (
        f"The engine ({best['execution']}) makes {format_value(best['rows_per_s'], 'number')} rows per second, one "
        f"sample at a time makes {format_value(best['one_sample_rows_per_s'], 'number')}: "
        f"{format_value(best['throughput_ratio'], 'ratio')}{alone}."
    )
