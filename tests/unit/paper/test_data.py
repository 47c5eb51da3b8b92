"""Data as their publishers ship them: found as archives unpack, asked as tables want it, and checked beforehand."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.stand_ins import StandIns
from sightline.cost.shapes import weight_bytes
from sightline.probes import read_probes
from sightline_paper import MODELS, PAPER_TABLES, Need, Study, StudyOptions, check
from sightline_paper.data import unpack
from sightline_paper.printed import explained, measured, opened, run_table
from sightline_paper.study import NothingToAskError, built_set
from tests.command_line import sightline
from tests.conftest import REPOSITORY
from tests.refusals import Refused

pytestmark = pytest.mark.xdist_group("paper's data")


def unpacked_textocr(data: Path, folder: Path, images: str | None) -> Path:
    """The mini set as TextOCR is downloaded: ``train/ID.jpg`` in the file, ``images/ID.jpg`` on disk."""
    folder.mkdir(parents=True)
    (source,) = (data / "mini_textocr").glob("TextOCR_*val.json")
    shutil.copyfile(source, folder / "TextOCR_0.1_val.json")
    if images is not None:
        shutil.copytree(data / "mini_textocr/train", folder / images)
    return folder


def unpacked_docvqa(published: StandIns, folder: Path, *, images: bool = True) -> Path:
    """SP-DocVQA as its site ships it: questions, images and OCR in three folders."""
    (folder / "spdocvqa_qas").mkdir(parents=True)
    shutil.copyfile(published.file("docvqa/val_v1.0_withQT.json"), folder / "spdocvqa_qas/val_v1.0_withQT.json")
    if images:
        shutil.copytree(published.file("docvqa/documents"), folder / "spdocvqa_images")
    shutil.copytree(published.file("docvqa/ocr_results"), folder / "spdocvqa_ocr")
    return folder


@pytest.mark.parametrize("images", ["train_images", "train_val_images/train_images", "train", "images/train"])
def test_textocr_is_taken_as_its_archive_unpacks(data: Path, tmp_path: Path, images: str) -> None:
    source = json.loads(next((data / "mini_textocr").glob("*.json")).read_text())
    assert all(image["file_name"].startswith("train/") for image in source["imgs"].values())
    folder = unpacked_textocr(data, tmp_path / "textocr", images)
    study = Study(tmp_path / "study", {}, folder, StudyOptions(limit=4))
    study.record()
    _, found, root = built_set(study, "development")
    assert all((root / probe.image).is_file() for probe in found.probes)


def test_the_audit_of_the_negatives_needs_no_image_and_runs_later_find_them(data: Path, tmp_path: Path) -> None:
    folder = unpacked_textocr(data, tmp_path / "textocr", None)
    study = Study(tmp_path / "study", {}, folder, StudyOptions(limit=4))
    printed = run_table(study, PAPER_TABLES.get("S6"))
    assert printed.state == "9 of 9 lines measured", printed.missing
    with pytest.raises(Exception, match=r"not its images: .* was looked for in .*train_images"):
        built_set(study, "confirmation")
    shutil.copytree(data / "mini_textocr/train", folder / "train_images")
    _, found, root = built_set(Study(tmp_path / "study", {}, folder, StudyOptions(limit=4)), "confirmation")
    assert all((root / probe.image).is_file() for probe in found.probes)


def test_docvqa_is_taken_as_its_site_ships_it_and_its_images_are_missed_by_name(
    published: StandIns, tmp_path: Path
) -> None:
    def build(folder: Path) -> Any:
        study = Study(folder / "study", {}, options=StudyOptions(limit=4), open_data={"docvqa": folder})
        study.record()
        return built_set(study, "docvqa")

    _, found, root = build(unpacked_docvqa(published, tmp_path / "sp"))
    assert all((root / probe.image).is_file() for probe in found.probes)
    with pytest.raises(NothingToAskError, match=r"val_v1\.0_withQT\.json .* not its images: .*\.png .*spdocvqa_images"):
        build(unpacked_docvqa(published, tmp_path / "bare", images=False))


def test_one_folder_of_lmms_eval_lite_serves_both_benchmarks(published: StandIns, tmp_path: Path) -> None:
    lite = tmp_path / "LMMs-Eval-Lite"
    for task in ("textvqa", "docvqa"):
        (lite / f"{task}_val").mkdir(parents=True)
        for shard in published.shards(f"{task}/lite-*.parquet"):
            shutil.copyfile(shard, lite / f"{task}_val" / shard.name)
    folders = {"textvqa": lite, "docvqa": lite}
    study = Study(tmp_path / "study", {}, options=StudyOptions(limit=4, lite=True), open_data=folders)
    study.record()
    assert len(built_set(study, "textvqa-lite")[1].probes) == len(built_set(study, "docvqa-lite")[1].probes) == 4


# Open questions.


def study(published: StandIns, out: Path, *tasks: str, **options: Any) -> Study:
    folders = {task: published.file(task) for task in tasks or ("textvqa", "docvqa", "ocrbench")}
    made = Study(out, {"qwen": "nowhere"}, options=StudyOptions(**options), open_data=folders)
    made.record()
    return made


def test_all_questions_of_a_benchmark_are_asked_from_parquet_or_from_the_authors_json(
    published: StandIns, tmp_path: Path
) -> None:
    made = study(published, tmp_path / "study")
    file, found, images = built_set(made, "textvqa")
    assert len(found.probes) == 24
    assert {len(probe.answers) for probe in found.probes} == {10}
    assert all((images / probe.image).is_file() for probe in found.probes), "images inside parquet were unpacked"
    assert read_probes(file).source["format"] == "textvqa"
    assert not any(probe.decoy for probe in found.probes)
    folder = tmp_path / "textvqa"
    shutil.copytree(published.file("textvqa"), folder, ignore=shutil.ignore_patterns("*.parquet"))
    other = Study(tmp_path / "other", {}, open_data={"textvqa": folder})
    other.record()
    _, unpacked, images = built_set(other, "textvqa")
    assert images == folder
    assert [probe.id for probe in unpacked.probes] == [probe.id for probe in found.probes]
    whole, part = ({probe.id for probe in built_set(made, name)[1].probes} for name in ("docvqa", "docvqa-lite"))
    assert part < whole


def test_ocrbench_is_drawn_as_the_command_draws_it(published: StandIns, tmp_path: Path) -> None:
    _, found, _ = built_set(study(published, tmp_path / "study", limit=4), "ocrbench")
    assert len(found.probes) == 10, "one question of each type"
    (shard,) = published.shards("ocrbench/test-*.parquet")
    images, own = str(tmp_path / "images"), str(tmp_path / "own.jsonl")
    sightline("probes", "build", shard, "--sample", 1, "--seed", 29, "--images", images, "--out", own)
    assert read_probes(tmp_path / "own.jsonl").digest == found.digest
    assert all(probe.decoy for probe in found.probes)


def test_the_artifact_profile_has_the_artifacts_ids_and_jpegs(published: StandIns, tmp_path: Path) -> None:
    made = study(published, tmp_path / "study", profile="artifact", limit=4)
    ids = {name: built_set(made, name)[1].probes[0].id for name in ("textvqa", "docvqa-lite")}
    assert ids["textvqa"].startswith("textvqa_val:")
    assert ids["docvqa-lite"].startswith("docvqa_val_lite:")
    assert {Path(probe.image).suffix for probe in built_set(made, "ocrbench")[1].probes} == {".jpg"}


def test_lines_about_a_benchmark_that_was_not_given_or_not_found_say_so(
    published: StandIns, tmp_path: Path, refused: Refused
) -> None:
    made = study(published, tmp_path / "study", "textvqa")
    needs = made.servable(PAPER_TABLES.get("S20").needs())
    assert {need.probes for need in needs} == {"textvqa", "textvqa-lite"}
    missing = measured(made, PAPER_TABLES.get("S20")).missing
    assert any("DocVQA was not given: name its folder with --docvqa" in line for line in missing)
    empty = Study(tmp_path / "empty", {}, open_data={"ocrbench": tmp_path})
    refused("OCRBench.json; --ocrbench is the folder", empty.questions.files, "ocrbench")


def test_a_demonstration_unpacks_its_questions_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked: list[Path] = []
    monkeypatch.setattr("sightline_paper.data.unpack", lambda archive, to: (unpacked.append(to), unpack(archive, to)))
    made = Study(tmp_path / "study", {}, options=StudyOptions(demo=True))
    file = tmp_path / "study/stand-ins/ocrbench/test-00000-of-00001.parquet"
    assert [made.questions.files("ocrbench") for _ in range(2)] == [[file]] * 2
    assert len(unpacked) == 1
    given = Study(
        tmp_path / "other", {"qwen": "nowhere"}, options=StudyOptions(demo=True), open_data={"ocrbench": tmp_path}
    )
    assert not given.servable([Need("qwen", "ocrbench", ("full",))]), "a folder that was named is looked into"


def test_lite_asks_the_500_question_parts_and_says_so(published: StandIns, tmp_path: Path, refused: Refused) -> None:
    made = study(published, tmp_path / "study", lite=True)
    whole, part = Need("qwen", "textvqa", ("full",)), Need("qwen", "textvqa-lite", ("target_grid:0.3",))
    assert made.servable([whole, part]) == [Need("qwen", "textvqa-lite", ("full", "target_grid:0.3"))]
    assert "(--lite)" in made.notes[0]
    refused("was begun with lite=True, not False", study, published, tmp_path / "study")


def test_folders_of_open_questions_are_remembered_and_a_study_from_before_them_goes_on(
    published: StandIns, tmp_path: Path
) -> None:
    study(published, tmp_path / "study", "docvqa", lite=True)
    again = opened(tmp_path / "study")
    assert again.open_data == {"docvqa": published.file("docvqa")}
    assert again.options.lite
    study(published, tmp_path / "former")
    record = tmp_path / "former/study.json"
    written = json.loads(record.read_text())
    record.write_text(json.dumps({name: written[name] for name in written if name not in ("lite", "open_data")}))
    assert Study(tmp_path / "former", {}).open_data == {}


# paper check


def test_check_names_what_is_missing_and_how_to_get_it() -> None:
    said = sightline("paper", "check").output  # nothing was named, so nothing is wrong
    for word in ("TextOCR_0.1_val.json", "lmms-lab/textvqa", "echo840/OCRBench", "b234b804b114", "sightline convert"):
        assert word in said
    assert "on an H200" in said


def test_check_on_stand_ins_as_the_archives_unpack(data: Path, published: StandIns, tmp_path: Path) -> None:
    folder = unpacked_textocr(data, tmp_path / "textocr", "train_images")
    sp = unpacked_docvqa(published, tmp_path / "sp")
    started = time.perf_counter()
    given = ["--docvqa", sp, "--models", data / "tiny/llava", "--clip", data / "tiny/clip"]
    # A few images are not the paper's set.
    said = sightline("paper", "check", "--textocr", folder, *given, code=1, width=240).output
    assert time.perf_counter() - started < 20
    good = [line for line in said.splitlines() if line.startswith("ok")]
    assert any("TextOCR images" in line and "train_images" in line for line in good)
    assert any("CLIP" in line for line in good)
    for words in (
        "not the whole part", "24 of 5,349 questions", "spdocvqa_images", "llava stands in for it",
        "the paper's is b234b804b114d9e37bb655e11cbbb5f5e971b7a9",
    ):  # fmt: skip
        assert words in said


def test_check_knows_the_papers_development_set(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With as many images as the mini set has, and its own ids in place of the published ones."""
    folder = unpacked_textocr(data, tmp_path / "textocr", "train_images")
    monkeypatch.setattr(check, "IMAGES", 4)
    study = Study(tmp_path / "study", {}, folder, StudyOptions(limit=4))
    ids = tmp_path / "ids.txt"
    ids.write_text("\n".join(built_set(study, "development")[1].image_ids))
    monkeypatch.setattr(check, "DEVELOPMENT_IDS", ids)
    said = sightline("paper", "check", "--textocr", folder, width=240).output
    assert "the paper's 500 images, in its order" in said
    assert "published counts" in said
    ids.write_text("\n".join(reversed(ids.read_text().split())))
    said = sightline("paper", "check", "--textocr", folder, code=1, width=240).output
    assert "not the annotations that it was built from" in said


def test_checks_constants_are_those_of_the_cards_and_the_published_ids() -> None:
    masks = (REPOSITORY / "tests/data/protocol/paper_evidence/sample_ids.txt").read_text().split()
    ids = list(dict.fromkeys(name.split(":")[0].removeprefix("textocr-") for name in masks))
    assert check.DEVELOPMENT_IDS.read_text().split() == ids
    cards = {
        name: json.loads((REPOSITORY / f"benchmarks/cards/h200/{name}.json").read_text())
        for name in ("sweep-qwen", "answers-qwen")
    }
    points = {name: [point for result in card["results"] for point in result["points"]] for name, card in cards.items()}
    assert points["sweep-qwen"][0]["extra"]["engine_rows_per_s"] == pytest.approx(check.ROWS_PER_S, abs=0.05)
    slowest = min(point["extra"]["answers_per_s"] for point in points["answers-qwen"])
    assert slowest == pytest.approx(check.ANSWERS_PER_S, abs=0.05)
    assert points["sweep-qwen"][0]["memory"]["allocated_incremental"] == check.WORKING_BYTES["yes_no"]
    most = max(point["memory"]["allocated_incremental"] for point in points["answers-qwen"])
    assert most == check.WORKING_BYTES["open"]
    shapes = {"qwen": "qwen3-vl-8b", "llava": "llava-1.5-7b", "internvl": "internvl3.5-8b"}
    assert {name: weight_bytes(shape, torch.bfloat16) for name, shape in shapes.items()} == {
        name: model.bytes for name, model in MODELS.items()
    }


@pytest.mark.parametrize("number", ["1", "S13", "S20"])
def test_shown_commands_are_complete(number: str) -> None:
    """Every run names its images, every build its annotations and the file it writes."""
    lines = [line.strip() for line in explained(PAPER_TABLES.get(number)).splitlines()]
    runs = [line for line in lines if line.startswith("sightline run ")]
    builds = [line for line in lines if line.startswith(("sightline probes build", "sightline controls build"))]
    assert runs
    assert builds
    for line in runs:
        assert " --images " in line, line
    for line in builds:
        assert " --out " in line, line
        assert not line.split("build ")[1].startswith("-"), line
