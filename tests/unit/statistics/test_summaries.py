"""Tables from rows."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from sightline.statistics.arm_rows import ArmRows, as_names, in_name_order, looked_up, numbered
from sightline.statistics.bootstrap import difference_interval, metric_interval
from sightline.statistics.correct_positives import correct_positive_provenance
from sightline.statistics.intervals import wilson
from sightline.statistics.metrics import METRICS
from sightline.statistics.summaries import (
    LEAST_IMAGES,
    NOTHING,
    arm_points,
    arm_rows,
    arm_summary,
    nothing_to_read,
    paired_differences,
)

ARMS = {"full": 0.0, "target@0.30": 0.2, "random@0.30": -0.8}
QUICK = 500
GEOMETRY = ("ecr", "anchor_ecr", "center_recall", "patch_recall", "lpp", "geo_f1", "worst_region")


def frame(images: int = 30) -> pd.DataFrame:
    """A positive and a negative probe per image for three arms, with every column of the row schema."""
    rng = np.random.default_rng(0)
    parts, n = [], 2 * images
    for arm, shift in ARMS.items():
        labels = np.tile(["yes", "no"], images)
        margin = np.where(labels == "yes", 1.0 + shift, -1.0) + rng.normal(size=n)
        ecr = np.ones(n) if arm == "full" else rng.random(n)
        predicted = np.where(margin >= 0, "yes", "no")
        columns = {
            "arm": arm, "probe_id": [f"p{i:03d}" for i in range(n)], "image_id": [f"im{i // 2:03d}" for i in range(n)],
            "label": labels, "margin": margin, "predicted": predicted, "correct": predicted == labels,
            **dict.fromkeys(GEOMETRY, ecr), "visible": 1.0, "legibility": 20.0 * ecr, "all_half": ecr >= 0.5,
            "n_tokens": 100, "k_tokens": 30, "keep": 1.0 if arm == "full" else 0.3, "has_regions": True,
        }  # fmt: skip
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)


def line(table: pd.DataFrame, arm: str, metric: str) -> pd.Series:
    return table[(table["arm"] == arm) & (table["metric"] == metric)].iloc[0]


def changed(rows: pd.DataFrame, probe: str, column: str, value: str | float) -> pd.DataFrame:
    """With another value of one of Random's probes."""
    rows[column] = rows[column].astype(object) if isinstance(value, str) else rows[column]
    rows.loc[(rows["arm"] == "random@0.30") & (rows["probe_id"] == probe), column] = value
    return rows


def test_summary_has_every_metric_with_its_interval() -> None:
    rows = frame()
    table = arm_summary(rows, draws=QUICK)
    assert list(table["arm"]) == list(ARMS)
    assert (table[["n_images", "n_positive"]] == 30).all(axis=None)
    assert {name for name, metric in METRICS.items() if metric.answers == "words"} == set(METRICS) - set(table)
    for name in set(METRICS) & set(table):
        if not METRICS[name].with_interval:
            continue
        certain = table["certain"].str.split(", ").map(lambda names, name=name: name in names)
        assert table.loc[certain, f"{name}_low"].isna().all()
        assert set(table.loc[certain, "arm"]) <= {"full"}, name
        # A mean without limits that is the same in all images has no interval, and says why.
        others = table[~certain & (table[f"{name}_low"].notna() | (name != "legibility"))]
        assert (others[f"{name}_low"] <= others[name] + 1e-12).all(), name
        assert (others[name] <= others[f"{name}_high"] + 1e-12).all() or name == "ece", name
    (problem,) = table.attrs["problems"]
    assert problem.startswith("arm 'full': legibility: about 0 of 30 images differ")
    expected = metric_interval(arm_rows(rows[rows["arm"] == "target@0.30"]), METRICS["auroc"], draws=QUICK)
    target = table[table["arm"] == "target@0.30"].iloc[0]
    found = [target[column] for column in ("auroc", "auroc_low", "auroc_high")]
    assert found == pytest.approx([expected.value, expected.low, expected.high], abs=1e-12)


def test_differences_are_paired_in_words_and_noninferior_only_within_a_named_margin() -> None:
    rows = frame()
    table = paired_differences(rows, draws=QUICK, noninferiority={"accuracy": 0.5, "hfpr": 0.5})
    assert set(table["arm"]) == {"target@0.30", "random@0.30"}
    found, coverage = (line(table, "random@0.30", metric) for metric in ("accuracy", "pos_ecr"))
    full, random = (arm_rows(rows[rows["arm"] == name]) for name in ("full", "random@0.30"))
    expected = difference_interval(random, full, METRICS["accuracy"], draws=QUICK)
    assert (found["diff"], found["low"], found["high"]) == pytest.approx((expected.value, expected.low, expected.high))
    assert found["words"].startswith("not distinguishable from Full: -0.")
    mine, theirs = (np.asarray(arm.predicted == arm.labels) for arm in (random, full))
    assert (found["mcnemar_b"], found["mcnemar_c"]) == ((mine & ~theirs).sum(), (~mine & theirs).sum())
    assert 0.0 < found["mcnemar_p"] <= 1.0
    assert found["win"] + found["loss"] + found["tie"] == 30
    assert coverage["words"].startswith("lower than Full by 0.")
    assert (coverage["win"], coverage["loss"], coverage["tie"]) == (0, 30, 0)
    assert pd.isna(line(table, "random@0.30", "auroc")["win"])
    assert pd.isna(coverage["mcnemar_b"])
    assert line(table, "target@0.30", "accuracy")["noninferiority"].startswith("not inferior to Full by more than 0.5")
    assert line(table, "target@0.30", "auroc")["noninferiority"] == ""


def test_neither_another_arm_nor_the_order_of_rows_moves_an_interval() -> None:
    rows = frame()
    some = rows[rows["arm"] != "random@0.30"].sample(frac=1.0, random_state=3)
    for compute in (arm_summary, paired_differences):
        everything = compute(rows, draws=QUICK)
        alone = compute(some, draws=QUICK)
        both = everything[everything["arm"].isin(alone["arm"])].set_index("arm").sort_index(kind="stable")
        alone = alone.set_index("arm").sort_index(kind="stable")
        pd.testing.assert_frame_equal(both, alone, rtol=0, atol=1e-12)


def test_rows_that_name_by_category_have_the_same_differences() -> None:
    rows = frame()
    expected = paired_differences(rows, metrics=["accuracy"], draws=QUICK)
    for column in ("arm", "label", "image_id", "probe_id", "predicted"):
        rows[column] = rows[column].astype("category")
    found = paired_differences(rows[rows["arm"] != "random@0.30"], metrics=["accuracy"], draws=QUICK)
    pd.testing.assert_frame_equal(found, expected.iloc[:1])


def test_thresholds_override_the_answers_of_the_rows() -> None:
    rows = frame()

    def yes_rates(**options: Any) -> pd.Series:
        return arm_summary(rows, metrics=["yes_rate"], draws=QUICK, **options).set_index("arm")["yes_rate"]

    assert (yes_rates(threshold=99.0) == 0.0).all()
    one = yes_rates(threshold={"full": 99.0})
    assert (one["full"], one["random@0.30"]) == (0.0, yes_rates()["random@0.30"])


@pytest.mark.parametrize(
    ("change", "lost", "kept", "reason"),
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
    change: Callable[[pd.DataFrame], pd.DataFrame], lost: str, kept: str, reason: str
) -> None:
    rows = change(frame())
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
    table = paired_differences(rows[~((rows["arm"] == "random@0.30") & (rows["probe_id"] == "p003"))], draws=QUICK)
    bad = line(table, "random@0.30", "accuracy")
    assert bad["reason"] == "'random@0.30' has 59 probes and 'full' 60, 59 in common: run both on the same probes"
    assert math.isnan(bad["diff"])
    assert bad["words"] == "not computed"
    assert math.isfinite(bad["value"])
    assert line(table, "target@0.30", "accuracy")["reason"] == ""
    assert len(table.attrs["problems"]) == 1
    table = paired_differences(changed(rows, "p003", "label", "yes"), draws=QUICK)
    assert "different sets" in line(table, "random@0.30", "hfpr")["reason"]


def test_one_image_has_values_but_no_interval() -> None:
    rows = frame(images=1)
    table = arm_summary(rows, draws=QUICK)
    assert table["accuracy"].notna().all()
    assert table["accuracy_low"].isna().all()
    assert table["reason"].str.contains("an interval needs at least two images").all()
    difference = line(paired_differences(rows, draws=QUICK), "target@0.30", "pos_ecr")
    assert math.isfinite(difference["diff"])
    assert difference["words"] == "not computed"


@pytest.mark.parametrize(
    ("column", "value", "words", "kept"),
    [
        # A broken margin costs the answers alone.
        ("margin", math.nan, "1 of 60 margins are not finite", True),
        ("label", "maybe", "labels must be 'yes' or 'no', found 'maybe'", False),
        ("probe_id", "p000", "probe 'p000' has more than one row", False),
        ("ecr", "much", "column 'ecr' holds something that is not a number", False),
    ],
)
def test_a_malformed_arm_is_named_and_the_others_are_computed(
    column: str, value: str | float, words: str, kept: bool
) -> None:
    rows = changed(frame(), "p004", column, value)
    table: Any = arm_summary(rows, draws=QUICK).set_index("arm")
    assert words in table.loc["random@0.30", "reason"]
    assert math.isnan(table.loc["random@0.30", "accuracy"])
    assert math.isfinite(table.loc["random@0.30", "pos_ecr_low"]) == kept
    assert np.isfinite(table.loc[["full", "target@0.30"], "accuracy"].to_numpy(float)).all()
    paired = paired_differences(rows, draws=QUICK)
    assert words.removeprefix("1 of 60 ") in line(paired, "random@0.30", "accuracy")["reason"]
    assert (line(paired, "random@0.30", "pos_ecr")["reason"] == "") == kept


# Names as numbers: the same answers for text and for categoricals.


NAMES = ["b", "a", "c", "a", "b"]


@pytest.mark.parametrize("categories", ["", "abcd", "cba"])
def test_names_are_numbered_among_those_that_occur_and_looked_up_as_by_mapping(categories: str) -> None:
    column = pd.Series(pd.Categorical(NAMES, categories=list(categories)) if categories else NAMES)
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
    assert as_names(column).tolist() == NAMES
    assert in_name_order(column) == (categories == "abcd")
    unnamed = pd.Series(pd.Categorical(["a", None], categories=["a"]))
    assert not in_name_order(unnamed)
    np.testing.assert_array_equal(looked_up(unnamed, pd.Series([5.0], index=["a"])), [5.0, np.nan])


# What can be read from right answers: whether a model reads at all, and on what evidence.


def answered(labels: list[str], correct: list[bool], arm: str = "full", **columns: Any) -> pd.DataFrame:
    """Probes on images of their own, answered right or wrong."""
    ids = [f"p{place:03d}" for place in range(len(labels))]
    selector = arm.partition(":")[0]
    made = {"arm": arm, "selector": selector, "probe_id": ids, "image_id": ids, "label": labels, "correct": correct}
    return pd.DataFrame(made | columns)


def says(labels: list[str], answers: list[str], arm: str = "full") -> pd.DataFrame:
    return answered(labels, [label == answer for label, answer in zip(labels, answers, strict=True)], arm)


def scored(wrong: int, right: int) -> pd.DataFrame:
    return answered(["open"] * 40, [False] * wrong + [True] * right, score=[0.0] * wrong + [1.0] * right)


BALANCED, MIXED = ["yes", "no"] * 30, ["yes"] * 20 + ["no"] * 80
SILENT = f"the model answers next to nothing right: {NOTHING}; Score of Full is 0.0"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (says(BALANCED, ["no"] * 60), f"the model answers at chance: {NOTHING}; Balanced accuracy of Full is 0.500 ("),
        # 60 % right: the interval holds one half.
        (says(BALANCED, [*BALANCED[:36], *BALANCED[1:25]]), "the model answers at chance"),
        (says(BALANCED, [*BALANCED[:50], *["no"] * 10]), ""),
        (says(BALANCED, ["no", "yes"] * 30), "the model answers below chance: "),
        # Without any margin: always no is right in 80 of 100, and a model that says yes too often still reads (52 %
        # right, but all of the positives and 40 % of the negatives).
        (says(MIXED, ["no"] * 100), "the model answers at chance"),
        (says(MIXED, ["yes"] * 68 + ["no"] * 32), ""),
        # One label alone is compared with a coin.
        (says(["yes"] * 40, ["yes", "no"] * 20), f"the model answers at chance: {NOTHING}; Accuracy of Full is 0.500"),
        (says(["yes"] * 40, ["yes"] * 36 + ["no"] * 4), ""),
        (says(["yes"] * 40, ["yes"] * 40), "all questions have one label and all answers of Full are alike"),
        # Open questions need a score surely above next to nothing.
        (scored(40, 0), SILENT),
        (scored(37, 3), SILENT),
        (scored(28, 12), ""),
        # Answers of other kinds have no chance of one half.
        (answered(["14.50"] * 40, [True, False] * 20), ""),
        (answered(["14.50"] * 40, [False] * 40), "the model answers next to nothing right"),
    ],
)
def test_what_can_be_read_from_answers(given: pd.DataFrame, words: str) -> None:
    found = nothing_to_read(given, draws=QUICK)
    assert found.startswith(words)
    assert bool(found) == bool(words)
    assert found.endswith(", not surely above 0.05") == ("next to nothing" in words)


def test_too_few_images_are_said() -> None:
    few = says(BALANCED[:8], BALANCED[:8])
    assert nothing_to_read(few, draws=QUICK) == f"8 images are fewer than {LEAST_IMAGES}: {NOTHING}"
    assert "at chance" in nothing_to_read(few, least_images=8, draws=QUICK), "8 right of 8 may be luck"
    crowded = says(BALANCED, BALANCED).assign(image_id=[f"i{place % 4}" for place in range(60)])
    assert "4 images are fewer" in nothing_to_read(crowded, draws=QUICK), "60 probes of 4 images are 4 images"


def test_without_full_the_arm_that_answers_best_speaks_for_the_model() -> None:
    chance, reads = says(BALANCED, ["no"] * 60, "random:0.3"), says(BALANCED, BALANCED, "target:0.3")
    assert nothing_to_read(pd.concat([chance, reads]), draws=QUICK) == ""
    found = nothing_to_read(pd.concat([chance, says(BALANCED, ["yes"] * 60, "grid:0.3")]), draws=QUICK)
    assert "Balanced accuracy of random:0.3, the best arm of a run without Full, is 0.500 (" in found
    assert "at chance" in nothing_to_read(pd.concat([reads, chance.assign(arm="full", selector="full")]), draws=QUICK)


def test_balanced_accuracy_is_the_mean_over_both_labels() -> None:
    labels = ["yes"] * 10 + ["no"] * 30
    found = arm_points(says(labels, ["yes"] * 9 + ["no"] * 31), ["balanced_accuracy", "accuracy"])
    assert found == pytest.approx({"balanced_accuracy": (0.9 + 1.0) / 2, "accuracy": 39 / 40})
    assert np.isnan(arm_points(says(["yes"] * 4, ["yes"] * 4), ["balanced_accuracy"])["balanced_accuracy"])


def test_only_correct_positives_with_regions_count() -> None:
    rows = ArmRows.of(
        [True, True, True, True, True, False],
        [1.0, 1.0, 1.0, -1.0, 1.0, 1.0],
        ecr=[0.0, 1e-13, 0.5, 0.0, 0.0, 0.0],
        has_regions=[True, True, True, True, False, True],
    )
    found = correct_positive_provenance(rows, draws=500)
    weakly = found.weakly_supported
    assert (found.positives, found.correct, found.accuracy) == (4, 3, 0.75)
    assert (weakly.count, found.unsupported.count) == (2, 2)  # 0.5 is not low; 1e-13 is zero
    assert (weakly.rate, weakly.wilson) == (pytest.approx(2 / 3), wilson(2, 3))
    assert found.mean_ecr == pytest.approx(0.5 / 3)
    assert math.isnan(found.mean_anchor_ecr)
    assert weakly.cluster[0] <= 2 / 3 <= weakly.cluster[1]
    none = correct_positive_provenance(ArmRows.of([True, True], [-1.0, -1.0], ecr=[0.5, 0.5]))
    share = none.weakly_supported
    assert none.correct == 0
    assert np.isnan([share.rate, *share.wilson, *share.cluster]).all(), "no correct positive is NaN, not a crash"


def test_images_widen_the_interval_of_a_share_that_their_probes_have_in_common() -> None:
    covered = np.repeat(np.random.default_rng(0).random(40) < 0.5, 5).astype(float)
    alike = ArmRows.of(np.ones(200), np.ones(200), np.repeat(np.arange(40), 5), ecr=covered)
    share = correct_positive_provenance(alike, draws=2000).weakly_supported
    assert share.cluster[1] - share.cluster[0] > 1.6 * (share.wilson[1] - share.wilson[0])


def test_a_share_has_the_interval_that_the_summary_of_its_arm_gives_it() -> None:
    given = answered(["yes"] * 30, [True] * 30, "a", ecr=np.where(np.arange(30) < 6, 0.2, 1.0))
    found = correct_positive_provenance(arm_rows(given), draws=300)
    line = arm_summary(given, draws=300).iloc[0]
    for name, share in (("weakly_supported", found.weakly_supported), ("unsupported", found.unsupported)):
        assert (line[f"{name}_low"], line[f"{name}_high"]) == share.cluster
    assert (found.weakly_supported.kind, found.unsupported.kind) == ("unseen", "unseen")
    assert found.unsupported.cluster == pytest.approx((0.0, 1 - 0.025 ** (1 / 30)), abs=1e-4)
    exact = binomtest(6, 30).proportion_ci(method="exact")
    assert found.weakly_supported.cluster == pytest.approx((exact.low, exact.high), abs=0.005)
    assert {"unsupported", "weakly_supported"} <= set(line["few_differ"].split(", "))
