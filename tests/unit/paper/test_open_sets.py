"""Where a study's open questions come from, and what becomes of tables that lack them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lab.stand_ins import StandIns, write_stand_ins
from sightline.cli import app
from sightline.errors import SightlineError
from sightline.paper.needs import Need
from sightline.paper.open_data import open_files, unpack
from sightline.paper.paper_table import PAPER_TABLES
from sightline.paper.printed import measured
from sightline.paper.probe_sets import built_set
from sightline.paper.study import Study, StudyOptions
from sightline.paper.table_state import opened
from sightline.probes import read_probes

pytestmark = pytest.mark.xdist_group("open sets")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> StandIns:
    """Files as their publishers ship them."""
    return write_stand_ins(tmp_path_factory.mktemp("published"))


def study(published: StandIns, out: Path, *tasks: str, **options: Any) -> Study:
    folders = {task: published.file(task) for task in tasks or ("textvqa", "docvqa", "ocrbench")}
    made = Study(out, {"qwen": "nowhere"}, options=StudyOptions(**options), open_data=folders)
    made.record()
    return made


def test_all_questions_of_a_benchmark_are_asked_with_all_their_answers(published: StandIns, tmp_path: Path) -> None:
    made = study(published, tmp_path / "study")
    file, found, images = built_set(made, "textvqa")
    assert len(found.probes) == 24
    assert {len(probe.answers) for probe in found.probes} == {10}
    assert all((images / probe.image).is_file() for probe in found.probes), "images inside parquet were unpacked"
    assert read_probes(file).source["format"] == "textvqa"
    assert not any(probe.decoy for probe in found.probes)


def test_the_500_question_part_is_part_of_the_whole(published: StandIns, tmp_path: Path) -> None:
    made = study(published, tmp_path / "study")
    whole, part = ({probe.id for probe in built_set(made, name)[1].probes} for name in ("docvqa", "docvqa-lite"))
    assert part < whole


def test_the_authors_json_serves_where_there_is_no_parquet(published: StandIns, tmp_path: Path) -> None:
    folder = tmp_path / "textvqa"
    shutil.copytree(published.file("textvqa"), folder, ignore=shutil.ignore_patterns("*.parquet"))
    made = Study(tmp_path / "study", {}, open_data={"textvqa": folder})
    made.record()
    _, found, images = built_set(made, "textvqa")
    assert images == folder
    _, packed, _ = built_set(study(published, tmp_path / "other"), "textvqa")
    assert [probe.id for probe in found.probes] == [probe.id for probe in packed.probes]


def test_ocrbench_is_drawn_as_the_command_draws_it(published: StandIns, tmp_path: Path) -> None:
    _, found, _ = built_set(study(published, tmp_path / "study", limit=4), "ocrbench")
    assert len(found.probes) == 10, "one question of each type"
    (shard,) = published.shards("ocrbench/test-*.parquet")
    built = [
        "--sample",
        "1",
        "--seed",
        "29",
        "--images",
        str(tmp_path / "images"),
        "--out",
        str(tmp_path / "own.jsonl"),
    ]
    done = CliRunner().invoke(app, ["probes", "build", str(shard), *built], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert read_probes(tmp_path / "own.jsonl").digest == found.digest
    assert all(probe.decoy for probe in found.probes)


def test_the_artifact_profile_has_the_artifacts_ids_and_jpegs(published: StandIns, tmp_path: Path) -> None:
    made = study(published, tmp_path / "study", profile="artifact", limit=4)
    ids = {name: built_set(made, name)[1].probes[0].id for name in ("textvqa", "docvqa-lite")}
    assert ids["textvqa"].startswith("textvqa_val:")
    assert ids["docvqa-lite"].startswith("docvqa_val_lite:")
    assert {Path(probe.image).suffix for probe in built_set(made, "ocrbench")[1].probes} == {".jpg"}


def test_lines_about_a_benchmark_that_was_not_given_say_so(published: StandIns, tmp_path: Path) -> None:
    made = study(published, tmp_path / "study", "textvqa")
    needs = made.servable(PAPER_TABLES.get("S20").needs())
    assert {need.probes for need in needs} == {"textvqa", "textvqa-lite"}
    missing = measured(made, PAPER_TABLES.get("S20")).missing
    assert any("DocVQA was not given: name its folder with --docvqa" in line for line in missing)


def test_a_folder_without_the_files_is_answered_with_their_names(tmp_path: Path) -> None:
    made = Study(tmp_path / "study", {}, open_data={"ocrbench": tmp_path})
    with pytest.raises(
        SightlineError, match=r"has none of test-\*\.parquet, .*OCRBench\.json; --ocrbench is the folder"
    ):
        open_files(made, "ocrbench")


def test_a_demonstration_unpacks_its_questions_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked: list[Path] = []
    monkeypatch.setattr(
        "sightline.paper.open_data.unpack", lambda archive, to: (unpacked.append(to), unpack(archive, to))
    )
    made = Study(tmp_path / "study", {}, options=StudyOptions(demo=True))
    assert [open_files(made, "ocrbench") for _ in range(2)] == [
        [tmp_path / "study/stand-ins/ocrbench/test-00000-of-00001.parquet"]
    ] * 2
    assert len(unpacked) == 1
    given = Study(
        tmp_path / "other", {"qwen": "nowhere"}, options=StudyOptions(demo=True), open_data={"ocrbench": tmp_path}
    )
    assert not given.servable([Need("qwen", "ocrbench", ("full",))]), "a folder that was named is looked into"


def test_lite_asks_the_500_question_parts_and_says_so(published: StandIns, tmp_path: Path) -> None:
    made = study(published, tmp_path / "study", lite=True)
    whole, part = Need("qwen", "textvqa", ("full",)), Need("qwen", "textvqa-lite", ("target_grid:0.3",))
    assert made.servable([whole, part]) == [Need("qwen", "textvqa-lite", ("full", "target_grid:0.3"))]
    assert "(--lite)" in made.notes[0]
    with pytest.raises(SightlineError, match="was begun with lite=True, not False"):
        study(published, tmp_path / "study")


def test_folders_of_open_questions_are_remembered(published: StandIns, tmp_path: Path) -> None:
    study(published, tmp_path / "study", "docvqa", lite=True)
    again = opened(tmp_path / "study")
    assert again.open_data == {"docvqa": published.file("docvqa")}
    assert again.options.lite


def test_a_study_begun_before_there_were_open_questions_goes_on(published: StandIns, tmp_path: Path) -> None:
    import json

    study(published, tmp_path / "study")
    record = tmp_path / "study/study.json"
    former = {
        name: value for name, value in json.loads(record.read_text()).items() if name not in ("lite", "open_data")
    }
    record.write_text(json.dumps(former))
    assert Study(tmp_path / "study", {}).open_data == {}
