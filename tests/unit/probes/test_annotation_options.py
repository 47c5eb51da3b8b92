"""The options that commands about annotations share, and what ``build`` says about images without a word to ask for."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sightline.probes import read_probes
from tests.unit.probes.formats.pages import paint
from tests.unit.probes.test_command import output, refusal

WORDS = [{"text": "Total", "box": [10, 20, 30, 10]}, {"text": "Sum", "box": [10, 60, 30, 10]}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """One image; its boxes are declared nowhere."""
    row = {"image_id": "r", "image": "r.jpg", "width": 1000, "height": 1000, "words": WORDS}
    (tmp_path / "r.jsonl").write_text(json.dumps(row))
    return tmp_path / "r.jsonl"


def test_every_command_that_reads_annotations_takes_the_options_of_the_format(path: Path, tmp_path: Path) -> None:
    probes = tmp_path / "p.jsonl"
    given = ["--format", "regions", "--format-option", "order=xywh", "--format-option", "units=pixels"]
    output("build", "--annotations", path, "--no-check-images", "--out", probes, *given)
    assert read_probes(probes).source["order"] == "xywh"
    output("regions", "--annotations", path, "--out", tmp_path / "again.jsonl", *given)
    assert (tmp_path / "again.jsonl").read_text().count('"Total"') == 1
    assert "negatives" in output("audit", probes, "--regions", path, *given)


def test_a_wrong_format_or_option_is_one_line(path: Path, tmp_path: Path) -> None:
    arguments = ["regions", "--annotations", path, "--out", tmp_path / "again.jsonl"]
    assert "no value; write order=VALUE" in refusal(*arguments, "--format-option", "order")
    said = refusal(*arguments, "--min-annotation-area", 1)
    assert said == "format regions has no option --min-annotation-area; formats that have it: coco_text, textocr"
    assert "format regions has no option 'images'; known: order" in refusal(*arguments, "--format-option", "images=x")
    assert "did you mean 'regions'" in refusal(*arguments, "--format", "region")
    assert not (tmp_path / "again.jsonl").exists()


def in_one_line(text: str) -> str:
    """Help without the frame and the line breaks of its table."""
    return re.sub(r"[│\s]+", " ", text)


def test_help_and_list_name_the_formats_and_their_options() -> None:
    for command in ("build", "regions", "audit"):
        assert "hocr, ms_read, ocrbench, page_xml, qa, regions, textocr, textvqa" in in_one_line(
            output(command, "--help")
        )
    text = output("formats")
    assert "textocr      one JSON document" in text
    for flag in ("--boxes", "--units", "--pairing", "--min-annotation-area", "--format-option small_boxes"):
        assert flag in text


def test_build_says_why_words_were_no_candidates_and_which_option_would_help(tmp_path: Path) -> None:
    small, large = [0.1, 0.1, 0.15, 0.11], [0.1, 0.2, 0.5, 0.4]
    pages = [[("Total", small)], [("Total", large), ("Sum", large)], [("Amount", large), ("Change", large)]]
    rows = [{"sightline_regions": 1, "boxes": "xyxy", "units": "normalised"}]
    for number, words in enumerate(pages):
        rows.append({"image": f"{number}.jpg", "words": [{"text": text, "box": box} for text, box in words]})
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, rows)))
    arguments = ["build", "--annotations", tmp_path / "r.jsonl", "--no-check-images", "--out", tmp_path / "p.jsonl"]
    text = output(*arguments)
    assert "from 1 images of 500 asked for; 2 images without a candidate word\n" in text
    helps = "a larger --max-area would give one to 2 of the 2 images"
    assert f"no candidate 4 words too large, 1 word too short; {helps}\n" in text
    assert "no candidate" not in output(*arguments, "--max-area", 0.1)
    assert len(read_probes(tmp_path / "p.jsonl").image_ids) == 3


def test_a_file_whose_images_are_all_excluded_says_just_that(path: Path, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("r\n")
    said = refusal(
        "build", "--annotations", path, "--no-check-images", "--out", tmp_path / "p.jsonl", "--boxes", "xywh",
        "--units", "pixels", "--exclude", tmp_path / "ids.txt",
    )  # fmt: skip
    assert said.endswith("gave a probe (0 without a candidate word, 1 excluded)")


def test_lines_are_read_as_lines_and_built_strictly(tmp_path: Path) -> None:
    form = {
        "form": [
            {
                "text": "BILL TO :",
                "box": [100, 100, 190, 114],
                "words": [{"text": "BILL", "box": [100, 100, 140, 114]}, {"text": "TO", "box": [150, 100, 170, 114]}],
            }
        ]
    }
    (tmp_path / "f.json").write_text(json.dumps(form))
    paint(tmp_path / "f.png")
    arguments = ["build", "--annotations", tmp_path / "f.json", "--out", tmp_path / "p.jsonl", "--max-area", 0.01]
    text = output(*arguments)
    assert f"images       {tmp_path}\n" in text
    words = read_probes(tmp_path / "p.jsonl")
    assert (words.probes[0].target_text, words.construction["version"]) == ("BILL", "confirmation-v2")
    output(*arguments, "--lines")
    lines = read_probes(tmp_path / "p.jsonl")
    assert (lines.probes[0].target_text, lines.construction["version"]) == ("BILL TO", "strict-v3")
    assert (lines.construction["lines"], lines.source["level"]) == (True, "lines")
    output(*arguments, "--lines", "--version", "confirmation-v2")
    assert read_probes(tmp_path / "p.jsonl").probes[0].target_text == "BILL TO "
    output("regions", "--annotations", tmp_path / "f.json", "--lines", "--out", tmp_path / "r.jsonl")
    assert '"BILL TO :"' in (tmp_path / "r.jsonl").read_text()


def test_a_folder_is_read_only_by_formats_of_pages(tmp_path: Path) -> None:
    arguments = ["regions", "--annotations", tmp_path, "--out", tmp_path / "r.jsonl"]
    assert "no file in this folder is in a format of which folders are read (alto, funsd," in refusal(*arguments)
    assert refusal(*arguments, "--format", "textocr").endswith("is a folder; format textocr reads single files")
    assert refusal(*arguments, "--format", "alto").endswith("holds no alto file (*.xml, *.alto)")
