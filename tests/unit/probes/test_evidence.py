"""Where an answer stands among the words of a page, what is on its line, and what people draw as evidence."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from lab.stand_ins import StandIns
from sightline.core.probe import Box, Probe
from sightline.probes import read_probes, typed_rows, write_probes
from sightline.probes.evidence import Evidence, Span, find_span, line_context, plain, span_at
from tests.refusals import Refused
from tests.unit.probes.conftest import Save
from tests.unit.probes.test_command import output, refusal

WORDS = ["Invoice", "No.", "2010-55", "Total:", "$1,000.00", "paid", "on", "March", "3,", "1997", "by", "Mill", "Lane"]


def test_an_answer_is_equal_else_contained_else_similar_in_no_more_words_than_needed() -> None:
    for answers, found in (
        (["march 3 1997"], Span(7, 3, "equal")),
        (["$1,000.00"], Span(4, 1, "equal")),
        (["100000"], Span(4, 1, "equal")),
        (["Mill Lane Ltd", "mill lane"], Span(11, 2, "equal")),
        (["201055 Tot"], Span(2, 2, "contained")),
        (["10"], None),
        (["Mill Lane Limited"], Span(11, 2, "similar", 2 / 3)),
        (["elsewhere"], None),
        (["..."], None),
        ([], None),
    ):
        assert find_span(WORDS, answers) == found, answers
    assert find_span(["-", "b", "a", "b"], ["b"]) == Span(1, 1, "equal")
    assert find_span(["a", "b", "c", "a", "b"], ["a b"]) == Span(0, 2, "equal")
    words = [f"w{number}" for number in range(20)]
    assert find_span(words, [" ".join(words[2:14])]) == Span(2, 12, "equal")
    assert find_span(words, [" ".join(words[2:16])]) == Span(2, 12, "similar", 12 / 14)
    said = [plain(word) for word in WORDS]
    assert span_at(said, 7, "march 3 1997") == Span(7, 3, "equal")
    assert span_at(said, 4, "000") == Span(4, 1, "contained")
    assert span_at(said, 10, "mill lane limited") == Span(10, 3, "similar", 0.5)
    assert span_at(said, 0, "mill lane") is None


def box(x: float, y: float, height: float = 20) -> Box:
    return (x, y, x + 40, y + height)


def test_line_context_is_three_words_on_either_side_within_three_quarters_of_the_height() -> None:
    line = [box(50 * place, 100) for place in (4, 0, 1, 2, 3, 5, 6, 7, 8)]  # the fifth of the line is written first
    others = [box(200, 60), box(200, 140)]
    assert line_context([*line, *others], [0]) == [2, 3, 4, 5, 6, 7], "from left to right, and none of the answer"
    assert line_context([box(50 * place, 100) for place in range(4)], [1, 2]) == [0, 3]
    for height, away, near in ((20, 15, True), (20, 16, False), (4, 8, True), (4, 9, False)):
        boxes = [box(0, 100, height), box(50, 100 + away, height)]
        assert line_context(boxes, [0]) == ([1] if near else [])


# Evidence that people draw: rows are read as they stand, checked, and become regions and roles.


BOX = {"x": 310, "y": 420, "w": 80, "h": 20, "label": "answer_value:2000"}
ROW = {
    "sample_id": "docvqa:1", "task": "docvqa", "question_id": "1", "evidence_units": "one value", "boxes": [BOX],
    "notes": "clear", "status": "annotated",
}  # fmt: skip
PROBE = Probe(
    "docvqa:1", "a.png", "a", "?", "open", "", "", ((0.1, 0.2, 0.3, 0.25), (0.5, 0.5, 0.6, 0.6)),
    answers=("2000",), roles=("answer_value", "field_label"), task="docvqa",
)  # fmt: skip


def evidence(path: Path, size: tuple[int, int] = (1000, 800)) -> dict[str, Evidence]:
    return typed_rows.evidence_of_rows([PROBE], typed_rows.read_typed_rows(path), lambda image: size)


def test_rows_are_written_as_read_and_those_annotated_are_evidence_in_pixels_as_shown(
    save: Save, tmp_path: Path
) -> None:
    path = save(ROW, {**ROW, "sample_id": "docvqa:2", "boxes": [], "status": "not_visible"})
    typed_rows.write_typed_rows(tmp_path / "again.jsonl", typed_rows.read_typed_rows(path))
    assert list(map(json.loads, (tmp_path / "again.jsonl").open())) == list(map(json.loads, path.open()))
    found = evidence(save(ROW), (3200, 2400))["docvqa:1"]
    assert found.regions == ((310 / 1600, 420 / 1200, 390 / 1600, 440 / 1200),)
    assert found.roles == ("answer_value",)
    for status in typed_rows.STATUSES:
        assert bool(evidence(save({**ROW, "status": status}))) == (status == "annotated")
    shown = {(3200, 2400): (1600, 1200), (1000, 800): (1000, 800), (500, 5000): (160, 1600), (1, 9000): (1, 1600)}
    assert {size: typed_rows.shown_size(*size) for size in shown} == shown, "no side above 1600 pixels"
    row = typed_rows.typed_row(PROBE, 3200, 1600)
    assert row.status == "needs_review"
    assert [box.label for box in row.boxes] == ["answer_value:2000", "field_label:"]
    again = row.evidence(1600, 800)
    assert again.roles == PROBE.roles
    for region, expected in zip(again.regions, PROBE.regions, strict=True):
        assert region == pytest.approx(expected, abs=1e-5)
    assert typed_rows.typed_row(replace(PROBE, regions=(), roles=()), 10, 10).status == "unannotated"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"status": "done"}, "status 'done' is not one of annotated, needs_review"),
        ({"sample_id": ""}, "has no sample_id"),
        ({"boxes": {}}, "boxes {} are not a list"),
        ({"boxes": [{**BOX, "w": None}]}, "is not an object with numbers x, y, w, h and a label"),
        ({"boxes": [{**BOX, "label": ""}]}, "label '' does not begin with one of answer_value"),
        ({"boxes": [{**BOX, "label": "total:2000"}]}, "label 'total:2000' does not begin with one of answer_value"),
        ({"colour": "red"}, "unknown key 'colour'"),
        ({}, "sample_id 'docvqa:1' occurs twice"),
    ],
)
def test_a_row_that_is_not_one_is_refused_with_its_line(
    save: Save, changes: dict[str, Any], says: str, refused: Refused
) -> None:
    path = save(ROW, {**ROW, **changes})
    assert refused(says, typed_rows.read_typed_rows, path).startswith("TMP/rows.jsonl line 2: ")


def test_a_complete_set_has_nothing_left_to_do(save: Save, refused: Refused) -> None:
    path = save(ROW, {**ROW, "sample_id": "docvqa:2", "status": "uncertain"})
    assert len(typed_rows.read_typed_rows(path)) == 2
    refused("uncertain, not annotated", typed_rows.read_typed_rows, path, complete=True)
    path = save({**ROW, "boxes": [{**BOX, "label": "answer_value:smoke test"}]})
    refused("trial run", typed_rows.read_typed_rows, path, complete=True)
    refused("holds no rows", typed_rows.read_typed_rows, save())


def test_a_box_lies_within_its_image_up_to_a_pixel(save: Save, refused: Refused) -> None:
    for boxes, says in (
        ([{**BOX, "w": 0}], "box 'answer_value:2000' has no width or no height"),
        ([{**BOX, "x": 925}], "box 'answer_value:2000' leaves its image of 1000 x 800 pixels"),
        ([{**BOX, "y": -1.5}], "leaves its image"),
        ([{**BOX, "x": 1000, "w": 1}], "lies outside its image"),
        ([], "docvqa:1 is annotated but has no box"),
    ):
        refused(says, evidence, save({**ROW, "boxes": boxes}))
    (region,) = evidence(save({**ROW, "boxes": [{**BOX, "x": 921}]}))["docvqa:1"].regions
    assert region == (0.921, 0.525, 1.0, 0.55)


# From a published file to probes with evidence, on the command line.


@pytest.fixture
def docvqa(stand_ins: StandIns, tmp_path: Path) -> Path:
    path = tmp_path / "docvqa.jsonl"
    output("build", stand_ins.file("docvqa/val_v1.0_withQT.json"), "--out", path)
    return path


@pytest.fixture
def images(stand_ins: StandIns) -> Path:
    return stand_ins.file("docvqa")


def test_questions_are_built_with_decoys_and_all_of_their_images(stand_ins: StandIns, tmp_path: Path) -> None:
    build = ["build", *stand_ins.shards("textvqa/validation-*.parquet"), "--out", tmp_path / "t.jsonl"]
    assert refusal(*build).endswith("holds the images; say with --images where they are to be unpacked")
    text = output(*build, "--images", tmp_path / "images")
    for said in ("12 images, 24 questions", "unpacked     12 of 12 images", "24 probes (24 open) from 12 images\n"):
        assert said in text
    found = read_probes(tmp_path / "t.jsonl")
    assert found.construction == {
        "name": "textvqa", "seed": 17, "limit_images": None, "shuffle_images": False, "decoys": True,
    }  # fmt: skip
    assert all(probe.decoy and probe.decoy.casefold() != probe.answers[0].casefold() for probe in found.probes)
    assert "unpacked     0 of 12 images" in output(*build, "--images", tmp_path / "images")
    assert str(tmp_path) not in (tmp_path / "t.jsonl").read_text()


def test_a_sample_unpacks_only_its_own_images(stand_ins: StandIns, tmp_path: Path) -> None:
    out = tmp_path / "o.jsonl"
    build = ["build", *stand_ins.shards("ocrbench/test-*.parquet"), "--sample", 1, "--seed", 29, "--out", out]
    build += ["--images", tmp_path / "images"]
    assert "unpacked     10 of 10 images" in output(*build)
    found = read_probes(out)
    assert len(list((tmp_path / "images").iterdir())) == 10
    assert [probe.kind for probe in found.probes] == sorted({probe.kind for probe in found.probes})
    assert found.construction["sample"] == 1
    assert not any(probe.decoy for probe in found.probes if probe.decoy in probe.answers)
    output(*build, "--no-decoys")
    assert not any(probe.decoy for probe in read_probes(out).probes)
    output(*build, "--limit", 3)
    assert len(read_probes(out)) == 3


@pytest.mark.parametrize(
    ("file", "options", "says"),
    [
        ("mini_textocr/TextOCR_mini_val.json", ["--no-check-images", "--sample", 2], "--sample draws from questions"),
        ("", [], "name the annotations"),
        ("ocrbench/OCRBench.json", ["--sample", 1, "--shuffle-images"], "--sample draws at random already"),
        ("docvqa/val_v1.0_withQT.json", ["--images", "FOLDER"], "xnbl0037_1.png does not exist"),
    ],
)
def test_what_cannot_be_built_is_said(
    stand_ins: StandIns, data: Path, tmp_path: Path, file: str, options: list[Any], says: str
) -> None:
    files = [] if not file else [data / file if file.startswith("mini") else stand_ins.file(file)]
    given = [tmp_path if word == "FOLDER" else word for word in options]
    assert says in refusal("build", *files, *given, "--out", tmp_path / "p.jsonl")
    assert not (tmp_path / "p.jsonl").exists()


def test_the_answer_is_found_among_the_words_of_an_ocr_engine_where_it_was_drawn(
    docvqa: Path, images: Path, tmp_path: Path
) -> None:
    def evidence(*options: object) -> tuple[str, tuple[Probe, ...]]:
        said = output("evidence", docvqa, *options, "--images", images, "--out", tmp_path / "e.jsonl")
        return said, read_probes(tmp_path / "e.jsonl").probes

    said, answers = evidence("--ocr", images / "ocr_results")
    assert "24 of 24 questions" in said
    assert {role for probe in answers for role in probe.roles} == {"answer_value"}
    _, lines = evidence("--ocr", images / "ocr_results", "--line-context")
    for alone, line in zip(answers, lines, strict=True):
        assert line.regions[: len(alone.regions)] == alone.regions
        assert set(line.roles[len(alone.regions) :]) <= {"context"}
    assert any("context" in probe.roles for probe in lines)
    _, typed = evidence("--typed", images / "annotations.jsonl", "--complete")
    hits = 0
    for one, ocr in zip(typed, answers, strict=True):
        drawn = [region for region, role in zip(one.regions, one.roles, strict=True) if role == "answer_value"]
        hits += all(any(max(map(abs, map(float.__sub__, a, b))) < 0.01 for b in drawn) for a in ocr.regions)
    assert hits >= 20  # an answer may stand on its page twice
    probe = read_probes(docvqa).probes[0]
    text = output("show", docvqa, "--examples", 1)
    assert "24 (24 open)" in text
    assert f"open         {probe.question}  {probe.answers[0]}  [docvqa:34602]" in text


def test_published_boxes_become_regions_and_md5_splits(stand_ins: StandIns, tmp_path: Path, docvqa: Path) -> None:
    path, out = tmp_path / "t.jsonl", tmp_path / "boxed.jsonl"
    output("build", stand_ins.file("textvqa/TextVQA_0.5.1_val.json"), "--out", path)
    boxes = stand_ins.shards("textvqa/boxes-*.parquet")[0]
    said = output("evidence", path, "--questions", boxes, "--out", out)
    assert "24 of 24 questions, 24 regions (24 answer_value)" in said
    found = read_probes(out)
    assert {(len(probe.regions), probe.visible_boxes) for probe in found.probes} == {(1, ())}
    made = found.construction["evidence"]
    assert (made["from"], made["format"]) == ("questions", "textvqa_gt")
    assert [probe.answers for probe in found.probes] == [probe.answers for probe in read_probes(path).probes]
    text = output("split", docvqa, "--hash", "md5", "--group-by", "probe", "--out", tmp_path / "sides")
    assert "dev          13 probes" in text
    assert read_probes(tmp_path / "sides" / "dev.jsonl").construction["split"]["hash"] == "md5"
    assert "--hash md5 halves the set" in refusal("split", docvqa, "--hash", "md5", "--dev-buckets", 3)


@pytest.fixture
def boxed(docvqa: Path, images: Path, tmp_path: Path) -> Path:
    """The questions with evidence that somebody drew."""
    drawn = images / "annotations.jsonl"
    output("evidence", docvqa, "--typed", drawn, "--images", images, "--out", tmp_path / "typed.jsonl")
    return tmp_path / "typed.jsonl"


def test_a_pack_for_annotators_reads_back(docvqa: Path, boxed: Path, images: Path, tmp_path: Path) -> None:
    pack = tmp_path / "pack"
    output("annotation-pack", boxed, "--images", images, "--out", pack)
    with Image.open(pack / "images" / "documents" / "xnbl0037_1.jpg") as image:
        assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (448, 448))
    rows = pack / "annotations.jsonl"
    again = ["evidence", docvqa, "--typed", rows, "--images", images, "--out", tmp_path / "again.jsonl"]
    assert "no row is annotated; docvqa:34602 is needs_review" in refusal(*again)
    rows.write_text(rows.read_text().replace("needs_review", "annotated"))
    output(*again)
    for one, other in zip(read_probes(boxed).probes, read_probes(tmp_path / "again.jsonl").probes, strict=True):
        assert one.roles == other.roles
        for a, b in zip(one.regions, other.regions, strict=True):
            assert a == pytest.approx(b, abs=2e-5)


def test_noise_is_written_of_regions(docvqa: Path, boxed: Path, images: Path, tmp_path: Path) -> None:
    text = output("region-noise", boxed, "--images", images, "--out", tmp_path / "noise")
    assert len(list((tmp_path / "noise").iterdir())) == 9
    assert "clean.jsonl: 58 of 58 regions left" in text
    dropped = read_probes(tmp_path / "noise" / "drop_40pct.jsonl")
    assert dropped.construction["region_noise"]["seed"] == 20260717
    assert sum(len(probe.regions) for probe in dropped.probes) < 58
    assert "no probe has a region" in refusal("region-noise", docvqa, "--images", images, "--out", tmp_path / "n")


def test_only_questions_with_evidence_are_kept_where_asked(docvqa: Path, images: Path, tmp_path: Path) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text("".join((images / "annotations.jsonl").read_text().splitlines(keepends=True)[:5]))
    output("evidence", docvqa, "--typed", few, "--images", images, "--only", "--out", tmp_path / "e.jsonl")
    assert len(read_probes(tmp_path / "e.jsonl")) == 5


def test_evidence_says_what_it_lacks(stand_ins: StandIns, docvqa: Path, images: Path, tmp_path: Path) -> None:
    rows, other, words = images / "annotations.jsonl", tmp_path / "other.jsonl", tmp_path / "words.jsonl"
    other.write_text(stand_ins.file("textvqa/annotations.jsonl").read_text().replace("textvqa:", "other:"))
    write_probes(words, [Probe("a", "a.jpg", "a", "?", "yes", "T", "T", ())])
    for options, says in (
        ([], "say where evidence comes from with one of --questions, --ocr and --typed"),
        (["--typed", rows, "--ocr", rows], "one of"),
        (["--typed", rows, "--line-context"], "--line-context is for --ocr"),
        (["--ocr", rows, "--complete"], "--complete is for --typed"),
        (["--typed", rows], "boxes in pixels need the images"),
        (["--typed", other], "none of its 24 rows is about a question here"),
        (["--questions", *stand_ins.shards("textvqa/boxes-*.parquet")], "no evidence for any of the 24 questions"),
    ):
        assert says in refusal("evidence", docvqa, "--out", tmp_path / "e.jsonl", *options)
    said = refusal("evidence", words, "--typed", words, "--out", tmp_path / "e.jsonl")
    assert "probe 'a' is a yes/no question; its regions come from how it was built" in said
