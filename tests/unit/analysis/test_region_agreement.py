"""Regions that two people drew, compared question by question."""

from __future__ import annotations

import math

import pytest

from sightline.analysis.regions import RoleAgreement, drawn_twice, region_agreement, role_agreement
from sightline.errors import SightlineError
from sightline.probes.typed_rows import TypedBox, TypedRow


def row(name: str, *boxes: tuple[float, float, float, float, str], status: str = "annotated") -> TypedRow:
    return TypedRow(f"docvqa:{name}", "docvqa", name, boxes=tuple(TypedBox(*box) for box in boxes), status=status)


ANSWER = (0.0, 0.0, 10.0, 10.0, "answer_value:7")
HALF = (0.0, 0.0, 5.0, 10.0, "answer_value:7")
LABEL = (20.0, 0.0, 10.0, 10.0, "field_label:Total")


def test_only_questions_that_both_annotated_are_compared() -> None:
    first = [row("a", ANSWER), row("b", ANSWER, status="uncertain"), row("c", ANSWER)]
    second = [row("c", ANSWER), row("b", ANSWER), row("a", ANSWER, status="not_visible"), row("d", ANSWER)]
    assert [pair.first.question_id for pair in drawn_twice(first, second)] == ["c"]
    with pytest.raises(SightlineError, match="no annotated question in common"):
        region_agreement([])
    with pytest.raises(SightlineError, match="no annotated question in common"):
        role_agreement([])


def test_agreement_counts_questions_and_averages_over_them() -> None:
    first = [row("a", ANSWER, LABEL), row("b", ANSWER), row("c", HALF)]
    second = [row("a", ANSWER), row("b", ANSWER), row("c", ANSWER)]
    found = region_agreement(drawn_twice(first, second))
    assert {name: found[name] for name in ("n", "same_count", "same_roles", "all_matched")} == {
        "n": 3, "same_count": 2, "same_roles": 2, "all_matched": 2,
    }  # fmt: skip
    # a: the one matched pair agrees; b agrees; c: half of the box.
    assert found["matched_iou"] == pytest.approx((1.0 + 1.0 + 0.5) / 3)
    # a: 100 of 200 pixels; b: all; c: 50 of 100.
    assert found["union_iou"] == pytest.approx((0.5 + 1.0 + 0.5) / 3)
    assert found["first_covered"] == pytest.approx((0.5 + 1.0 + 1.0) / 3)
    assert found["second_covered"] == pytest.approx((1.0 + 1.0 + 0.5) / 3)


def test_roles_are_compared_by_whether_a_question_has_them() -> None:
    first = [row("a", ANSWER, LABEL), row("b", ANSWER, HALF)]
    second = [row("a", ANSWER), row("b", ANSWER, LABEL)]
    found = role_agreement(drawn_twice(first, second))
    assert found["answer_value"] == RoleAgreement(first=2, second=2, both=2)
    assert found["field_label"] == RoleAgreement(first=1, second=1, both=0)
    assert (found["answer_value"].f1, found["field_label"].f1) == (1.0, 0.0)
    assert math.isnan(found["row_header"].f1)
