"""A metric is one registered object: it appears wherever it says, under its one name, without a list being edited."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sightline.commands.run import summary
from sightline.gate.decisions import run_gate
from sightline.report.columns import metric_columns
from sightline.report.summary import main_table, summarise
from sightline.rows.run import load_run
from sightline.rows.source import read_source
from sightline.statistics.arm_rows import ArmRows, FloatArray
from sightline.statistics.metrics import METRICS, Metric, MetricRegistry, metric, metrics_shown_in
from sightline.statistics.summaries import arm_points, arm_rows, arm_summary
from tests.unit.report.fake_run import make_run


@pytest.fixture
def prompt_length() -> Iterator[Metric]:
    """A metric over a column that no other metric reads."""

    @metric(
        "prompt_length",
        "Prompt",
        "mean tokens of the pruned prompt",
        better="lower",
        needs=("sequence_pruned",),
        shown_in=("main", "terminal"),
        aliases=("tokens",),
        limits=(0.0, 900.0),
    )
    def prompt_length(rows: ArmRows) -> FloatArray:
        return rows.columns["sequence_pruned"]

    yield prompt_length
    del METRICS._entries["prompt_length"]


def test_a_new_metric_stands_in_the_main_table_the_terminal_the_csv_and_the_gate(
    prompt_length: Metric, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", images=4, arms=("full", "target:0.3"))
    source = read_source([run])
    table = main_table(summarise(source, draws=20))
    assert [column.title for column in table.columns][-1] == "Prompt"
    assert "prompt_length,prompt_length_low,prompt_length_high" in table.csv().splitlines()[0]
    lengths = load_run(run).frame().groupby("arm")["sequence_pruned"].mean()
    assert summary(load_run(run).frame()).set_index("arm")["Prompt"].to_dict() == pytest.approx(lengths.to_dict())
    (outcome,), _ = run_gate(run, ["tokens(target:0.3) <= 1000"], least_n=1, draws=20)
    assert outcome.passed
    assert outcome.value == pytest.approx(lengths["target:0.3"])


def test_a_boolean_column_that_a_scorer_added_is_read_by_name() -> None:
    frame = pd.DataFrame(
        {
            "arm": "a", "probe_id": ["p", "q"], "image_id": ["1", "2"], "label": ["yes", "no"], "correct": [True, True],
            "refused": [True, False],
        }
    )  # fmt: skip

    def refused(rows: ArmRows) -> FloatArray:
        return rows.columns["refused"]

    METRICS.add("refusals", Metric("refusals", "Refusals", "share", "lower", "all probes", ("refused",), refused))
    try:
        assert arm_points(frame, ["refusals", "accuracy"]) == {"refusals": 0.5, "accuracy": 1.0}
    finally:
        del METRICS._entries["refusals"]


def test_a_metric_of_another_package_comes_in_through_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decorated and named in an entry point too, as a package would do it: that is one metric, not two."""
    (tmp_path / "outside_metrics.py").write_text(
        textwrap.dedent(
            """
            from sightline.statistics.metrics import METRICS, metric

            @metric("outside", "Outside", "always one", better="neither", needs=("keep",))
            def outside(rows):
                return rows.columns["keep"] * 0 + 1
            """
        )
    )
    package = tmp_path / "outside_metrics-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-metrics\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[sightline.metrics]\noutside = outside_metrics:outside\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    fresh = MetricRegistry("metric", group="sightline.metrics")
    monkeypatch.setattr(fresh, "_entries", dict(METRICS._entries))
    monkeypatch.setattr("sightline.statistics.metrics.METRICS", fresh)
    assert "outside" in fresh.names()
    assert fresh.get("outside").label == "Outside"
    assert [known.name for known in fresh.values() if "main" in known.shown_in][-1] == "outside"


def test_every_table_has_the_metrics_it_had() -> None:
    shown = {
        group: [metric.name for metric in metrics_shown_in(group)] for group in ("main", "calibration", "geometry")
    }
    assert shown["main"] == [
        "keep", "score", "accuracy", "hfpr", "exact", "auroc", "pos_ecr", "relative_pos_ecr", "anchor_ecr", "neg_src",
        "unsupported", "unsupported_by_pruning",
    ]  # fmt: skip
    assert shown["calibration"] == ["yes_rate", "positive_accuracy", "negative_accuracy", "ece", "brier", "nll"]
    assert shown["geometry"] == [
        "visible_evidence", "pos_ecr", "relative_pos_ecr", "anchor_ecr", "relative_anchor_ecr", "relative_neg_src",
        "pn_average", "anchor_pn_average", "lpp", "geo_f1", "center_recall", "patch_recall", "worst_region", "all_half",
    ]  # fmt: skip
    assert [metric.name for metric in metrics_shown_in("differences")] == [
        "score", "accuracy", "positive_accuracy", "hfpr", "exact", "auroc", "pos_ecr", "anchor_ecr", "neg_src",
        "weakly_supported", "unsupported",
    ]  # fmt: skip
    assert [column.key for column in metric_columns("main") if not column.interval] == ["keep"]


def test_names_and_labels_are_used_once() -> None:
    words = [word for known in METRICS.values() for word in (known.name, known.label)]
    assert len(set(METRICS.names())) == len(METRICS.names())
    assert len({known.label for known in METRICS.values()}) * 2 == len(words)


def test_answers_of_any_kind_are_positives_answered_right_or_not() -> None:
    frame = pd.DataFrame(
        {
            "arm": "a", "probe_id": list("pqr"), "image_id": list("123"), "label": ["14.50", "closed", "exit"],
            "predicted": ["14.50", "close", "exit"], "correct": [True, False, True], "ecr": [1.0, 0.5, 0.0],
        }
    )  # fmt: skip
    rows = arm_rows(frame)
    assert rows.labels.all()
    line = arm_summary(frame, draws=50).iloc[0]
    assert line["accuracy"] == pytest.approx(2 / 3)
    assert line["unsupported"] == 0.5
    assert line["pos_ecr"] == 0.5
    assert np.isnan([line["hfpr"], line["auroc"], line["yes_rate"]]).all()
    about = "yes_rate, positive_accuracy, negative_accuracy, balanced_accuracy, hfpr"
    assert f"{about}: the answers are not yes or no" in line["reason"]
    assert "the rows have no margin" in line["reason"]
