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


def unpacked_docvqa(stand_ins: StandIns, folder: Path, *, images: bool = True) -> Path:
    """SP-DocVQA as its site ships it: questions, images and OCR in three folders."""
    (folder / "spdocvqa_qas").mkdir(parents=True)
    shutil.copyfile(stand_ins.file("docvqa/val_v1.0_withQT.json"), folder / "spdocvqa_qas/val_v1.0_withQT.json")
    if images:
        shutil.copytree(stand_ins.file("docvqa/documents"), folder / "spdocvqa_images")
    shutil.copytree(stand_ins.file("docvqa/ocr_results"), folder / "spdocvqa_ocr")
    return folder


def begun(out: Path, textocr: Path | None = None, open_data: dict[str, Path] | None = None, **options: Any) -> Study:
    made = Study(out, {"qwen": "nowhere"}, textocr, StudyOptions(**options), open_data or {})
    made.record()
    return made


def asked(stand_ins: StandIns, out: Path, *tasks: str, **options: Any) -> Study:
    """A study of open questions, all three benchmarks unless named."""
    folders = {task: stand_ins.file(task) for task in tasks or ("textvqa", "docvqa", "ocrbench")}
    return begun(out, open_data=folders, **options)


def found_images(study: Study, name: str) -> bool:
    _, found, root = built_set(study, name)
    return all((root / probe.image).is_file() for probe in found.probes)


@pytest.mark.parametrize("images", ["train_images", "train_val_images/train_images", "train", "images/train"])
def test_textocr_is_taken_as_its_archive_unpacks(data: Path, tmp_path: Path, images: str) -> None:
    source = json.loads(next((data / "mini_textocr").glob("*.json")).read_text())
    assert all(image["file_name"].startswith("train/") for image in source["imgs"].values())
    folder = unpacked_textocr(data, tmp_path / "textocr", images)
    assert found_images(begun(tmp_path / "study", folder, limit=4), "development")


def test_the_audit_of_the_negatives_needs_no_image_and_runs_later_find_them(data: Path, tmp_path: Path) -> None:
    folder = unpacked_textocr(data, tmp_path / "textocr", None)
    study = begun(tmp_path / "study", folder, limit=4)
    printed = run_table(study, PAPER_TABLES.get("S6"))
    assert printed.state == "9 of 9 lines measured", printed.missing
    with pytest.raises(Exception, match=r"not its images: .* was looked for in .*train_images"):
        built_set(study, "confirmation")
    shutil.copytree(data / "mini_textocr/train", folder / "train_images")
    assert found_images(begun(tmp_path / "study", folder, limit=4), "confirmation")


def test_docvqa_is_taken_as_its_site_ships_it_and_images_are_missed_by_name(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    folder = unpacked_docvqa(stand_ins, tmp_path / "sp")
    assert found_images(begun(folder / "study", open_data={"docvqa": folder}, limit=4), "docvqa")
    folder = unpacked_docvqa(stand_ins, tmp_path / "bare", images=False)
    with pytest.raises(NothingToAskError, match=r"val_v1\.0_withQT\.json .* not its images: .*\.png .*spdocvqa_images"):
        built_set(begun(folder / "study", open_data={"docvqa": folder}, limit=4), "docvqa")


def test_one_folder_of_lite_parts_serves_both_benchmarks(stand_ins: StandIns, tmp_path: Path) -> None:
    lite = tmp_path / "LMMs-Eval-Lite"
    for task in ("textvqa", "docvqa"):
        (lite / f"{task}_val").mkdir(parents=True)
        for shard in stand_ins.shards(f"{task}/lite-*.parquet"):
            shutil.copyfile(shard, lite / f"{task}_val" / shard.name)
    study = begun(tmp_path / "study", open_data={"textvqa": lite, "docvqa": lite}, limit=4, lite=True)
    assert len(built_set(study, "textvqa-lite")[1].probes) == len(built_set(study, "docvqa-lite")[1].probes) == 4


def test_all_questions_of_a_benchmark_are_asked_from_parquet_or_from_the_authors_json(
    stand_ins: StandIns, tmp_path: Path
) -> None:
    made = asked(stand_ins, tmp_path / "study")
    file, found, _ = built_set(made, "textvqa")
    assert len(found.probes) == 24
    assert {len(probe.answers) for probe in found.probes} == {10}
    assert found_images(made, "textvqa"), "images inside parquet were unpacked"
    assert read_probes(file).source["format"] == "textvqa"
    assert not any(probe.decoy for probe in found.probes)
    folder = tmp_path / "textvqa"
    shutil.copytree(stand_ins.file("textvqa"), folder, ignore=shutil.ignore_patterns("*.parquet"))
    _, unpacked, images = built_set(begun(tmp_path / "other", open_data={"textvqa": folder}), "textvqa")
    assert images == folder
    assert [probe.id for probe in unpacked.probes] == [probe.id for probe in found.probes]
    whole, part = ({probe.id for probe in built_set(made, name)[1].probes} for name in ("docvqa", "docvqa-lite"))
    assert part < whole


def test_ocrbench_is_drawn_as_the_command_draws_it(stand_ins: StandIns, tmp_path: Path) -> None:
    _, found, _ = built_set(asked(stand_ins, tmp_path / "study", limit=4), "ocrbench")
    assert len(found.probes) == 10, "one question of each type"
    (shard,) = stand_ins.shards("ocrbench/test-*.parquet")
    images, own = str(tmp_path / "images"), str(tmp_path / "own.jsonl")
    sightline("probes", "build", shard, "--sample", 1, "--seed", 29, "--images", images, "--out", own)
    assert read_probes(tmp_path / "own.jsonl").digest == found.digest
    assert all(probe.decoy for probe in found.probes)


def test_the_artifacts_profile_has_its_ids_and_jpegs(stand_ins: StandIns, tmp_path: Path) -> None:
    made = asked(stand_ins, tmp_path / "artifact", profile="artifact", limit=4)
    for name, prefix in (("textvqa", "textvqa_val:"), ("docvqa-lite", "docvqa_val_lite:")):
        assert built_set(made, name)[1].probes[0].id.startswith(prefix)
    assert {Path(probe.image).suffix for probe in built_set(made, "ocrbench")[1].probes} == {".jpg"}


def test_lines_about_a_benchmark_that_was_not_given_say_so(
    stand_ins: StandIns, tmp_path: Path, refused: Refused
) -> None:
    made = asked(stand_ins, tmp_path / "one", "textvqa")
    needs = made.servable(PAPER_TABLES.get("S20").needs())
    assert {need.probes for need in needs} == {"textvqa", "textvqa-lite"}
    missing = measured(made, PAPER_TABLES.get("S20")).missing
    assert any("DocVQA was not given: name its folder with --docvqa" in line for line in missing)
    empty = Study(tmp_path / "empty", {}, open_data={"ocrbench": tmp_path})
    refused("OCRBench.json; --ocrbench is the folder", empty.questions.files, "ocrbench")


def test_lite_asks_the_parts_of_500_questions(stand_ins: StandIns, tmp_path: Path, refused: Refused) -> None:
    lite = asked(stand_ins, tmp_path / "study", lite=True)
    whole, part = Need("qwen", "textvqa", ("full",)), Need("qwen", "textvqa-lite", ("target_grid:0.3",))
    assert lite.servable([whole, part]) == [Need("qwen", "textvqa-lite", ("full", "target_grid:0.3"))]
    assert "(--lite)" in lite.notes[0]
    refused("was begun with lite=True, not False", asked, stand_ins, tmp_path / "study")


def test_a_demonstration_unpacks_its_questions_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked: list[Path] = []
    monkeypatch.setattr("sightline_paper.data.unpack", lambda archive, to: (unpacked.append(to), unpack(archive, to)))
    made = Study(tmp_path / "study", {}, options=StudyOptions(demo=True))
    file = tmp_path / "study/stand-ins/ocrbench/test-00000-of-00001.parquet"
    assert [made.questions.files("ocrbench") for _ in range(2)] == [[file]] * 2
    assert len(unpacked) == 1
    given = begun(tmp_path / "other", open_data={"ocrbench": tmp_path}, demo=True)
    assert not given.servable([Need("qwen", "ocrbench", ("full",))]), "a folder that was named is looked into"


def test_folders_of_open_questions_are_remembered(stand_ins: StandIns, tmp_path: Path) -> None:
    asked(stand_ins, tmp_path / "study", "docvqa", lite=True)
    again = opened(tmp_path / "study")
    assert again.open_data == {"docvqa": stand_ins.file("docvqa")}
    assert again.options.lite


def test_a_study_from_before_open_questions_goes_on(stand_ins: StandIns, tmp_path: Path) -> None:
    asked(stand_ins, tmp_path / "former")
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


def test_check_knows_stand_ins_as_the_archives_unpack(data: Path, stand_ins: StandIns, tmp_path: Path) -> None:
    folder = unpacked_textocr(data, tmp_path / "textocr", "train_images")
    sp = unpacked_docvqa(stand_ins, tmp_path / "sp")
    started = time.perf_counter()
    given = ["--docvqa", sp, "--models", data / "tiny/llava", "--clip", data / "tiny/clip"]
    # A few images are not the paper's set.
    said = sightline("paper", "check", "--textocr", folder, *given, code=1, width=240).output
    assert time.perf_counter() - started < 20
    good = [line for line in said.splitlines() if line.startswith("ok")]
    assert any("TextOCR images" in line and "train_images" in line for line in good)
    assert any("CLIP" in line for line in good)
    for words in ("not the whole part", "24 of 5,349 questions", "spdocvqa_images", "llava stands in for it",
                  "the paper's is b234b804b114d9e37bb655e11cbbb5f5e971b7a9"):  # fmt: skip
        assert words in said


def test_check_knows_the_papers_development_set(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With as many images as the mini set has, and its own ids in place of the published ones."""
    folder = unpacked_textocr(data, tmp_path / "textocr", "train_images")
    monkeypatch.setattr(check, "IMAGES", 4)
    study = begun(tmp_path / "study", folder, limit=4)
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
    points = {}
    for name in ("sweep-qwen", "answers-qwen"):
        card = json.loads((REPOSITORY / f"benchmarks/cards/h200/{name}.json").read_text())
        points[name] = [point for result in card["results"] for point in result["points"]]
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
    assert all(" --images " in line for line in runs)
    assert all(" --out " in line and not line.split("build ")[1].startswith("-") for line in builds)
