"""How far two people agree: labels, boxes, and the regions and roles that each drew."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from shapely.geometry import box as polygon
from shapely.ops import unary_union

from sightline.analysis.regions import RoleAgreement, agreement_table, drawn_twice, region_agreement, role_agreement
from sightline.probes.typed_rows import TypedBox, TypedRow
from sightline.statistics.agreement import agreement_rate, box_agreement, kappa_interval
from sightline.statistics.intervals import wilson
from tests.command_line import sightline
from tests.refusals import Refused


def test_kappa_of_two_or_more_categories_and_its_interval() -> None:
    rng = np.random.default_rng(0)
    one = rng.choice(["a", "b", "c"], 150)
    for first, second in (
        (np.repeat(["y", "n"], [30, 20]), np.repeat(["y", "n", "y", "n"], [25, 5, 10, 10])),
        (one, np.where(rng.random(150) < 0.7, one, rng.choice(["a", "b", "c"], 150))),
    ):
        same = float(np.mean(first == second))
        by_chance = float(sum(np.mean(first == each) * np.mean(second == each) for each in np.unique(first)))
        found, rate = kappa_interval(first, second, draws=2000), agreement_rate(first, second)
        assert found.value == pytest.approx((same - by_chance) / (1 - by_chance))
        assert found.low < found.value < found.high
        assert rate.value == same
        assert (rate.low, rate.high) == wilson(round(same * len(first)), len(first))
    assert kappa_interval(["y", "y"], ["y", "y"]).value == 1.0, "where agreement by chance is certain"
    assert kappa_interval(["y", "y"], ["n", "n"]).value == 0.0


def test_unions_are_exact_for_overlapping_boxes() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        first, second = (np.sort(rng.random((n, 2, 2)), axis=1).reshape(n, 4) for n in (4, 3))
        found = box_agreement(first.tolist(), second.tolist())
        one, two = (unary_union([polygon(*b) for b in boxes]) for boxes in (first, second))
        assert found.union_iou == pytest.approx(one.intersection(two).area / one.union(two).area, abs=1e-12)
        assert found.first_covered == pytest.approx(one.intersection(two).area / one.area, abs=1e-12)


def test_matching_is_one_to_one_best_first() -> None:
    wide, narrow = (0.0, 0.0, 0.4, 0.4), (0.0, 0.0, 0.4, 0.2)
    found = box_agreement([wide, narrow], [wide, (0.6, 0.6, 0.7, 0.7)], ["answer_value:a"], ["answer_value: b"])
    assert found.matched_iou == (1.0, 0.0)
    assert (found.same_types, found.all_matched, found.needs_adjudication) == (True, False, True)
    same = box_agreement([wide], [wide], ["context:x"], ["context:y"])
    assert (same.all_matched, same.needs_adjudication) == (True, False)
    nothing = box_agreement([], [wide])
    assert (nothing.union_iou, nothing.first_covered, nothing.matched_iou) == (0.0, 0.0, ())


@pytest.fixture
def labelled(tmp_path: Path) -> tuple[Path, Path]:
    labels = [("p1", "yes", "yes"), ("p2", "yes", "no"), ("p3", "no", "no"), ("p4", "no", "no"), ("p5", "yes", "yes")]
    for number in (0, 1):
        lines = ["probe_id,valid,note", *(f"{row[0]},{row[1 + number]},n{number}" for row in labels)]
        (tmp_path / f"{number}.csv").write_text("\n".join([*lines, f"only{number},yes,x"]) + "\n")
    return tmp_path / "0.csv", tmp_path / "1.csv"


def drawn(folder: Path, first: list[Any], second: list[Any]) -> tuple[Path, Path]:
    """Files of the boxes that each person drew about every question."""
    for name, boxes in (("one", first), ("two", second)):
        rows = [{"id": f"q{i}", "regions": each} for i, each in enumerate(boxes)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "one.jsonl", folder / "two.jsonl"


def test_a_table_of_labels_has_a_rate_and_a_kappa(labelled: tuple[Path, Path], tmp_path: Path) -> None:
    line = agreement_table(*labelled, draws=200).set_index("field").loc["valid"]
    assert line["n"] == 5, "rows of one annotator alone are left out"
    assert line["agreement"] == pytest.approx(0.8)
    assert line["agreement_low"] < 0.8 < line["agreement_high"]
    by_chance = 0.6 * 0.4 + 0.4 * 0.6
    assert line["kappa"] == pytest.approx((0.8 - by_chance) / (1 - by_chance))
    out = tmp_path / "agreement.csv"
    assert "0.800" in sightline("annotate", "agreement", *labelled, "--field", "valid", "--csv", out).output
    assert pd.read_csv(out)["agreement"].tolist() == [0.8]


def test_a_table_of_boxes_matches_them(tmp_path: Path) -> None:
    square, half = [0.0, 0.0, 0.2, 0.2], [0.0, 0.0, 0.1, 0.2]
    (of_boxes,) = agreement_table(*drawn(tmp_path, [[square]] * 2, [[square], [half]])).to_dict("records")
    expected = {"matched_iou": 0.75, "union_iou": 0.75, "first_covered": 0.75, "second_covered": 1.0, "agreement": 1.0}
    assert {name: of_boxes[name] for name in expected} == pytest.approx(expected), "every pair has IoU 0.5 at least"


def test_what_cannot_be_compared_is_said_in_one_line(
    labelled: tuple[Path, Path], tmp_path: Path, refused: Refused
) -> None:
    for text, fields, reason in (
        ("probe_id,valid\np1,yes\n", ["colour"], "field 'colour' is not in both files; they share valid"),
        ("probe_id,valid\nq1,yes\n", [], "have no row in common"),
        ("probe_id,valid\np1,yes\np1,no\n", [], "row 2 decides p1 a second time"),
        ("name,valid\np1,yes\n", [], "row 1 has none of probe_id, sample_id, id"),
    ):
        (tmp_path / "other.csv").write_text(text)
        refused(reason, agreement_table, labelled[0], tmp_path / "other.csv", fields=fields)


@pytest.mark.parametrize("boxes", [[[0.1, 0.1, 0.2]], [[0.1, 0.1, 0.2, {"a": 1}]], [["a", 0, 1, 1]], [5], [None]])
def test_boxes_that_are_none_are_refused_with_their_row(tmp_path: Path, boxes: list[Any], refused: Refused) -> None:
    both = drawn(tmp_path, [[[0, 0, 1, 1]]], [boxes])
    refused(f"'regions' of row q0 has {boxes[0]}", agreement_table, *both, draws=100)


def row(name: str, *boxes: tuple[float, float, float, float, str], status: str = "annotated") -> TypedRow:
    return TypedRow(f"docvqa:{name}", "docvqa", name, boxes=tuple(TypedBox(*box) for box in boxes), status=status)


ANSWER = (0.0, 0.0, 10.0, 10.0, "answer_value:7")
HALF = (0.0, 0.0, 5.0, 10.0, "answer_value:7")
LABEL = (20.0, 0.0, 10.0, 10.0, "field_label:Total")


def test_agreement_is_over_questions_that_both_annotated(refused: Refused) -> None:
    first = [row("a", ANSWER), row("b", ANSWER, status="uncertain"), row("c", ANSWER)]
    second = [row("c", ANSWER), row("b", ANSWER), row("a", ANSWER, status="not_visible"), row("d", ANSWER)]
    assert [pair.first.question_id for pair in drawn_twice(first, second)] == ["c"]
    for compute in (region_agreement, role_agreement):
        refused("no annotated question in common", compute, [])


def test_agreement_of_regions_counts_questions_and_averages_over_them() -> None:
    first = [row("a", ANSWER, LABEL), row("b", ANSWER), row("c", HALF)]
    second = [row("a", ANSWER), row("b", ANSWER), row("c", ANSWER)]
    found = region_agreement(drawn_twice(first, second))
    # The one matched pair of a agrees, and half of the box of c; a: 100 of 200 pixels, b: all, c: 50 of 100.
    expected = {
        "n": 3, "same_count": 2, "same_roles": 2, "all_matched": 2, "matched_iou": (1.0 + 1.0 + 0.5) / 3,
        "union_iou": (0.5 + 1.0 + 0.5) / 3, "first_covered": (0.5 + 1.0 + 1.0) / 3,
        "second_covered": (1.0 + 1.0 + 0.5) / 3,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_agreement_of_roles_is_by_whether_a_question_has_them() -> None:
    first, second = [row("a", ANSWER, LABEL), row("b", ANSWER, HALF)], [row("a", ANSWER), row("b", ANSWER, LABEL)]
    roles = role_agreement(drawn_twice(first, second))
    assert roles["answer_value"] == RoleAgreement(first=2, second=2, both=2)
    assert roles["field_label"] == RoleAgreement(first=1, second=1, both=0)
    assert (roles["answer_value"].f1, roles["field_label"].f1) == (1.0, 0.0)
    assert math.isnan(roles["row_header"].f1)
