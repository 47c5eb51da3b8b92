"""Is coverage a fair measure here? Precision beside recall, coverage by scale, and what could still be read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from sightline.analysis.comparison import Record
from sightline.core.table import Kind, Table, TableColumn, format_value
from sightline.errors import SightlineError
from sightline.report.columns import (
    HandedOver,
    build_table,
    collect,
    excludes_zero,
    metric_columns,
    signed,
    table_column,
)
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker
from sightline.report.summary import ReportSummary
from sightline.report.verdict import plan_lines, plan_of
from sightline.rows.images import SCALES
from sightline.rows.source import Audited, Source
from sightline.statistics.arm_rows import FloatArray, IntArray, are_positives, looked_up, numbered
from sightline.statistics.bootstrap import DRAWS, SEED, count_blocks
from sightline.statistics.correlation import FixedResiduals, correlation_shares, ranks
from sightline.statistics.intervals import ImageShares, interval, percentile_interval
from sightline.statistics.metrics import METRICS
from sightline.statistics.summaries import arm_points, metric_inputs

_TERTILES = ("smallest third", "middle third", "largest third")


@SECTIONS.register("geometry")
class GeometrySection(SectionMaker):
    id = "geometry"
    title = "Geometry"
    order = 70
    lead = "Coverage is only as sharp as the cells: precision and scale say how far to trust it."

    def fill(self, section: Section, context: Context) -> None:
        section.add(lambda: geometry_table(context.summary))
        section.add(lambda: strata_table(context.source))


def geometry_table(summary: ReportSummary) -> Table:
    if summary.arms["pos_ecr"].isna().all():
        raise SightlineError("no positive probe has a region: there is no geometry to validate")
    columns = {"metrics": metric_columns("geometry", summary.arms)}
    return build_table("geometry", summary.arms, columns=columns)


def _thirds(values: pd.Series[float]) -> pd.Series[int] | None:
    """Which third of them each value lies in; None where they are all alike: a fixed raster has a single cell area."""
    if values.empty or values.max() - values.min() <= 1e-12:
        return None
    return pd.Series(np.searchsorted(np.quantile(values, [1 / 3, 2 / 3]), values, side="left"), index=values.index)


def strata_table(source: Source) -> Table:
    """Coverage and accuracy, or score, on positives by tertile of evidence area, cell area and their ratio.

    Boundaries are the 1/3 and 2/3 quantiles over the probes; a value on a boundary belongs to the lower side.
    """
    records: list[dict[str, Any]] = []
    for audited in source.runs:
        sizes = audited.scales
        concerned = (are_positives(audited.frame) & audited.frame["probe_id"].isin(sizes.index)).to_numpy()
        # One index for all three: looking names up in one costs more memory than what is looked up.
        chosen = sizes.loc[sizes.index.isin(audited.frame["probe_id"].array[concerned].unique())]
        thirds = {title: _thirds(chosen[key]) for key, title in SCALES.items()}
        inputs, arms = audited.frame[metric_inputs(audited.frame)], audited.frame["arm"].to_numpy()
        quality = ("score", "accuracy") if audited.in_words else ("accuracy",)
        for arm in audited.arms:  # one after the other: all of them at once would be most of the rows once more
            positive = inputs[concerned & (arms == arm)]
            for title, where in thirds.items():
                if where is None:
                    continue
                for third, rows in positive.groupby(looked_up(positive["probe_id"], where), sort=False):
                    place = int(str(third))
                    records.append(
                        {
                            "arm": arm,
                            "by": title,
                            "stratum": _TERTILES[place],
                            "third": place,
                            "probes": len(rows),
                            **arm_points(rows, (*quality, "pos_ecr", "lpp")),
                        }
                    )
    if not records:
        raise SightlineError("no positive probe has a region: coverage cannot be split by evidence size")
    frame = pd.DataFrame(records)
    order = {arm: i for i, arm in enumerate(source.frame["arm"].unique())}
    frame = frame.sort_values(["arm", "by", "third"], key=lambda c: c.map(order) if c.name == "arm" else c)
    asked = table_column("probes", title="Positives" if source.yes_or_no else "Questions")
    columns: HandedOver = {"asked": [asked], "score": ["score"] if source.in_words else []}
    return build_table("scale_strata", frame.reset_index(drop=True), source, columns=columns)


METRICS_SHOWN = ("keep", "score", "accuracy", "pos_ecr", "legibility", "illegible")
CHANGE_WORDS = {"changed": "answer changed", "margin_change": "margin moved"}


@SECTIONS.register("legibility")
class Legibility(SectionMaker):
    id = "legibility"
    title = "Legibility"
    order = 73
    lead = "A shrunken page covers every cell and still loses the text: how large are characters that reach the model?"

    def fill(self, section: Section, context: Context) -> None:
        if context.summary.arms["legibility"].isna().all():
            return
        section.add(lambda: legibility_table(context.source, context.summary))
        section.add(lambda: legibility_ordering_table(context.source, context.draws, context.seed))
        section.add(lambda: legibility_law_table(context.source, context.margin))


MEASURES = ("ecr", "legibility")
CHANGES = ("changed", "margin_change")
FEWEST_ARMS = 3


def answer_changes(frame: pd.DataFrame) -> pd.DataFrame:
    """The plain rows about regions of every arm but Full, beside what Full answered to the same probe.

    ``changed`` is 1 where the answer is another one, ``margin_change`` the distance between the margins (absent where
    rows have none). Rows whose legibility nobody knows are left out.
    """
    told = ("arm", "selector", "probe_id", "image_id", "predicted", "margin", "ecr", "legibility")
    frame = frame[[name for name in told if name in frame]]
    is_full = frame["selector"] == "full"
    full = frame[is_full].drop_duplicates("probe_id").set_index("probe_id")
    if full.empty:
        raise SightlineError("no full arm, so no answer can be said to have changed; amend the run with --arm full")
    measured = frame["legibility"].notna() if "legibility" in frame else frame["selector"].isna()
    chosen = ~is_full & measured & frame["ecr"].notna() & frame["probe_id"].isin(full.index)
    rows = frame.drop(columns="selector")[chosen]
    if rows.empty:
        raise SightlineError(
            "no pruned row with a region has a legibility: rows of earlier releases lack it, and so do those of an "
            "architecture that does not say how many pixels a token is made from"
        )
    changed = (rows["predicted"] != looked_up(rows["probe_id"], full["predicted"])).astype(float)
    rows = rows.drop(columns="predicted").assign(changed=changed)
    if "margin" in rows:
        change = (rows["margin"] - looked_up(rows["probe_id"], full["margin"])).abs()
        rows = rows.drop(columns="margin").assign(margin_change=change)
    return rows


def ordering_frame(frame: pd.DataFrame, *, draws: int = DRAWS, seed: int = SEED) -> pd.DataFrame:
    """Rank correlation of coverage and of legibility with answer changes, over arms and over single answers.

    A measure that orders well has a rho near -1: the more is left, the less changes. ``advantage`` is coverage's rho
    minus legibility's in the same draws of images: positive where legibility orders better. Over arms, means over
    probes are ranked anew in each draw; over answers, ranks are those of the whole sample.
    """
    rows = answer_changes(frame)
    image, _ = numbered(rows["image_id"])
    arm = pd.factorize(rows["arm"])[0]
    images, arms = int(image.max()) + 1, int(arm.max()) + 1
    lines: list[tuple[Record, Correlations, list[ImageShares]]] = []
    for change in (name for name in CHANGES if name in rows):
        columns = [rows[name].to_numpy(dtype=np.float64) for name in (*MEASURES, change)]
        if arms >= FEWEST_ARMS:
            lines.append(({"over": "arms", "change": change, "n": arms}, _over_arms(columns, arm, image), []))
        lines.append(({"over": "answers", "change": change, "n": len(rows)}, *_over_answers(columns, image)))
    # One image cannot be resampled; otherwise all lines share the draws, of which few are held at once.
    drawn: list[list[FloatArray]] = [[] for _ in lines]
    for counts in count_blocks(images, draws, seed) if images > 1 else ():
        for (_, correlations, _), found in zip(lines, drawn, strict=True):
            found.append(correlations(counts))
    return pd.DataFrame(
        [
            record
            | _with_intervals(
                correlations(np.ones((1, images)))[:, 0],
                np.concatenate(found, axis=1) if found else np.full((2, 1), np.nan),
                shares,
            )
            for (record, correlations, shares), found in zip(lines, drawn, strict=True)
        ]
    )


Correlations = Callable[[FloatArray], FloatArray]
"""(d, m) counts of images -> (2, d) rho of coverage and of legibility with the change, in each draw."""


def _over_arms(columns: list[FloatArray], arm: IntArray, image: IntArray) -> Correlations:
    shape = (int(image.max()) + 1, int(arm.max()) + 1)
    place = image * shape[1] + arm
    totals = [np.bincount(place, column, shape[0] * shape[1]).reshape(shape) for column in columns]
    rows = np.bincount(place, minlength=shape[0] * shape[1]).reshape(shape)

    def correlations(counts: FloatArray) -> FloatArray:
        with np.errstate(invalid="ignore", divide="ignore"):
            means = [(counts @ total) / (counts @ rows) for total in totals]
        # Arms whose means differ in the last digits alone are tied.
        ranked = [rankdata(np.round(mean, 12), axis=1, nan_policy="propagate") for mean in means]
        coverage, legibility, change = (own - own.mean(axis=1, keepdims=True) for own in ranked)
        return np.stack([_correlation(coverage, change), _correlation(legibility, change)])

    return correlations


def _correlation(first: FloatArray, second: FloatArray) -> FloatArray:
    """(d, A) and (d, A) -> (d,); NaN where one does not vary."""
    spread = np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(spread > 0.0, (first * second).sum(axis=1) / spread, np.nan)


def _over_answers(columns: list[FloatArray], image: IntArray) -> tuple[Correlations, list[ImageShares]]:
    *measures, change = (ranks(column) for column in columns)
    pairs = [FixedResiduals.of(measure, change, image) for measure in measures]

    def correlations(counts: FloatArray) -> FloatArray:
        return np.stack([pair.at(counts) for pair in pairs])

    return correlations, [correlation_shares(measure, change, image) for measure in measures]


def _with_intervals(values: FloatArray, draws: FloatArray, shares: Sequence[ImageShares]) -> Record:
    """(2,) and (2, d) as columns, with the difference between the two.

    Ranks of a few arms move in steps, so that no image has a share in their correlation (``shares`` is empty): its
    percentiles stand where resampling moves it at all.
    """
    record: Record = {}
    every = zip((*MEASURES, "advantage"), (*values, values[0] - values[1]), (*draws, draws[0] - draws[1]), strict=True)
    of_each = (*shares, shares[0].minus(shares[1])) if shares else (None,) * 3
    for (name, value, drawn), own in zip(every, of_each, strict=True):
        if own is not None and np.isfinite(drawn).any():
            found = interval(drawn, own)
            low, high = found.low, found.high
        else:
            low, high = percentile_interval(drawn)
            low, high = (low, high) if high > low else (math.nan, math.nan)
        record |= {name: float(value), f"{name}_low": low, f"{name}_high": high}
    return record


def legibility_table(source: Source, summary: ReportSummary) -> Table:
    """Per arm what it covers, what of it could be read, and how many answers are other than Full's."""
    changed: dict[str, float] = {}
    for audited in source.runs:
        try:
            rows = answer_changes(audited.frame)
        except SightlineError:
            continue  # without Full nothing has changed; the other columns stand
        changed |= {str(arm): float(share) for arm, share in rows.groupby("arm")["changed"].mean().items()}
    frame = summary.arms.assign(changed=summary.arms["arm"].map(changed))
    metrics = [METRICS[name] for name in METRICS_SHOWN if METRICS[name].answers != "words" or source.in_words]
    kinds: dict[str, Kind] = {"legibility": "number"}
    shown = [
        TableColumn(each.name, each.label, kinds.get(each.name, "score"), interval=each.with_interval, help=each.help)
        for each in metrics
    ]
    return build_table("legibility", frame, source, columns={"metrics": shown})


def legibility_ordering_table(source: Source, draws: int, seed: int) -> Table:
    """Does coverage or legibility order arms, and single answers, by how much changes?"""

    def wanted(rows: pd.DataFrame) -> bool:
        return bool(rows["selector"].nunique() > 1 and rows["legibility"].notna().any())

    def make(run: Audited) -> pd.DataFrame:
        found = ordering_frame(run.frame.assign(arm=run.frame["arm_name"]), draws=draws, seed=seed)
        return found.assign(run=run.name)

    frame = collect(source, wanted, make)
    sentence = " ".join(_sentence(part) for _, part in frame.groupby("run", sort=False))
    frame["change"] = frame["change"].map(CHANGE_WORDS)
    run = ["run"] if len(source.runs) > 1 else []
    return build_table("legibility_ordering", frame, columns={"run": run}, sentence=sentence)


def legibility_law_table(source: Source, margin: float) -> Table | None:
    """What the law of legibility says of these pages, and how far it is off on arms it was not fitted to."""
    plans = {
        audited.name: plan_of(audited, margin)
        for audited in source.runs
        if audited.frame["legibility"].notna().any() and "words_found" not in audited.frame
    }
    lines = [line | {"run": name} for name, plan in plans.items() for line in plan_lines(plan)]
    if not lines:
        return None
    laws = [
        f"{f'{name}: ' if name else ''}top {plan.law.top:.2f}, half {plan.law.half:.1f} px, slope {plan.law.slope:.1f}"
        for name, plan in plans.items()
    ]
    sentence = " ".join(f"{f'{name}: ' if name else ''}{plan.words}" for name, plan in plans.items())
    run = ["run"] if len(source.runs) > 1 else []
    return build_table(
        "legibility_law", pd.DataFrame(lines), columns={"run": run}, sentence=sentence, law="; ".join(laws)
    )


def _sentence(lines: pd.DataFrame) -> str:
    """One sentence about the first line, the changed answers, that has a correlation of both measures."""
    known = lines[lines["ecr"].notna() & lines["legibility"].notna()]
    name = str(lines["run"].iloc[0])
    prefix = f"For {name}, over" if name else "Over"
    if known.empty:
        return f"{prefix} {lines['n'].iloc[0]} {lines['over'].iloc[0]} coverage, legibility or answers do not vary."
    line = known.iloc[0]
    both = f"coverage has rho = {_value(line['ecr'])}, legibility {_value(line['legibility'])}"
    place = f"{prefix} {line['n']} {line['over']}"
    apart = signed(line, "advantage")
    if not excludes_zero(float(line["advantage_low"]), float(line["advantage_high"])):
        words = f"neither orders {_changes(line)} better than the other"
    else:
        words = f"{'legibility' if line['advantage'] > 0 else 'coverage'} orders {_changes(line)} better"
    best = min(float(line["ecr"]), float(line["legibility"]))
    weak = "; neither orders them the right way" if best >= 0.0 else ""
    return f"{place} {words}: {both}, difference {apart}{weak}."


def _changes(line: Any) -> str:
    return "changed answers" if line["change"] == "changed" else "moved margins"


def _value(value: float) -> str:
    return format_value(value, "signed") if math.isfinite(value) else "none"
