"""Coverage against legibility on arms whose order is known."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from sightline.errors import SightlineError
from sightline.report.sections.legible_arms import answer_changes, ordering_frame

DRAWS = 200
LOSSES = {"resize:0.4": (1.0, 6.0), "resize:0.25": (1.0, 3.0), "grid:0.5": (0.6, 9.0), "grid:0.3": (0.4, 8.0)}
"""Arm -> coverage and legibility; answers change with what is illegible."""


def frame(images: int = 40, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    difficulty = rng.permutation(np.linspace(-2.5, 2.5, images))
    parts = []
    for arm, (ecr, legible) in {"full": (1.0, 12.0), **LOSSES}.items():
        margin = 2.6 - difficulty - 0.4 * (12.0 - legible)
        parts.append(
            pd.DataFrame(
                {
                    "arm": arm,
                    "selector": arm.partition(":")[0],
                    "probe_id": [f"p{i}" for i in range(images)],
                    "image_id": [f"im{i // 2}" for i in range(images)],
                    "label": "yes",
                    "margin": margin,
                    "predicted": np.where(margin >= 0, "yes", "no"),
                    "ecr": np.clip(ecr + 0.02 * rng.normal(size=images), 0, 1),
                    "legibility": legible + 0.1 * rng.normal(size=images),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def line(table: pd.DataFrame, over: str, change: str) -> pd.Series:
    return table[(table["over"] == over) & (table["change"] == change)].iloc[0]


def test_the_measure_that_the_answers_follow_orders_the_arms() -> None:
    table = ordering_frame(frame(), draws=DRAWS)
    arms = line(table, "arms", "changed")
    assert arms["n"] == len(LOSSES)
    assert arms["legibility"] == pytest.approx(-1.0)
    assert arms["ecr"] > 0.0, "shrunken pages cover most and change most"
    assert arms["advantage"] == pytest.approx(arms["ecr"] - arms["legibility"])
    assert arms["advantage_low"] > 0.0


def test_over_answers_it_is_spearmans_rho_of_all_rows_but_fulls() -> None:
    rows = frame()
    table = ordering_frame(rows, draws=DRAWS)
    changes = answer_changes(rows)
    assert len(changes) == len(LOSSES) * 40
    for measure in ("ecr", "legibility"):
        for change in ("changed", "margin_change"):
            found = line(table, "answers", change)
            assert found[measure] == pytest.approx(spearmanr(changes[measure], changes[change]).statistic)
            assert found[f"{measure}_low"] <= found[measure] <= found[f"{measure}_high"]


def test_nobody_is_ahead_where_both_measures_say_the_same() -> None:
    rows = frame().assign(ecr=lambda each: each["legibility"] / 12.0)
    found = ordering_frame(rows, draws=DRAWS)
    assert found["advantage"].abs().max() < 1e-12
    assert found["advantage_low"].isna().all(), "no image differs, which is no proof that none would"


def test_arms_that_cover_alike_have_no_order_by_coverage() -> None:
    found = line(ordering_frame(frame().assign(ecr=1.0), draws=DRAWS), "arms", "changed")
    assert math.isnan(found["ecr"])
    assert found["legibility"] == pytest.approx(-1.0)


def test_two_arms_are_compared_by_their_answers_alone() -> None:
    rows = frame()
    table = ordering_frame(rows[rows["arm"].isin(["full", "grid:0.5", "grid:0.3"])], draws=DRAWS)
    assert set(table["over"]) == {"answers"}


def test_answers_without_margins_change_or_not() -> None:
    table = ordering_frame(frame().drop(columns="margin"), draws=DRAWS)
    assert set(table["change"]) == {"changed"}


def test_one_image_gives_values_without_intervals() -> None:
    table = ordering_frame(frame().assign(image_id="the only one"), draws=DRAWS)
    assert table["legibility"].notna().all()
    assert table["legibility_low"].isna().all()


def test_what_is_missing_is_named() -> None:
    rows = frame()
    with pytest.raises(SightlineError, match="--arm full"):
        ordering_frame(rows[rows["arm"] != "full"])
    for lacking in (rows.drop(columns="legibility"), rows.assign(legibility=np.nan)):
        with pytest.raises(SightlineError, match="no pruned row with a region has a legibility"):
            ordering_frame(lacking)
