"""What a crop cut away is told apart from what pruning took, in numbers and in words."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sightline.rows.usable import unseen_evidence as out_of_sight
from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.metrics import METRICS, point, why_not

VISIBLE = [1.0, 0.5, 0.0, 0.8, 0.0, 1.0]
LABELS = [True, True, True, True, False, False]
COVERED = [0.5, 0.5, 0.0, 0.0, 0.0, 0.25]


def rows(covered: list[float] = COVERED) -> ArmRows:
    return ArmRows.of(LABELS, np.ones(6), ecr=covered, anchor_ecr=np.asarray(covered) / 2, visible=VISIBLE)


def value(name: str, of: ArmRows) -> float:
    assert why_not(METRICS[name], of) == ""
    return point(METRICS[name], of)


def test_full_is_exactly_one_relative_to_what_is_visible() -> None:
    full = rows(VISIBLE)
    assert value("pos_ecr", full) == value("visible_evidence", full) == pytest.approx(2.3 / 4)
    assert value("relative_pos_ecr", full) == 1.0
    assert value("relative_neg_src", full) == 1.0


def test_evidence_that_is_nowhere_visible_counts_in_no_relative_coverage() -> None:
    pruned = rows()
    assert value("relative_pos_ecr", pruned) == pytest.approx((0.5 + 1.0 + 0.0) / 3)
    assert value("relative_anchor_ecr", pruned) == pytest.approx((0.25 + 0.5 + 0.0) / 3)
    assert value("relative_neg_src", pruned) == 0.25


def test_an_unsupported_answer_is_blamed_on_pruning_only_where_there_was_something_to_prune() -> None:
    assert value("unsupported", rows()) == 2 / 4
    assert value("unsupported_by_pruning", rows()) == 1 / 3
    assert value("unsupported", rows(VISIBLE)) == 1 / 4
    assert value("unsupported_by_pruning", rows(VISIBLE)) == 0.0


def test_rows_without_the_column_have_no_relative_coverage_and_say_so() -> None:
    old = ArmRows.of(LABELS, np.ones(6), ecr=COVERED)
    for name in ("relative_pos_ecr", "unsupported_by_pruning", "visible_evidence"):
        assert why_not(METRICS[name], old) == "the rows have no column 'visible'"
    nowhere = ArmRows.of([True], [1.0], ecr=[0.0], visible=[0.0])
    assert why_not(METRICS["relative_pos_ecr"], nowhere) == "there are no positives with visible evidence"


def frame(visible: list[float | None]) -> pd.DataFrame:
    """Two arms over positives that are so visible, and a negative that is not."""
    probes = [{"probe_id": f"p{i}", "label": "yes", "visible": v} for i, v in enumerate(visible)]
    probes.append({"probe_id": "n", "label": "no", "visible": 0.0})
    return pd.DataFrame([{**probe, "arm": arm} for arm in ("full", "grid:0.3") for probe in probes])


@pytest.mark.parametrize(
    ("visible", "words"),
    [
        ([1.0, 1.0, None], ""),
        ([0.0, 0.5, 1.0, 1.0], "1 of 4 positives (25%) lie wholly outside what the model sees, 1 more in part: "),
        ([0.0, 0.0, 1.0], "2 of 3 positives (67%) lie wholly outside what the model sees: "),
        ([0.9, 1.0, None], "1 of 2 positives (50%) lie in part outside what the model sees: "),
    ],
)
def test_positives_outside_the_crop_are_counted_once_whatever_the_arms(visible: list[float | None], words: str) -> None:
    found = out_of_sight(frame(visible))
    assert found.startswith(words)
    assert bool(found) == bool(words)


def test_rows_that_do_not_know_what_is_visible_warn_of_nothing() -> None:
    assert out_of_sight(frame([0.0]).drop(columns="visible")) == ""
