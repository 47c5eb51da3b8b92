"""What people read says what the record says, and the record is the same whenever it is made."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sightline.checks.demo import asset
from sightline.commands.options import named_models
from sightline.probes import read_probes
from sightline_leaderboard import page
from sightline_leaderboard.commands import image_options
from sightline_leaderboard.contest import Contest, MeasuredModel, demo_contest, readers
from sightline_leaderboard.standings import RISKS, Record, digest_of, read_record, record_of, record_text
from tests.command_line import sightline
from tests.conftest import REPOSITORY
from tests.refusals import Refused


def lines_of(record: Record) -> list[Any]:
    """Of all models and budgets, without Full's."""
    return [line for model in record["models"] for lines in model["standings"].values() for line in lines]


def told(record: Record, **columns: Any) -> Record:
    """A copy in which every line says this too."""
    made = copy.deepcopy(record)
    for line in [*(model["full"] for model in made["models"]), *lines_of(made)]:
        line |= columns
    return made


@pytest.fixture(scope="module")
def by_coverage(contest: Contest, measured: list[MeasuredModel]) -> Record:
    return record_of(contest, measured, rank_by="pos_ecr", draws=200, seed=17)


def test_the_same_runs_give_the_same_record(contest: Contest, measured: list[MeasuredModel], record: Record) -> None:
    assert record_of(contest, measured, rank_by="", draws=200, seed=17) == record
    slower = copy.deepcopy(record)
    slower["models"][0]["standings"]["0.3"][0]["selection_ms"] = 1e6
    slower["models"][0]["device"] = "another"
    assert digest_of(slower) == record["digest"], "times have no part in it"
    slower["models"][0]["standings"]["0.3"][0]["accuracy"] = 0.123
    assert digest_of(slower) != record["digest"]


def test_a_record_has_a_line_of_every_method_at_every_budget(record: Record) -> None:
    assert (record["pages"], record["probes"], record["budgets"]) == (3, 6, ["0.3", "0.5"])
    for model in record["models"]:
        for lines in model["standings"].values():
            assert len({line["method"] for line in lines}) == len(lines) == 5 + 1
        assert model["full"]["pos_ecr"] > 0.0
    for line in lines_of(record):
        assert 0.0 <= line["accuracy_low"] <= line["accuracy"] <= line["accuracy_high"] <= 1.0
        assert 0.0 <= line["pos_ecr"] <= 1.0
        assert (line["keep_over_layers"] > line["keep"]) == (line["method"] == "dart"), "it prunes between layers"
        assert line["selection_ms"] >= 0.0


def test_a_record_is_read_as_it_was_written_and_not_after_a_change(
    record: Record, tmp_path: Path, refused: Refused
) -> None:
    path = tmp_path / "leaderboard.json"
    path.write_text(record_text(record), encoding="utf-8")
    assert read_record(path) == record
    written = path.read_text(encoding="utf-8").splitlines()
    assert sum('"method": "target"' in line and '"gain"' in line for line in written) == 2 * 2 + 1, "one entry a line"
    path.write_text(record_text({**record, "pages": 4}), encoding="utf-8")
    refused("changed by hand", read_record, path)


def test_page_markdown_and_files_need_nothing_else_and_hold_refusals_with_their_reason(
    record: Record, tmp_path: Path
) -> None:
    text = page.write_leaderboard(record, tmp_path).read_text(encoding="utf-8")
    for name in ("target", "scope", "dart", "soft_evidence", "random", "grid (control)", "resize (control)"):
        assert f">{name}</th>" in text
    assert not re.search(r'(?:src|href)="https?:', text)
    assert text.count("<svg") == 2 * 2 * 2, "a wide and a narrow frontier for every model and budget"
    assert record["digest"] in text
    assert record["digest"] in (tmp_path / "leaderboard.md").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "leaderboard.json").read_text(encoding="utf-8")) == record
    assert {path.name for path in (tmp_path / "tables").glob("*.csv")} == {
        "overview.csv", "qwen_0-3.csv", "qwen_0-5.csv", "qwen_refused.csv", "llava_0-3.csv", "llava_0-5.csv",
        "llava_refused.csv",
    }  # fmt: skip
    qwen, llava = record["models"]
    table = page.refused_table(qwen)
    assert table is not None
    assert table.frame["method"].tolist() == ["scope"]
    assert "no class token" in table.frame["reason"].iloc[0]
    assert page.refused_table({**llava, "refused": []}) is None
    assert "no class token" in page.markdown(record)


def test_the_overview_has_a_column_for_every_model_and_budget_and_full_no_rank(by_coverage: Record) -> None:
    table = page.overview_table(by_coverage)
    asked = [f"{model} at {budget}" for model in ("qwen", "llava") for budget in ("0.3", "0.5")]
    assert [column.title for column in table.columns][-4:] == asked
    panels = [panel.heading for panel in table.panels()]
    assert panels[0] == "Box-free methods and controls"
    assert "Box-free methods and controls · ranked in 2 of 4 columns" in panels
    scope = next(line for line in by_coverage["overview"] if line["method"] == "scope")
    assert {rank["model"] for rank in scope["ranks"]} == {"llava"}
    table = page.budget_table(by_coverage, by_coverage["models"][0], "0.3")
    first = next(table.cells())
    assert [cell.text for cell in first[:2]] == ["Full", "–"]
    assert "Selection was timed on cpu" in table.caption


def test_risk_by_field_is_a_table_of_its_own(record: Record, tmp_path: Path) -> None:
    assert page.fields_table(record, record["models"][0], "0.3") is None, "yes and no are about no field"
    values = {name: place / 10 for place, name in enumerate(RISKS)}
    bounds = {f"{name}_{side}": end for name in RISKS for side, end in (("low", 0.0), ("high", 0.875))}
    about = {**told(record, **values, **bounds), "metrics": [*record["metrics"], *RISKS]}
    text = page.write_leaderboard(about, tmp_path).read_text(encoding="utf-8")
    whole, risk = (pd.read_csv(tmp_path / f"tables/qwen_0-3{name}.csv") for name in ("", "_fields"))
    assert risk[list(RISKS)].drop_duplicates().to_numpy().tolist() == [[0.0, 0.1, 0.2, 0.3, 0.4]]
    assert not set(RISKS) & set(whole)
    assert "Risk by field, qwen at 0.3" in text
    assert "Swapped is another text of the page" in text
    assert text.count("0.000–0.875") == 2 * 2 * 6 * len(RISKS) + 2 * 2 * len(RISKS), "an interval in every cell"


def test_a_ranking_by_risk_says_which_way_it_points_and_how_often_nothing_is_said(tmp_path: Path) -> None:
    answered = read_record(REPOSITORY / "docs/leaderboard-open.json")
    about = told(answered, swapped=0.0, swapped_low=0.0, swapped_high=0.25, silent=0.625) | {"ranked_by": "swapped"}
    assert "Silence is not swapped: " in page.headlines(about)[0]
    assert page.headlines(about)[0].endswith("says nothing in 62% of answers, Full in 62%.")
    assert "Silence" not in page.headlines(answered)[0]
    for ranked, upwards in ((about, "Swapped (less is better) upwards"), (answered, "Score upwards")):
        assert upwards in page.write_leaderboard(ranked, tmp_path).read_text(encoding="utf-8")


def test_the_headline_says_how_many_beat_chance() -> None:
    said = page.headlines(read_record(REPOSITORY / "docs/leaderboard.json"))
    assert len(said) == 2
    assert re.search(
        r"^reader at 0\.3: first of \d+ box-free entries with Accuracy [01]\.\d{3} \(.*\) (is|are) \w+", said[0]
    )
    assert re.search(r"\d of \d+ box-free methods are better than Random beyond their interval\.$", said[0])


def test_open_questions_have_their_own_words() -> None:
    record = read_record(REPOSITORY / "docs/leaderboard-open.json")
    table = page.budget_table(record, record["models"][0], "0.3")
    titles = [column.title for column in table.columns]
    assert titles[2] == "Score"
    assert "ECR" in titles
    assert "Accuracy" not in titles, "a score of 0 or 1 is right or not: the same numbers"


def test_nobody_is_ranked_by_answers_that_say_nothing(record: Record, by_coverage: Record) -> None:
    """Two models of random weights on three images."""
    why = "3 images are fewer than 10: nothing about pruning can be read from its answers"
    assert page.headlines(record) == []
    assert [line for line in page.markdown(record).splitlines() if "qwen: " in line] == [f"qwen: {why}"]
    assert {line["rank"] for line in lines_of(record)} == {None}
    assert not any(line["tied_with_first"] or line["on_frontier"] or line["lead"] for line in lines_of(record))
    for model in record["models"]:
        assert page.budget_table(record, model, "0.3").caption.startswith(f"Nobody is ranked: {why}. ")
    assert {(line["place"], line["mean_rank"], line["cells"]) for line in record["overview"]} == {(None, None, 0)}
    assert len(page.headlines(by_coverage)) == 2, "coverage is the same whatever is answered"
    assert all(line["place"] for line in by_coverage["overview"])


def test_the_command_measures_prints_and_writes(contest: Contest, tmp_path: Path) -> None:
    done = sightline(
        "leaderboard", "--model", f"small={contest.models['llava']}", "--probes", contest.probes, "--images",
        contest.images, "--out", tmp_path / "board", "--budgets", 0.3, "--method", "target", "--method",
        "resize", "--limit", 2, "--dtype", "float32", "--draws", 100, "--rank-by", "pos_ecr",
    )  # fmt: skip
    assert "not on small: resize: resize cannot run on Llava" in done.output
    written = read_record(tmp_path / "board/leaderboard.json")
    assert written["ranked_by"] == "pos_ecr"
    assert written["digest"] in done.output
    assert (tmp_path / "board/leaderboard.html").is_file()


def test_what_cannot_be_ranked_is_refused_at_once(tmp_path: Path, refused: Refused) -> None:
    for arguments, reason in (
        (["--model", "m"], "name --model, --probes and --images"),
        (["--demo", "--model", "m"], "no reader 'm' is shipped"),
        (["--demo", "--image-option", "max_pixels=4"], "--demo brings its own pages"),
        (["--open-questions", "--model", "m"], "--open-questions chooses among the questions of --demo"),
        (["--demo", "--method", "nobody"], "unknown selector 'nobody'"),
        (["--demo", "--rank-by", "keep"], "ranks nobody"),
    ):
        refused(reason, sightline, "leaderboard", "--out", tmp_path, *arguments)


def test_models_are_named_apart_and_options_reach_those_that_they_name(refused: Refused) -> None:
    assert named_models(["a/b", "second=c/b"]) == {"b": "a/b", "second": "c/b"}
    refused("name it apart", named_models, ["a/b", "c/b"])
    models = ["one", "two"]
    found = image_options(["max_pixels=4", "two:max_pixels=9"], models)
    assert found == {"one": {"max_pixels": 4}, "two": {"max_pixels": 9}}
    refused("no model is called 'three'", image_options, ["three:max_pixels=4"], models)


def test_the_demonstration_takes_every_shipped_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    found = readers()
    assert {"reader", "reader-llava"} <= set(found)
    assert list(readers(["reader"])) == ["reader"]
    assert all((Path(folder) / "config.json").is_file() for folder in found.values())
    # A wheel leaves out the second reader for its size.
    (tmp_path / "reader").symlink_to(asset("reader"))
    monkeypatch.setattr("sightline_leaderboard.contest.asset", tmp_path.joinpath)
    assert list(readers()) == ["reader"]
    refused("reader-llava is not in wheels: run in a checkout", readers, ["reader-llava"])


def test_the_demonstration_asks_the_locked_questions_of_either_kind(tmp_path: Path) -> None:
    for in_words, pages in ((False, 40), (True, 50)):
        contest = demo_contest(tmp_path, ["target"], ["0.3"], in_words=in_words)
        first = read_probes(contest.probes).probes[0]
        assert (contest.pages, first.is_open) == (pages, in_words)
        assert (contest.images / first.image).is_file()
        assert Path(f"{contest.probes}.lock.json").is_file()
        assert any("are favoured" in note for note in contest.notes) != in_words
