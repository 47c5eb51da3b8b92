"""The demonstration, of yes-no and of open questions."""

import json
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sightline.checks import demo
from sightline.checks.demo import asset
from sightline.commands.audit import print_table
from sightline.rows.run import load_run
from sightline.statistics.metrics import metrics_shown_in
from tests.command_line import sightline
from tests.refusals import Refused
from tests.runs.open_questions import make_open_run

# The demo end to end on four images, and again without work left.


def test_demo_runs_reports_and_resumes(tmp_path, capsys):
    first = demo.run_demo(tmp_path, limit=4, draws=200, cases=4)
    assert list(first.summary["arm"]) == list(demo.ARMS)
    assert [metric.name for metric in metrics_shown_in("demo")] == ["accuracy", "hfpr", "pos_ecr", "unsupported"]
    assert demo.METRICS == ("score", "pos_ecr", "worst_region", "unsupported"), "of answers in words"
    assert len(first.run.frame()) == len(demo.ARMS) * 8
    page = first.report.read_text(encoding="utf-8")
    assert first.report == tmp_path / "report.html"
    assert "hero-image" in page
    gone = first.summary.set_index("arm")["unsupported"].fillna(0).max() > 0
    assert gone == (first.picture is not None and first.picture.is_file())
    written = {file: file.stat().st_mtime_ns for file in first.run.path.rglob("*.parquet")}
    time.sleep(0.01)
    again = demo.run_demo(tmp_path, limit=4, draws=200, cases=4)
    assert {file: file.stat().st_mtime_ns for file in again.run.path.rglob("*.parquet")} == written
    print_table(again.summary, again.run.frame())
    shown = capsys.readouterr().out
    assert all(arm in shown for arm in demo.ARMS)
    assert shown.index("shuffled:0.3") < shown.index("Annotation-box oracles") < shown.index("protected:0.3")


def test_the_demo_takes_few_pages_unless_asked_and_ends_with_the_viewer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    asked: list[int | None] = []
    run = load_run(make_open_run(tmp_path / "run", images=2))

    def done(out: Path, *, limit: int | None) -> demo.Demo:
        asked.append(limit)
        return demo.Demo(run, pd.DataFrame({"arm": run.arms}), out / "report.html", None)

    monkeypatch.setattr(demo, "run_demo", done)
    monkeypatch.setattr(demo, "run_open_demo", lambda out, *, limit: asked.append(limit))
    monkeypatch.setattr("sightline.auditing.audit.audit", lambda config: config)
    words = ["demo", "--out", tmp_path]
    for more, limit, folder in (
        ([], demo.IMAGES, "run"),
        (["--limit", "7"], 7, "run-7-images"),
        (["--all"], None, "run-all-images"),
    ):
        assert f"sightline view {run.path}" in sightline(*words, *more).output
        assert asked == [limit, limit]
        asked.clear()
        config: Any = demo.audit_pages(tmp_path / "run", ["full"], limit, probes=tmp_path / "p", images=tmp_path)
        assert (config.out.name, config.limit) == (folder, limit)
    refused("exclude each other", sightline, *words, "--all", "--limit", "7")


# The demo's open questions: audited, reported, and two answers chosen for a picture by rule.


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Assets with open questions about the first shipped scenes."""
    scenes = tmp_path / "assets" / "scenes" / "confirmation"
    scenes.mkdir(parents=True)
    (scenes / "open_images").symlink_to(asset("scenes", "confirmation", "images"))
    question = {
        "question": 'What is the text right of "Credit"?', "label": "open", "target_text": "Credit",
        "source_text": "46.33", "regions": [[0.7254, 0.7723, 0.8147, 0.7969], [0.1, 0.1, 0.3, 0.15]],
        "answers": ["46.33"], "roles": ["answer_value", "field_label"], "task": "scenes",
    }  # fmt: skip
    images = [f"confirmation-000{i}" for i in range(3)]
    questions = [
        {"id": f"open-{i}", "image": f"{name}.jpg", "image_id": name, **question} for i, name in enumerate(images)
    ]
    lines = [json.dumps(line) for line in ({"sightline_probes": 1}, *questions)]
    (scenes / "open_probes.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def found(*parts: str) -> Path:
        return asset(*parts) if parts[0] == "reader" else tmp_path.joinpath("assets", *parts)

    monkeypatch.setattr(demo, "asset", found)
    return tmp_path


def test_the_demo_audits_open_questions_and_reports_them_if_there_are_any(
    shipped: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = demo.run_open_demo(shipped / "out", limit=3, draws=50, cases=2)
    assert done is not None
    assert list(done.summary["arm"]) == list(demo.OPEN_ARMS)
    assert len(done.run.frame()) == 3 * len(demo.OPEN_ARMS)
    page = done.report.read_text(encoding="utf-8")
    assert "Answers side by side" in page
    assert "cannot be made" not in page
    oracle = done.run.frame().set_index("arm").loc["anti_evidence:0.3"]
    assert (oracle["ecr"] == 0).all(), "the oracle sees the regions that it avoids"
    for picture in (done.lost, done.survived):
        assert picture is None or picture.is_file()
    print_table(done.summary, done.run.frame())
    shown = capsys.readouterr().out
    assert "Worst" in shown  # a heading breaks between its words
    assert "region" in shown
    assert "PosECR" not in shown
    assert "share of right answers with no evidence" in " ".join(shown.split())
    monkeypatch.setattr(demo, "asset", lambda *parts: shipped)
    assert demo.run_open_demo(shipped / "none") is None, "without shipped open questions there is nothing to show"
    assert not (shipped / "none").exists()


def test_pictured_answers_have_no_cell_of_their_answer(tmp_path: Path) -> None:
    run = load_run(make_open_run(tmp_path / "run", images=12))
    rows = run.frame().assign(left=demo.coverage_of_answers(run))
    right = rows[(rows["arm"] == "full") & rows["correct"]].set_index("probe_id")["answer_loss"]
    gone = rows[(rows["left"] == 0) & rows["probe_id"].isin(right.index) & (rows["regime"] != "oracle")]
    lost, survived = demo.answers_without_evidence(run)
    rise = gone["answer_loss"] - gone["probe_id"].map(right)
    assert lost is not None
    assert survived is not None
    assert lost.name == rise[~gone["correct"]].idxmax()
    assert survived.name == gone.loc[gone["correct"], "answer_loss"].idxmin()
    assert not lost["correct"]
    assert survived["correct"]


def test_a_run_that_lost_nothing_has_no_picture(tmp_path: Path) -> None:
    run = load_run(make_open_run(tmp_path / "whole", images=2, arms=("full",)))
    assert demo.answers_without_evidence(run) == (None, None)
    (tmp_path / "old.png").write_bytes(b"of another run")
    assert demo.save_pair(run, None, tmp_path, tmp_path / "old.png") is None
    assert not (tmp_path / "old.png").exists()
