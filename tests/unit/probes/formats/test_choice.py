"""Which format reads a file, and with which options."""

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
from tests.refusals import Refused

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


@dataclass(frozen=True)
class Needy(Columns):
    """Likewise, with an option that has no default."""

    name: ClassVar[str] = "needy"
    last_line: int = field(kw_only=True)


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


def test_files_are_told_apart(tmp_path: Path, data: Path, columns: Path) -> None:
    for found, content in (
        ("textocr", TEXTOCR),
        ("textocr", {"info": {"year": 2021}, **TEXTOCR}),
        ("regions", RECORD),
        ("regions", {"sightline_regions": 1}),
    ):
        assert detect_format(save(tmp_path / "t", content)) == found
    assert detect_format(data / "mini_textocr" / "TextOCR_mini_val.json") == "textocr"
    assert detect_format(data / "golden_e2e" / "inputs" / "regions.jsonl.gz") == "regions"
    assert detect_format(columns) == "columns"


def test_a_file_that_two_formats_recognise_needs_a_word_from_the_user(
    columns: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.setattr(FORMATS.get("textocr"), "recognises", lambda start: True)
    refused("words.txt could be columns or textocr; say which with --format", detect_format, columns)
    assert len(load_regions(columns, file_format="columns").records) == 2


def test_a_file_that_nobody_recognises_is_refused_with_the_known_formats(tmp_path: Path) -> None:
    path = tmp_path / "questions.csv"
    for text in ("", "[1, 2]", '{"images": [], "annotations": []}', '{\n  "words": []\n}', "1,2\n"):
        path.write_text(text)
        with pytest.raises(SightlineError, match=rf"in no known annotation format \({', '.join(FORMATS)}\); --format"):
            detect_format(path)


def test_a_table_without_the_columns_of_a_question_is_told_what_is_needed(tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "questions.csv"
    for line in ("file,prompt,label", "file;prompt;label", "File\tPrompt\tLabel"):
        path.write_text(f"{line}\n")
        refused("the columns file, prompt, label; questions need image, question and answers", detect_format, path)


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        ("textocr", {"file_format": "textorc"}, "unknown annotation format 'textorc'; did you mean 'textocr'"),
        ("regions", {"pairing": "shifted"}, "format regions has no option --pairing; formats"),
        ("columns", {"order": "xywh"}, "has no option --boxes; formats that have it: qa, regions, textocr"),
        ("regions", {"separator": "/"}, "no option --format-option separator; formats that have it: columns"),
        ("textocr", {"paring": "shifted"}, "format textocr has no option 'paring'; did you mean 'pairing'"),
        ("textocr", {"x": 1}, "no option 'x'; known: order, units, pairing, small_boxes, min_ann"),
        ("textocr", {"pairing": "x"}, "--pairing 'x': input should be 'paired' or 'shifted' (format textocr"),
        ("textocr", {"order": "xyxy"}, "TextOCR boxes are xywh in pixels by definition"),
        ("columns", {"first_line": "two"}, "--format-option first_line 'two': input should be a valid integer"),
    ],
)
def test_a_wrong_option_is_refused_with_what_is_possible(
    tmp_path: Path, columns: Path, kind: str, options: dict[str, Any], says: str, refused: Refused
) -> None:
    files = {"textocr": save(tmp_path / "t", TEXTOCR), "regions": save(tmp_path / "r", RECORD), "columns": columns}
    refused(says, load_regions, files[kind], **options)


def test_options_end_up_in_the_source(columns: Path, tmp_path: Path) -> None:
    columns.write_text("image;text\nskipped;too\na.jpg/Total\n")
    ingest = load_regions(columns, separator="/", first_line="2")
    assert [record.image for record in ingest.records] == ["a.jpg"]
    assert list(ingest.source) == ["annotations", "digest", "format", "separator", "first_line", "images", "boxes"]
    assert (ingest.source["format"], ingest.source["separator"], ingest.source["first_line"]) == ("columns", "/", 2)
    path = save(tmp_path / "t", TEXTOCR)
    assert load_regions(path, order="xywh", units="pixels").records == load_regions(path).records


def test_the_profile_sets_what_is_not_given(columns: Path, tmp_path: Path) -> None:
    columns.write_text("image;text\na.jpg|To/tal\n")
    assert load_regions(columns, profile="artifact").records[0].words[0].text == "To/tal"
    assert load_regions(columns, profile="artifact", separator="/").records[0].image == "a.jpg|To"
    path = save(tmp_path / "t", TEXTOCR)
    facts = ("pairing", "small_boxes", "min_annotation_area")
    assert [load_regions(path).source[fact] for fact in facts] == ["paired", "pixels", 1.0]
    artifact = load_regions(path, profile="artifact", pairing="paired", min_annotation_area=2)
    assert [artifact.source[fact] for fact in facts] == ["paired", "normalised", 2.0]


def test_an_option_without_a_default_is_needed(
    columns: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.setattr(FORMATS, "_entries", {**FORMATS._entries, "needy": Needy})
    refused("format needy needs --format-option last_line=VALUE", load_regions, columns, file_format="needy")
    columns.write_text("image;text\na.jpg;Total\n")
    assert load_regions(columns, file_format="needy", last_line=9).source["last_line"] == 9
