"""One model's standings: at every budget who is how good, who is better than chance, and whom nothing tells apart.

All arms of a model see the same seeded draws of its images, so that every difference here is paired by construction.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sightline.errors import SightlineError
from sightline.report.columns import panel_of
from sightline.rows.source import read_source
from sightline.selectors import SELECTORS
from sightline.statistics.arm_rows import FloatArray
from sightline.statistics.bootstrap import ImageSums, OneThread, replicate_all
from sightline.statistics.intervals import ImageShares, interval
from sightline.statistics.metrics import METRICS, Metric, metrics_shown_in, why_not
from sightline.statistics.summaries import arm_rows, arm_summary, nothing_to_read
from sightline.version import __version__
from sightline_leaderboard.contest import FULL, RANDOM, Contest, Entry, MeasuredModel

COVERAGE = "pos_ecr"
"""What the frontier sets beside the metric that ranks."""
Line = dict[str, Any]
"""What is known of one entry; None where a number has no value."""


@dataclass(frozen=True)
class Drawn:
    """One arm in the metric that ranks."""

    draws: FloatArray
    """(draws,) values."""
    shares: ImageShares


@dataclass(frozen=True)
class Standings:
    """Every entry of one model."""

    full: Line
    by_budget: Mapping[str, list[Line]]
    """Panel after panel, best first."""
    drawn: Mapping[str, Drawn]
    """Of the metric that ranks, by arm that has a value of it."""
    images: tuple[str, ...]
    """What was resampled: draws of models with the same images are paired as well."""

    def unranked(self) -> Standings:
        """The same numbers in the order of names, and nobody first: for answers from which nothing can be read."""
        nobody: Line = {"rank": None, "tied_with_next": False, "tied_with_first": False, "on_frontier": False}
        nobody |= {f"{key}{end}": None for key in ("lead", "gap") for end in ("", "_low", "_high")}
        by_name = {
            budget: [line | nobody for line in sorted(lines, key=lambda line: (line["panel"], line["method"]))]
            for budget, lines in self.by_budget.items()
        }
        return replace(self, by_budget=by_name)


@OneThread()
def standings(
    rows: pd.DataFrame, entries: Sequence[Entry], by: Metric, metrics: Sequence[Metric], *, draws: int, seed: int
) -> Standings:
    """``rows`` are the plain rows of all entries; ``by`` is what ranks, ``metrics`` are what else is told."""
    shown = [metric.name for metric in dict.fromkeys([by, *metrics])]
    arms = {entry.arm: rows[rows["arm"] == entry.arm] for entry in entries}
    summary = arm_summary(pd.concat(arms.values()), metrics=shown, draws=draws, seed=seed)
    told = {str(line["arm"]): line for line in summary.to_dict("records")}
    drawn = _drawn(arms, by, draws, seed)
    lines = {entry.arm: _line(entry, arms[entry.arm], told[entry.arm], shown) for entry in entries}
    by_budget: dict[str, list[Line]] = {}
    for budget in dict.fromkeys(entry.budget for entry in entries if entry.budget):
        here = [lines[entry.arm] for entry in entries if entry.budget == budget]
        chance = next((line for line in here if line["method"] == RANDOM), None)  # an engine cannot be told to draw
        for line in here:
            line |= _difference("gain", by, line, chance, drawn)
        by_budget[budget] = _ranked(here, by, drawn)
    (full,) = (lines[entry.arm] for entry in entries if entry.method == FULL)
    images = tuple(sorted(arms[FULL]["image_id"].astype(str).unique()))
    return Standings(full, by_budget, drawn, images)


def _drawn(arms: Mapping[str, pd.DataFrame], by: Metric, draws: int, seed: int) -> dict[str, Drawn]:
    rows = {arm: arm_rows(part) for arm, part in arms.items()}
    sums = {arm: ImageSums.of(one, [by]) for arm, one in rows.items() if not why_not(by, one)}
    values = replicate_all(list(sums.values()), draws=draws, seed=seed)
    return {arm: Drawn(drawn[:, 0], own.shares(by)) for (arm, own), drawn in zip(sums.items(), values, strict=True)}


def _line(entry: Entry, rows: pd.DataFrame, summary: Mapping[Any, Any], shown: Sequence[str]) -> Line:
    first = rows.iloc[0]
    metrics = {f"{name}{end}": number(summary[f"{name}{end}"]) for name in shown for end in ("", "_low", "_high")}
    signals, selection = (rows[name].astype(float).fillna(0.0) for name in ("signal_ms", "select_ms"))
    return {
        "method": entry.method,
        "arm": entry.arm,
        "role": str(first["role"]),
        "regime": str(first["regime"]),
        "panel": panel_of(first["regime"]),
        "keep": number(rows["keep"].mean()),
        "keep_over_layers": number(rows["keep_layer_mean"].mean()),
        **metrics,
        "selection_ms": number((signals + selection).median()),
    }


def _ranked(lines: Sequence[Line], by: Metric, drawn: Mapping[str, Drawn]) -> list[Line]:
    """Panel after panel, best first, each with its ``rank``, its ``lead`` over the next and its ``gap`` to the first.

    ``tied_with_next`` and ``tied_with_first`` say where the intervals of these hold zero. Equal values share a rank.
    What has no value has no rank and stands last.
    """
    found: list[Line] = []
    for panel in sorted({line["panel"] for line in lines}):
        own = sorted((line for line in lines if line["panel"] == panel), key=lambda line: line["method"])
        own.sort(key=lambda line: -_goodness(line, by))
        goodness = [_goodness(line, by) for line in own]
        for place, line in enumerate(own):
            below = own[place + 1] if place + 1 < len(own) else None
            line["rank"] = None if line[by.name] is None else 1 + goodness.index(goodness[place])
            line |= _difference("lead", by, line, below, drawn)
            line |= _difference("gap", by, line, own[0] if place else None, drawn)
            for told, key in (("tied_with_next", "lead"), ("tied_with_first", "gap")):
                low, high = line[f"{key}_low"], line[f"{key}_high"]
                line[told] = line[key] is not None and (low is None or high is None or low <= 0.0 <= high)
            line["on_frontier"] = not any(_dominates(other, line, by) for other in own)
        found += own
    return found


def _difference(key: str, by: Metric, line: Line, other: Line | None, drawn: Mapping[str, Drawn]) -> Line:
    """``key``, ``key_low``, ``key_high``: line - other in the metric that ranks, paired; None where there is none."""
    if other is None or line[by.name] is None or other[by.name] is None:
        return {key: None, f"{key}_low": None, f"{key}_high": None}
    mine, theirs = drawn[line["arm"]], drawn[other["arm"]]
    nothing = {key: number(line[by.name] - other[by.name]), f"{key}_low": None, f"{key}_high": None}
    if mine is theirs:  # 0 by construction
        return nothing
    found = interval(mine.draws - theirs.draws, mine.shares.minus(theirs.shares))
    return nothing | {f"{key}_low": number(found.low), f"{key}_high": number(found.high)}


def _goodness(line: Line, metric: Metric) -> float:
    """Larger is better, whichever way the metric points; what has no value is worst."""
    value = line.get(metric.name)
    if value is None:
        return -math.inf
    return float(value) if metric.better == "higher" else -float(value)


def _dominates(other: Line, line: Line, by: Metric) -> bool:
    """Whether another entry is at least as good in answers and in coverage, and better in one of them."""
    pairs = [(_goodness(line, metric), _goodness(other, metric)) for metric in (by, METRICS[COVERAGE])]
    return all(theirs >= mine for mine, theirs in pairs) and any(theirs > mine for mine, theirs in pairs)


def number(value: Any) -> float | None:
    """As JSON has it: six decimals, which no table prints and no platform rounds differently; None for no value."""
    return round(float(value), 6) if value is not None and np.isfinite(float(value)) else None


# All models together: a method's ranks side by side, their mean, and what it gains over chance on average.


def overview(models: Mapping[str, Standings]) -> list[Line]:
    """One line per method, best mean rank first among those that were ranked equally often.

    A *cell* is a model at a budget. ``ranks`` are by model and budget, ``mean_rank`` is over the cells in which the
    method has one, ``cells`` says how many these are: means over different cells do not compare, so ``place`` counts
    within a panel among methods with the same number. ``gain`` is the mean difference to Random over its cells.
    """
    cells = [
        (model, budget, line)
        for model, standings in models.items()
        for budget, lines in standings.by_budget.items()
        for line in lines
    ]
    methods = dict.fromkeys(line["method"] for _, _, line in cells)
    found = [_over_models_line(models, [cell for cell in cells if cell[2]["method"] == name]) for name in methods]
    found.sort(key=lambda line: (line["panel"], -line["cells"], line["mean_rank"] or 0.0, line["method"]))
    for line in found:
        alike = [other for other in found if (other["panel"], other["cells"]) == (line["panel"], line["cells"])]
        better = sum((other["mean_rank"] or 0.0) < (line["mean_rank"] or 0.0) for other in alike)
        line["place"] = 1 + better if line["cells"] else None
    return found


def _over_models_line(models: Mapping[str, Standings], own: Sequence[tuple[str, str, Line]]) -> Line:
    """Of one method, from its (model, budget, line) of every cell."""
    ranked = [(model, budget, line) for model, budget, line in own if line["rank"] is not None]
    gains = [line["gain"] for _, _, line in ranked if line["gain"] is not None]
    low, high = _interval([(models[model], budget, line["arm"]) for model, budget, line in ranked])
    first = own[0][2]
    return {
        **{key: first[key] for key in ("method", "role", "panel")},
        "cells": len(ranked),
        "mean_rank": number(np.mean([line["rank"] for _, _, line in ranked])) if ranked else None,
        "gain": number(np.mean(gains)) if gains else None,
        "gain_low": low,
        "gain_high": high,
        "ranks": [{"model": model, "budget": budget, "rank": line["rank"]} for model, budget, line in ranked],
    }


def _interval(cells: list[tuple[Standings, str, str]]) -> tuple[float | None, float | None]:
    """Of the mean gain: each draw resamples the images once for all cells. None where models saw different images."""
    if not cells or len({standings.images for standings, _, _ in cells}) > 1:
        return None, None
    gains: list[FloatArray] = []
    shares: list[ImageShares] = []
    for standings, budget, arm in cells:
        chance = next((line["arm"] for line in standings.by_budget[budget] if line["method"] == RANDOM), None)
        if chance is None or arm == chance:
            return None, None  # nothing to compare with, or 0 by construction
        mine, theirs = standings.drawn[arm], standings.drawn[chance]
        gains.append(mine.draws - theirs.draws)
        shares.append(mine.shares.minus(theirs.shares))
    found = interval(np.mean(gains, axis=0), ImageShares.mean(shares))
    return number(found.low), number(found.high)


# A leaderboard as JSON: everything that its page and its Markdown are made from, and a digest that ignores times.

FORM = 1
UNDIGESTED = frozenset({"selection_ms", "device", "version", "digest"})
"""Keys whose values differ between machines and moments although nothing else does."""
Record = dict[str, Any]


def record_of(contest: Contest, measured: Sequence[MeasuredModel], *, rank_by: str, draws: int, seed: int) -> Record:
    """What the runs say, ready to be written."""
    source = read_source([one.run.path for one in measured], [one.name for one in measured], pairs=True)
    by = ranking_metric(rank_by, in_words=source.all_in_words)
    metrics = metrics_shown(source.frame, in_words=bool(source.in_words))
    found: dict[str, Standings] = {}
    models = []
    for one, audited in zip(measured, source.runs, strict=True):
        rows = audited.frame.assign(arm=audited.frame["arm_name"])
        found[one.name] = standings(rows, one.lineup.entries, by, metrics, draws=draws, seed=seed)
        nothing = nothing_to_read(rows, draws=draws, seed=seed) if by.reads_answers else ""
        if nothing:
            found[one.name] = found[one.name].unranked()
        models.append(_model(one, found[one.name], nothing))
    probes = source.runs[0].frame.drop_duplicates("probe_id")
    record = {
        "sightline_leaderboard": FORM,
        "version": __version__,
        "ranked_by": by.name,
        "metrics": [metric.name for metric in dict.fromkeys([by, *metrics])],
        "budgets": list(contest.budgets),
        "pages": int(probes["image_id"].nunique()),
        "probes": len(probes),
        "probe_digest": str(measured[0].run.manifest["probe_digest"]),
        "draws": draws,
        "seed": seed,
        "notes": [*contest.notes, *source.notes, *(f"broken: {reason}" for reason in SELECTORS.broken().values())],
        "models": models,
        "overview": overview(found),
    }
    return {**record, "digest": digest_of(record)}


RISKS = ("swapped", "digit_error", "invented", "silent", "confidently_wrong")
"""What becomes of wrong answers where they are about fields of documents; a table of its own has them."""


def metrics_shown(frame: pd.DataFrame, *, in_words: bool) -> list[Metric]:
    """What the tables tell beside the rank, as far as rows of this kind have it."""
    shown = [metric for metric in metrics_shown_in("leaderboard") if metric.answers != "words" or in_words]
    about_fields = "swapped" in frame and bool(frame["swapped"].notna().any())
    return [*shown, *(METRICS[name] for name in RISKS if about_fields)]


def ranking_metric(name: str, *, in_words: bool) -> Metric:
    """The metric that ranks: the one named, else the answers themselves."""
    metric = METRICS.get(name or ("score" if in_words else "accuracy"))
    if metric.better == "neither":
        raise SightlineError(f"--rank-by {metric.name}: neither more nor less of it is better, so it ranks nobody")
    return metric


def _model(one: MeasuredModel, found: Standings, nothing: str) -> Record:
    """``nothing`` says why ranks by its answers would mean nothing; "" where they mean something."""
    manifest = one.run.manifest
    return {
        "name": one.name,
        **{key: str(manifest.get(key)) for key in ("model_type", "weight_digest", "dtype", "positions", "box_source")},
        "device": str(manifest.get("device")),
        "notes": [nothing] if nothing else [],
        **({"ranked": False} if nothing else {}),
        "full": found.full,
        "standings": {budget: list(lines) for budget, lines in found.by_budget.items()},
        "refused": [asdict(refusal) for refusal in one.lineup.refusals],
    }


def digest_of(record: Record) -> str:
    """SHA-256 of the record without times, device and version: the same runs give the same one anywhere."""
    plain = json.dumps(_digested(record), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return f"sha256:{sha256(plain.encode()).hexdigest()}"


def _digested(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _digested(inner) for key, inner in value.items() if key not in UNDIGESTED}
    return [_digested(inner) for inner in value] if isinstance(value, list) else value


def record_text(record: Record) -> str:
    """JSON with one entry a line, so that the difference between two leaderboards can be read."""
    return _spread(record) + "\n"


def _spread(value: Any, depth: int = 0) -> str:
    inner = list(value.values()) if isinstance(value, dict) else value
    holds_more = isinstance(value, dict | list) and any(isinstance(item, dict | list) and item for item in inner)
    if not holds_more or (isinstance(value, dict) and "method" in value):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    names = [f"{json.dumps(key)}: " for key in value] if isinstance(value, dict) else [""] * len(value)
    lines = ",\n".join(
        f"{' ' * (depth + 1)}{name}{_spread(item, depth + 1)}" for name, item in zip(names, inner, strict=True)
    )
    left, right = "{}" if isinstance(value, dict) else "[]"
    return f"{left}\n{lines}\n{' ' * depth}{right}"


def read_record(path: Path) -> Record:
    """A leaderboard as it was written, whose digest must be that of its content."""
    record: Record = json.loads(path.read_text(encoding="utf-8"))
    if record.get("sightline_leaderboard") != FORM or record.get("digest") != digest_of(record):
        raise SightlineError(f"{path} is no leaderboard, or was changed by hand; make it anew")
    return record
