"""Tables from rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sightline.statistics.arm_rows import as_names, in_name_order, looked_up, numbered
from sightline.statistics.bootstrap import difference_interval, metric_interval
from sightline.statistics.metrics import METRICS
from sightline.statistics.summaries import arm_rows, arm_summary, paired_differences

ARMS = {"full": 0.0, "target@0.30": 0.2, "random@0.30": -0.8}
QUICK = 300


GEOMETRY = ("ecr", "anchor_ecr", "center_recall", "patch_recall", "lpp", "geo_f1", "worst_region")


def frame(images: int = 30) -> pd.DataFrame:
    """A positive and a negative probe per image for three arms, with every column of the row schema."""
    rng = np.random.default_rng(0)
    parts, n = [], 2 * images
    for arm, shift in ARMS.items():
        labels = np.tile(["yes", "no"], images)
        margin = np.where(labels == "yes", 1.0, -1.0) + shift * (labels == "yes") + rng.normal(size=n)
        ecr = np.ones(n) if arm == "full" else rng.random(n)
        predicted = np.where(margin >= 0, "yes", "no")
        columns = {
            "arm": arm, "probe_id": [f"p{i:03d}" for i in range(n)], "image_id": [f"im{i // 2:03d}" for i in range(n)],
            "label": labels, "margin": margin, "loss_yes": 1.0, "loss_no": 1.0 + margin, "predicted": predicted,
            "correct": predicted == labels, **dict.fromkeys(GEOMETRY, ecr), "visible": 1.0, "legibility": 20.0 * ecr,
            "all_half": ecr >= 0.5, "n_tokens": 100, "k_tokens": 30, "keep": 1.0 if arm == "full" else 0.3,
            "has_regions": True,
        }  # fmt: skip
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def line(table: pd.DataFrame, arm: str, metric: str) -> pd.Series:
    return table[(table["arm"] == arm) & (table["metric"] == metric)].iloc[0]


def test_summary_has_every_metric_with_its_interval() -> None:
    rows = frame()
    table = arm_summary(rows, draws=QUICK)
    assert list(table["arm"]) == list(ARMS)
    assert (table["n_images"] == 30).all()
    assert (table["n_positive"] == 30).all()
    assert [metric.name for metric in METRICS.values() if metric.name not in table] == [
        metric.name for metric in METRICS.values() if metric.answers == "words"
    ]
    for name, metric in METRICS.items():
        if name not in table or not metric.with_interval:
            continue
        certain = table["certain"].str.split(", ").map(lambda names, name=name: name in names)
        assert table.loc[certain, f"{name}_low"].isna().all()
        assert set(table.loc[certain, "arm"]) <= {"full"}, name
        # A mean without limits that is the same in all images has no interval, and says why.
        others = table[~certain & (table[f"{name}_low"].notna() | (name != "legibility"))]
        assert (others[f"{name}_low"] <= others[name] + 1e-12).all(), name
        assert (others[name] <= others[f"{name}_high"] + 1e-12).all() or metric.form == "ece", name
    (problem,) = table.attrs["problems"]
    assert problem.startswith("arm 'full': legibility: about 0 of 30 images differ")
    target = arm_rows(rows[rows["arm"] == "target@0.30"])
    expected = metric_interval(target, METRICS["auroc"], draws=QUICK)
    found = table.set_index("arm").loc["target@0.30"]
    assert (found["auroc"], found["auroc_low"], found["auroc_high"]) == pytest.approx(
        (expected.value, expected.low, expected.high), abs=1e-12
    )


def test_differences_are_paired_and_in_words() -> None:
    rows = frame()
    table = paired_differences(rows, draws=QUICK)
    assert set(table["arm"]) == {"target@0.30", "random@0.30"}
    found = line(table, "random@0.30", "accuracy")
    arms = {name: arm_rows(rows[rows["arm"] == name]) for name in ("full", "random@0.30")}
    expected = difference_interval(arms["random@0.30"], arms["full"], METRICS["accuracy"], draws=QUICK)
    assert (found["diff"], found["low"], found["high"]) == pytest.approx((expected.value, expected.low, expected.high))
    assert found["words"].startswith("not distinguishable from Full: -0.")
    right = {n: np.asarray(a.predicted == a.labels) for n, a in arms.items()}
    assert found["mcnemar_b"] == int((right["random@0.30"] & ~right["full"]).sum())
    assert found["mcnemar_c"] == int((~right["random@0.30"] & right["full"]).sum())
    assert 0.0 < found["mcnemar_p"] <= 1.0
    assert found["win"] + found["loss"] + found["tie"] == 30
    coverage = line(table, "random@0.30", "pos_ecr")
    assert coverage["words"].startswith("lower than Full by 0.")
    assert (coverage["win"], coverage["loss"], coverage["tie"]) == (0, 30, 0)
    assert pd.isna(line(table, "random@0.30", "auroc")["win"])
    assert pd.isna(coverage["mcnemar_b"])


def test_adding_an_arm_or_shuffling_rows_moves_nobodys_interval() -> None:
    rows = frame()
    some = rows[rows["arm"] != "random@0.30"].sample(frac=1.0, random_state=3)
    for compute in (arm_summary, paired_differences):
        everything = compute(rows, draws=QUICK)
        alone = compute(some, draws=QUICK)
        both = everything[everything["arm"].isin(alone["arm"])].set_index("arm").sort_index(kind="stable")
        alone = alone.set_index("arm").sort_index(kind="stable")
        pd.testing.assert_frame_equal(both, alone, rtol=0, atol=1e-12)


def test_columns_of_categories_are_read_like_words() -> None:
    rows = frame()
    expected = paired_differences(rows, metrics=["accuracy"], draws=QUICK)
    for column in ("arm", "label", "image_id", "probe_id", "predicted"):
        rows[column] = rows[column].astype("category")
    found = paired_differences(rows[rows["arm"] != "random@0.30"], metrics=["accuracy"], draws=QUICK)
    pd.testing.assert_frame_equal(found, expected.iloc[:1])


def test_a_noninferiority_margin_is_stated_only_where_named() -> None:
    table = paired_differences(frame(), draws=QUICK, noninferiority={"accuracy": 0.5, "hfpr": 0.5})
    assert line(table, "target@0.30", "accuracy")["noninferiority"].startswith("not inferior to Full by more than 0.5")
    assert line(table, "target@0.30", "hfpr")["noninferiority"].startswith("not inferior to Full")
    assert line(table, "target@0.30", "auroc")["noninferiority"] == ""


def test_thresholds_override_the_answers_of_the_rows() -> None:
    rows = frame()
    stored = arm_summary(rows, metrics=["yes_rate"], draws=QUICK).set_index("arm")["yes_rate"]
    never = arm_summary(rows, metrics=["yes_rate"], draws=QUICK, threshold=99.0).set_index("arm")["yes_rate"]
    assert (never == 0.0).all()
    one = arm_summary(rows, metrics=["yes_rate"], draws=QUICK, threshold={"full": 99.0}).set_index("arm")["yes_rate"]
    assert one["full"] == 0.0
    assert one["random@0.30"] == stored["random@0.30"]


@pytest.mark.parametrize(
    ("changed", "lost", "kept", "reason"),
    [
        (lambda rows: rows[rows["label"] == "yes"], "auroc hfpr neg_src pn_average", "accuracy pos_ecr accuracy_low",
         "negative_accuracy, hfpr: there are no negatives;"),
        (lambda rows: rows.assign(has_regions=False), "pos_ecr center_recall weakly_supported", "accuracy auroc keep",
         "there are no positives with regions"),
        (lambda rows: rows.drop(columns=["lpp", "predicted"]), "lpp", "accuracy", "lpp: the rows have no column 'lpp'"),
        (lambda rows: rows.assign(all_half=0.7), "all_half", "worst_region", "values other than 0 and 1"),
    ],
    ids=["one class", "no regions", "no column", "a share that is none"],
)  # fmt: skip
def test_what_rows_lack_costs_the_metrics_that_need_it_and_no_others(
    changed: Callable[[pd.DataFrame], pd.DataFrame], lost: str, kept: str, reason: str
) -> None:
    rows = changed(frame())
    table = arm_summary(rows[rows["arm"] != "full"], draws=QUICK)
    assert len(table) == 2
    assert table[lost.split()].isna().all(axis=None)
    assert table[kept.split()].notna().all(axis=None)
    assert table["reason"].str.contains(reason, regex=False).all()
    paired = paired_differences(rows, draws=QUICK)
    assert line(paired, "random@0.30", lost.split()[0])["reason"]
    assert line(paired, "random@0.30", kept.split()[0])["reason"] == ""


def test_arms_with_different_probes_are_not_compared_but_the_rest_is() -> None:
    rows = frame()
    rows = rows[~((rows["arm"] == "random@0.30") & (rows["probe_id"] == "p003"))]
    table = paired_differences(rows, draws=QUICK)
    bad = line(table, "random@0.30", "accuracy")
    assert bad["reason"] == "'random@0.30' has 59 probes and 'full' 60, 59 in common: run both on the same probes"
    assert math.isnan(bad["diff"])
    assert bad["words"] == "not computed"
    assert math.isfinite(bad["value"])
    assert line(table, "target@0.30", "accuracy")["reason"] == ""
    assert len(table.attrs["problems"]) == 1
    rows = frame()
    rows.loc[(rows["arm"] == "random@0.30") & (rows["probe_id"] == "p003"), "label"] = "yes"
    assert "different sets" in line(paired_differences(rows, draws=QUICK), "random@0.30", "hfpr")["reason"]


def test_one_image_has_values_but_no_interval() -> None:
    rows = frame()
    rows = rows[rows["image_id"] == "im000"]
    table = arm_summary(rows, draws=QUICK)
    assert table["accuracy"].notna().all()
    assert table["accuracy_low"].isna().all()
    assert table["reason"].str.contains("an interval needs at least two images").all()
    difference = line(paired_differences(rows, draws=QUICK), "target@0.30", "pos_ecr")
    assert math.isfinite(difference["diff"])
    assert difference["words"] == "not computed"


def test_a_broken_margin_costs_its_arm_the_answers_and_keeps_the_geometry() -> None:
    rows = frame()
    rows.loc[(rows["arm"] == "random@0.30") & (rows["probe_id"] == "p004"), "margin"] = np.nan
    table: Any = arm_summary(rows, draws=QUICK).set_index("arm")
    assert math.isnan(table.loc["random@0.30", "accuracy"])
    assert "1 of 60 margins are not finite" in table.loc["random@0.30", "reason"]
    assert math.isfinite(table.loc["random@0.30", "pos_ecr_low"])
    assert math.isfinite(table.loc["target@0.30", "accuracy"])
    paired = paired_differences(rows, draws=QUICK)
    assert "not finite" in line(paired, "random@0.30", "accuracy")["reason"]
    assert line(paired, "random@0.30", "pos_ecr")["reason"] == ""


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("label", "maybe", "labels must be 'yes' or 'no', found 'maybe'"),
        ("probe_id", "p000", "probe 'p000' has more than one row"),
        ("ecr", "much", "column 'ecr' holds something that is not a number"),
    ],
)
def test_a_malformed_arm_is_named_and_the_others_are_computed(column: str, value: str, words: str) -> None:
    rows = frame()
    rows[column] = rows[column].astype(object)
    rows.loc[(rows["arm"] == "random@0.30") & (rows["probe_id"] == "p004"), column] = value
    table: Any = arm_summary(rows, draws=QUICK).set_index("arm")
    assert words in table.loc["random@0.30", "reason"]
    assert math.isnan(table.loc["random@0.30", "accuracy"])
    assert math.isfinite(table.loc["full", "accuracy"])
    assert words in line(paired_differences(rows, draws=QUICK), "random@0.30", "pos_ecr")["reason"]


# Names as numbers: the same answers for text and for categoricals.


NAMES = ["b", "a", "c", "a", "b"]
SORTED = pd.Series(pd.Categorical(NAMES, categories=["a", "b", "c", "d"]))
UNSORTED = pd.Series(pd.Categorical(NAMES, categories=["c", "b", "a"]))
TEXT = pd.Series(NAMES)


@pytest.mark.parametrize("column", [TEXT, SORTED, UNSORTED], ids=["text", "sorted", "unsorted"])
def test_names_are_numbered_among_those_that_occur_and_looked_up_as_by_mapping(column: pd.Series) -> None:
    index, names = numbered(column)
    assert names.tolist() == ["a", "b", "c"]
    assert names[index].tolist() == NAMES
    table = pd.Series([1.0, 2.0], index=["b", "a"])
    np.testing.assert_array_equal(looked_up(column, table), [1.0, 2.0, np.nan, 2.0, 1.0])
    found = looked_up(column, pd.Series([True, False, True], index=["a", "b", "c"]))
    assert found.dtype == bool
    assert found.tolist() == [False, True, True, True, False]
    by_category = pd.Series(["x", "y", "z"], index=pd.CategoricalIndex(["c", "b", "a"]))
    assert looked_up(column, by_category).tolist() == ["y", "z", "x", "z", "y"]
    unnamed = pd.Series(pd.Categorical(["a", None], categories=["a"]))
    assert not in_name_order(unnamed)
    np.testing.assert_array_equal(looked_up(unnamed, pd.Series([5.0], index=["a"])), [5.0, np.nan])


def test_names_come_back_as_text() -> None:
    assert as_names(SORTED).tolist() == NAMES
    assert as_names(TEXT) is TEXT
    assert in_name_order(SORTED)
    assert not in_name_order(UNSORTED)
