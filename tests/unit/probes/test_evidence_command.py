"""From a published file to probes with evidence, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from lab.stand_ins import StandIns
from sightline.probes import read_probes
from tests.unit.probes.test_command import output, refusal


@pytest.fixture
def docvqa(stand_ins: StandIns, tmp_path: Path) -> Path:
    path = tmp_path / "docvqa.jsonl"
    output("build", stand_ins.file("docvqa/val_v1.0_withQT.json"), "--out", path)
    return path


def test_questions_are_built_with_decoys_and_all_of_their_images(stand_ins: StandIns, tmp_path: Path) -> None:
    shards = stand_ins.shards("textvqa/validation-*.parquet")
    build = ["build", *shards, "--out", tmp_path / "t.jsonl"]
    assert refusal(*build).endswith("holds the images; say with --images where they are to be unpacked")
    text = output(*build, "--images", tmp_path / "images")
    assert "12 images, 24 questions" in text
    assert "unpacked     12 of 12 images" in text
    assert "24 probes (24 open) from 12 images\n" in text
    found = read_probes(tmp_path / "t.jsonl")
    assert found.construction == {
        "name": "textvqa", "seed": 17, "limit_images": None, "shuffle_images": False, "decoys": True,
    }  # fmt: skip
    assert all(probe.decoy and probe.decoy.casefold() != probe.answers[0].casefold() for probe in found.probes)
    assert "unpacked     0 of 12 images" in output(*build, "--images", tmp_path / "images")
    assert str(tmp_path) not in (tmp_path / "t.jsonl").read_text()


def test_a_sample_unpacks_only_its_own_images(stand_ins: StandIns, tmp_path: Path) -> None:
    shards = stand_ins.shards("ocrbench/test-*.parquet")
    options = ["--images", tmp_path / "images", "--sample", 1, "--seed", 29, "--out", tmp_path / "o.jsonl"]
    assert "unpacked     10 of 10 images" in output("build", *shards, *options)
    found = read_probes(tmp_path / "o.jsonl")
    assert len(list((tmp_path / "images").iterdir())) == 10
    assert [probe.kind for probe in found.probes] == sorted({probe.kind for probe in found.probes})
    assert found.construction["sample"] == 1
    assert not any(probe.decoy for probe in found.probes if probe.decoy in probe.answers)
    output("build", *shards, *options, "--no-decoys")
    assert not any(probe.decoy for probe in read_probes(tmp_path / "o.jsonl").probes)
    output("build", *shards, *options, "--limit-images", 3)
    assert len(read_probes(tmp_path / "o.jsonl")) == 3


def test_sampling_is_for_questions_that_a_file_asks(data: Path, tmp_path: Path) -> None:
    words = data / "mini_textocr" / "TextOCR_mini_val.json"
    assert "--sample draws from questions that a file asks" in refusal(
        "build", words, "--no-check-images", "--sample", 2, "--out", tmp_path / "p.jsonl"
    )
    assert "name the annotations" in refusal("build", "--out", tmp_path / "p.jsonl")


def test_shuffling_and_sampling_exclude_each_other(stand_ins: StandIns, tmp_path: Path) -> None:
    arguments = ["build", stand_ins.file("ocrbench/OCRBench.json"), "--sample", 1, "--shuffle-images"]
    assert "--sample draws at random already" in refusal(*arguments, "--out", tmp_path / "o.jsonl")


def test_missing_images_are_named(stand_ins: StandIns, tmp_path: Path) -> None:
    arguments = [
        "build",
        stand_ins.file("docvqa/val_v1.0_withQT.json"),
        "--images",
        tmp_path,
        "--out",
        tmp_path / "d.jsonl",
    ]
    assert "xnbl0037_1.png does not exist" in refusal(*arguments)
    assert not (tmp_path / "d.jsonl").exists()


def test_show_prints_an_answer_beside_its_question(docvqa: Path) -> None:
    probe = read_probes(docvqa).probes[0]
    text = output("show", docvqa, "--examples", 1)
    assert "24 (24 open)" in text
    assert f"open         {probe.question}  {probe.answers[0]}  [docvqa:34602]" in text


def test_published_boxes_become_regions_of_the_same_questions(stand_ins: StandIns, tmp_path: Path) -> None:
    path, out = tmp_path / "t.jsonl", tmp_path / "boxed.jsonl"
    output("build", stand_ins.file("textvqa/TextVQA_0.5.1_val.json"), "--out", path)
    boxes = stand_ins.shards("textvqa/boxes-*.parquet")[0]
    assert "24 of 24 questions, 24 regions (24 answer_value)" in output(
        "evidence", path, "--questions", boxes, "--out", out
    )
    found = read_probes(out)
    assert {len(probe.regions) for probe in found.probes} == {1}
    assert all(probe.visible_boxes == () for probe in found.probes)
    assert found.construction["evidence"]["from"] == "questions"
    assert found.construction["evidence"]["format"] == "textvqa_gt"
    untouched = read_probes(path)
    assert [probe.answers for probe in found.probes] == [probe.answers for probe in untouched.probes]


def test_the_answer_is_found_among_the_words_of_an_ocr_engine(
    stand_ins: StandIns, docvqa: Path, tmp_path: Path
) -> None:
    words, images = stand_ins.file("docvqa/ocr_results"), stand_ins.file("docvqa")
    said = output("evidence", docvqa, "--ocr", words, "--images", images, "--out", tmp_path / "answer.jsonl")
    assert "24 of 24 questions" in said
    answers = read_probes(tmp_path / "answer.jsonl").probes
    assert {role for probe in answers for role in probe.roles} == {"answer_value"}
    arguments = ["evidence", docvqa, "--ocr", words, "--line-context", "--out", tmp_path / "line.jsonl"]
    output(*arguments, "--images", images)
    lines = read_probes(tmp_path / "line.jsonl").probes
    for alone, line in zip(answers, lines, strict=True):
        assert line.regions[: len(alone.regions)] == alone.regions
        assert set(line.roles[len(alone.regions) :]) <= {"context"}
    assert any("context" in probe.roles for probe in lines)


def test_a_word_is_found_where_it_was_drawn(stand_ins: StandIns, docvqa: Path, tmp_path: Path) -> None:
    images = stand_ins.file("docvqa")
    output(
        "evidence", docvqa, "--typed", images / "annotations.jsonl", "--complete", "--images", images,
        "--out", tmp_path / "typed.jsonl",
    )  # fmt: skip
    output("evidence", docvqa, "--ocr", images / "ocr_results", "--images", images, "--out", tmp_path / "ocr.jsonl")
    hits = 0
    for typed, ocr in zip(
        read_probes(tmp_path / "typed.jsonl").probes, read_probes(tmp_path / "ocr.jsonl").probes, strict=True
    ):
        drawn = [region for region, role in zip(typed.regions, typed.roles, strict=True) if role == "answer_value"]
        hits += all(any(max(map(abs, map(float.__sub__, a, b))) < 0.01 for b in drawn) for a in ocr.regions)
    assert hits >= 20  # an answer may stand on its page twice


def test_a_pack_for_annotators_reads_back(stand_ins: StandIns, docvqa: Path, tmp_path: Path) -> None:
    images = stand_ins.file("docvqa")
    with_boxes = tmp_path / "typed.jsonl"
    typed = ["--typed", images / "annotations.jsonl", "--images", images]
    output("evidence", docvqa, *typed, "--out", with_boxes)
    pack = tmp_path / "pack"
    output("annotation-pack", with_boxes, "--images", images, "--out", pack)
    with Image.open(pack / "images" / "documents" / "xnbl0037_1.jpg") as image:
        assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (448, 448))
    rows = pack / "annotations.jsonl"
    again = ["evidence", docvqa, "--typed", rows, "--images", images, "--out", tmp_path / "again.jsonl"]
    assert "no row is annotated; docvqa:34602 is needs_review" in refusal(*again)
    rows.write_text(rows.read_text().replace("needs_review", "annotated"))
    output(*again)
    for one, other in zip(read_probes(with_boxes).probes, read_probes(tmp_path / "again.jsonl").probes, strict=True):
        assert one.roles == other.roles
        for a, b in zip(one.regions, other.regions, strict=True):
            assert a == pytest.approx(b, abs=2e-5)


def test_noise_is_written_as_probe_files(stand_ins: StandIns, docvqa: Path, tmp_path: Path) -> None:
    images = stand_ins.file("docvqa")
    boxed = tmp_path / "typed.jsonl"
    output("evidence", docvqa, "--typed", images / "annotations.jsonl", "--images", images, "--out", boxed)
    text = output("region-noise", boxed, "--images", images, "--out", tmp_path / "noise")
    assert len(list((tmp_path / "noise").iterdir())) == 9
    assert "clean.jsonl: 58 of 58 regions left" in text
    dropped = read_probes(tmp_path / "noise" / "drop_40pct.jsonl")
    assert dropped.construction["region_noise"]["seed"] == 20260717
    assert sum(len(probe.regions) for probe in dropped.probes) < 58
    assert "no probe has a region" in refusal("region-noise", docvqa, "--images", images, "--out", tmp_path / "n")


def test_evidence_says_what_it_lacks(stand_ins: StandIns, docvqa: Path, tmp_path: Path) -> None:
    rows = stand_ins.file("docvqa/annotations.jsonl")
    arguments = ["evidence", docvqa, "--out", tmp_path / "e.jsonl"]
    assert "say where evidence comes from with one of --questions, --ocr and --typed" in refusal(*arguments)
    assert "one of" in refusal(*arguments, "--typed", rows, "--ocr", rows)
    assert "--line-context is for --ocr" in refusal(*arguments, "--typed", rows, "--line-context")
    assert "--complete is for --typed" in refusal(*arguments, "--ocr", rows, "--complete")
    assert "boxes in pixels need the images" in refusal(*arguments, "--typed", rows)
    other = stand_ins.file("textvqa/annotations.jsonl").read_text().replace("textvqa:", "other:")
    (tmp_path / "other.jsonl").write_text(other)
    assert "none of its 24 rows is about a question here" in refusal(*arguments, "--typed", tmp_path / "other.jsonl")
    boxes = stand_ins.shards("textvqa/boxes-*.parquet")
    assert "no evidence for any of the 24 questions" in refusal(*arguments, "--questions", *boxes)


def test_evidence_is_for_open_questions(data: Path, tmp_path: Path) -> None:
    probes = tmp_path / "p.jsonl"
    row = {
        "id": "a", "image": "a.jpg", "image_id": "a", "question": "?", "label": "yes", "target_text": "T",
        "source_text": "T", "regions": [],
    }  # fmt: skip
    probes.write_text('{"sightline_probes": 1}\n' + json.dumps(row))
    said = refusal("evidence", probes, "--typed", probes, "--out", tmp_path / "e.jsonl")
    assert "probe 'a' is a yes/no question; its regions come from how it was built" in said


def test_only_questions_with_evidence_may_be_kept(stand_ins: StandIns, docvqa: Path, tmp_path: Path) -> None:
    images = stand_ins.file("docvqa")
    few = tmp_path / "few.jsonl"
    few.write_text("".join((images / "annotations.jsonl").read_text().splitlines(keepends=True)[:5]))
    output("evidence", docvqa, "--typed", few, "--images", images, "--only", "--out", tmp_path / "e.jsonl")
    assert len(read_probes(tmp_path / "e.jsonl")) == 5


def test_the_papers_split_of_open_questions_is_an_option(docvqa: Path, tmp_path: Path) -> None:
    text = output("split", docvqa, "--hash", "md5", "--group-by", "probe", "--out", tmp_path / "sides")
    assert "dev          13 probes" in text
    dev = read_probes(tmp_path / "sides" / "dev.jsonl")
    assert dev.construction["split"]["hash"] == "md5"
    assert "--hash md5 halves the set" in refusal("split", docvqa, "--hash", "md5", "--dev-buckets", 3)
