"""The demo end to end on four images, and again without work left."""

import time

from sightline.checks.demo import ARMS, run_demo
from sightline.commands.leaderboard import print_table
from sightline.statistics.metrics import metrics_shown_in


def test_demo_runs_reports_and_resumes(tmp_path, capsys):
    first = run_demo(tmp_path, limit=4, draws=200, cases=4)
    assert list(first.summary["arm"]) == list(ARMS)
    assert len(first.run.frame()) == len(ARMS) * 8
    page = first.report.read_text(encoding="utf-8")
    assert first.report == tmp_path / "report.html"
    assert "hero-image" in page
    gone = first.summary.set_index("arm")["unsupported"].fillna(0).max() > 0
    assert gone == (first.picture is not None and first.picture.is_file())
    written = {file: file.stat().st_mtime_ns for file in first.run.path.rglob("*.parquet")}
    time.sleep(0.01)
    again = run_demo(tmp_path, limit=4, draws=200, cases=4)
    assert {file: file.stat().st_mtime_ns for file in again.run.path.rglob("*.parquet")} == written
    print_table(again.summary, again.run.frame())
    shown = capsys.readouterr().out
    assert all(arm in shown for arm in ARMS)
    assert shown.index("shuffled:0.3") < shown.index("C. Annotation-box oracles") < shown.index("protected:0.3")


def test_the_demo_shows_answers_risk_evidence_and_what_is_unsupported():
    assert [metric.name for metric in metrics_shown_in("demo")] == ["accuracy", "hfpr", "pos_ecr", "unsupported"]
