"""Which format reads a file, and with which options."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest

from sightline.errors import SightlineError
from sightline.probes.annotations import detect_format, load_regions
from sightline.probes.formats import FORMATS, Format, FormatOption
from sightline.probes.regions import ImageRegions, Ingest, IngestCounts, Word

BOX = (0.1, 0.1, 0.4, 0.3)
TEXTOCR = {
    "imgs": {"a": {"id": "a", "width": 100, "height": 200, "file_name": "a.jpg"}},
    "anns": {"a_1": {"bbox": [10, 20, 30, 40], "utf8_string": "Total", "area": 1200.0}},
    "imgToAnns": {"a": ["a_1"]},
}
RECORD = {"image_id": "r", "image": "r.jpg", "words": [{"text": "Total", "box": list(BOX)}]}


@dataclass(frozen=True)
class Columns(Format):
    """One word a line: image, text. Every word fills the same box."""

    name: ClassVar[str] = "columns"
    description: ClassVar[str] = "image and text, one word a line"
    artifact: ClassVar[dict[str, Any]] = {"separator": "|"}

    separator: Annotated[str, FormatOption("What stands between the two.")] = ";"
    first_line: int = 1

    @classmethod
    def recognises(cls, start: str) -> bool:
        return start.startswith("image;")

    def read(self, path: Path, images: Path | None) -> Ingest:
        lines = path.read_text().splitlines()[self.first_line :]
        rows = [line.split(self.separator) for line in lines]
        records = tuple(ImageRegions(image, image, (Word(text, BOX),)) for image, text in rows)
        return Ingest(records, IngestCounts(images=len(records), boxes=len(records)))


@pytest.fixture
def columns(tmp_path: Path) -> Iterator[Path]:
    """A file in somebody else's format, which is known for the length of one test."""
    path = tmp_path / "words.txt"
    path.write_text("image;text\na.jpg;Total\nb.jpg;Sum\n")
    FORMATS.add("columns", Columns)
    yield path
    del FORMATS._entries["columns"]


def save(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_the_formats_that_come_along() -> None:
    ours = {"alto", "coco_text", "csv", "funsd", "gsr", "hocr", "page_xml", "regions", "textocr", "xfund"}
    assert set(FORMATS) >= ours
    for name in FORMATS:
        kind = FORMATS.get(name)
        assert kind.name == name
        assert kind.description
        assert "\n" not in kind.description


def test_a_file_is_recognised_by_how_it_begins(tmp_path: Path, columns: Path) -> None:
    assert detect_format(save(tmp_path / "t", TEXTOCR)) == "textocr"
    assert detect_format(save(tmp_path / "t", {"info": {"year": 2021}, **TEXTOCR})) == "textocr"
    assert detect_format(save(tmp_path / "r", RECORD)) == "regions"
    assert detect_format(save(tmp_path / "r", {"sightline_regions": 1})) == "regions"
    assert detect_format(columns) == "columns"


@pytest.mark.parametrize("text", ["", "[1, 2]", '{"images": [], "annotations": []}', '{\n  "words": []\n}', "a,b\n"])
def test_a_file_that_nobody_recognises_is_refused_with_the_known_formats(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").write_text(text)
    known = ", ".join(FORMATS)
    with pytest.raises(SightlineError, match=rf"in no known annotation format \({known}\); --format"):
        detect_format(tmp_path / "x")


def test_a_file_that_two_formats_recognise_needs_a_word_from_the_user(
    columns: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FORMATS.get("textocr"), "recognises", lambda start: True)
    with pytest.raises(SightlineError, match=r"words\.txt could be columns or textocr; say which with --format"):
        detect_format(columns)
    assert len(load_regions(columns, file_format="columns").records) == 2


def test_an_unknown_format_is_met_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(SightlineError, match="unknown annotation format 'textorc'; did you mean 'textocr'"):
        load_regions(save(tmp_path / "t", TEXTOCR), file_format="textorc")


def test_options_are_those_of_the_format_and_end_up_in_the_source(columns: Path) -> None:
    columns.write_text("image;text\nskipped;too\na.jpg/Total\n")
    ingest = load_regions(columns, separator="/", first_line="2")
    assert [record.image for record in ingest.records] == ["a.jpg"]
    assert list(ingest.source) == ["annotations", "digest", "format", "separator", "first_line", "images", "boxes"]
    assert (ingest.source["format"], ingest.source["separator"], ingest.source["first_line"]) == ("columns", "/", 2)


def test_the_artifact_profile_sets_what_the_command_line_leaves_open(columns: Path) -> None:
    columns.write_text("image;text\na.jpg|To/tal\n")
    assert load_regions(columns, profile="artifact").records[0].words[0].text == "To/tal"
    assert load_regions(columns, profile="artifact", separator="/").records[0].image == "a.jpg|To"


def test_the_artifact_profile_of_textocr_is_the_shifted_pairing_with_tiny_boxes_as_fractions(tmp_path: Path) -> None:
    path = save(tmp_path / "t", TEXTOCR)
    facts = ("pairing", "small_boxes", "min_annotation_area")
    assert [load_regions(path).source[fact] for fact in facts] == ["paired", "pixels", 1.0]
    artifact = load_regions(path, profile="artifact", pairing="paired", min_annotation_area=2)
    assert [artifact.source[fact] for fact in facts] == ["paired", "normalised", 2.0]


def test_an_option_of_other_formats_is_refused_by_naming_them(tmp_path: Path, columns: Path) -> None:
    record = save(tmp_path / "r", RECORD)
    with pytest.raises(SightlineError, match=r"^format regions has no option --pairing; formats .*: textocr$"):
        load_regions(record, pairing="shifted")
    with pytest.raises(SightlineError, match=r"has no option --boxes; formats that have it: qa, regions, textocr$"):
        load_regions(columns, order="xywh")
    with pytest.raises(SightlineError, match=r"no option --format-option separator; formats that have it: columns$"):
        load_regions(record, separator="/")


def test_an_option_that_no_format_has_is_met_with_the_nearest_name(tmp_path: Path) -> None:
    path = save(tmp_path / "t", TEXTOCR)
    with pytest.raises(SightlineError, match="format textocr has no option 'paring'; did you mean 'pairing'"):
        load_regions(path, paring="shifted")
    with pytest.raises(SightlineError, match="no option 'x'; known: order, units, pairing, small_boxes, min_ann"):
        load_regions(path, x=1)


def test_a_wrong_value_is_refused_with_what_is_possible(tmp_path: Path, columns: Path) -> None:
    path = save(tmp_path / "t", TEXTOCR)
    with pytest.raises(SightlineError, match=r"^--pairing 'x': input should be 'paired' or 'shifted' \(format textocr"):
        load_regions(path, pairing="x")
    with pytest.raises(SightlineError, match="--format-option first_line 'two': input should be a valid integer"):
        load_regions(columns, first_line="two")


def test_what_textocr_is_by_definition_may_be_said(tmp_path: Path) -> None:
    path = save(tmp_path / "t", TEXTOCR)
    assert load_regions(path, order="xywh", units="pixels").records == load_regions(path).records


def test_an_option_without_default_is_needed(columns: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Needy(Columns):
        name: ClassVar[str] = "needy"
        last_line: int = field(kw_only=True)

    monkeypatch.setattr(FORMATS, "_entries", {**FORMATS._entries, "needy": Needy})
    with pytest.raises(SightlineError, match=r"^format needy needs --format-option last_line=VALUE$"):
        load_regions(columns, file_format="needy")
    assert load_regions(columns, file_format="needy", last_line=9).source["last_line"] == 9
