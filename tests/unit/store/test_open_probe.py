"""One open question of a run: accepted answers, roles and what every arm said."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sightline.cli import app
from sightline.rows import Run, load_run
from sightline.rows.picture import ArmPicture, quoted
from tests.unit.report.fake_open_run import make_open_run

LARGER, VALUE = "page000:larger", "page000:value"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    arms = ("full", "target:0.3", "anti_evidence:0.3")
    return load_run(make_open_run(tmp_path_factory.mktemp("open") / "run", images=3, arms=arms))


def test_a_frame_has_accepted_answers_and_roles(run: Run) -> None:
    full = run.frame()[lambda rows: rows["arm"] == "full"].set_index("probe_id")
    assert len(tuple(full["answers"][VALUE])) == 10, "textvqa: all ten"
    assert full["roles"][LARGER] == ("answer_value", "context", "comparison_anchor")
    assert list(run.frame(texts=False).columns) == run.rows.column_names


def test_the_picture_of_several_arms_stands_below_the_question(run: Run) -> None:
    one, two = run.picture(LARGER, "full"), run.picture(LARGER, "full", "target:0.3")
    asked = next(probe for probe in run.probes if probe["id"] == LARGER)
    row = run.row(LARGER, "full")
    heading = ArmPicture(row, {}, asked).heading
    assert heading[0] == asked["question"]
    assert heading[1].startswith(f"accepted: “{asked['answers'][0]}” · V the answer's value")
    assert two.height > one.height + 60
    caption = ArmPicture(row, {}, asked).caption
    assert caption == ("full", f"“{row['answer']}” · score {row['score']:.2f} · coverage 1.00")


def test_an_answer_in_a_caption_is_short_and_says_when_there_is_none() -> None:
    assert quoted("") == "nothing"
    assert quoted("a\nb") == "“a b”"
    assert len(quoted("x" * 100)) == 34


def test_show_tells_question_accepted_answers_roles_and_scores(run: Run) -> None:
    shown = CliRunner().invoke(app, ["show", str(run.path), VALUE])
    assert shown.exit_code == 0, shown.output
    answer = run.row(VALUE, "full")["accepted"]
    assert f"{answer} (10 times)" in shown.output
    assert "L label of the field: " in shown.output
    assert "V the answer's value: " in shown.output
    assert "textvqa" in shown.output
    for column in ("score", "loss"):
        assert column in shown.output
    assert "margin" not in shown.output
    assert "target  " not in shown.output.split("regions")[0], "an open question looks for nothing but itself"


def test_show_draws_the_arms_of_an_open_question(run: Run, tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["show", str(run.path), LARGER, "--out", str(tmp_path / "picture.png")])
    assert shown.exit_code == 0, shown.output
    assert (tmp_path / "picture.png").is_file()
