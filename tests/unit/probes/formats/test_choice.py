"""Which format reads a file, and with which options."""

import json
import random
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest

from sightline.errors import SightlineError
from sightline.probes import read_probes
from sightline.probes.annotations import detect_format, load_regions
from sightline.probes.formats import FORMATS, Format, FormatOption
from sightline.probes.regions import ImageRegions, Ingest, IngestCounts, Word
from tests.refusals import Refused
from tests.unit.probes.formats.pages import paint
from tests.unit.probes.test_command import output, refusal
from tests.unit.probes.test_pages import section

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


def test_a_file_that_two_formats_recognise_needs_a_word_from_the_user(
    tmp_path: Path, columns: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    assert detect_format(save(tmp_path / "t", TEXTOCR)) == "textocr"
    assert detect_format(save(tmp_path / "t", {"info": {"year": 2021}, **TEXTOCR})) == "textocr"
    assert detect_format(save(tmp_path / "r", RECORD)) == "regions"
    assert detect_format(save(tmp_path / "r", {"sightline_regions": 1})) == "regions"
    assert detect_format(columns) == "columns"
    monkeypatch.setattr(FORMATS.get("textocr"), "recognises", lambda start: True)
    refused("words.txt could be columns or textocr; say which with --format", detect_format, columns)
    assert len(load_regions(columns, file_format="columns").records) == 2


@pytest.mark.parametrize("text", ["", "[1, 2]", '{"images": [], "annotations": []}', '{\n  "words": []\n}', "1,2\n"])
def test_a_file_that_nobody_recognises_is_refused_with_the_known_formats(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(SightlineError, match=rf"in no known annotation format \({', '.join(FORMATS)}\); --format"):
        detect_format(tmp_path / "x")


@pytest.mark.parametrize("line", ["file,prompt,label", "file;prompt;label", "File\tPrompt\tLabel"])
def test_a_table_with_other_columns_is_told_what_is_needed(line: str, tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "questions.csv"
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
    textocr = files["textocr"]
    assert load_regions(textocr, order="xywh", units="pixels").records == load_regions(textocr).records


def test_options_end_up_in_the_source_and_the_profile_sets_the_rest(columns: Path, tmp_path: Path) -> None:
    columns.write_text("image;text\nskipped;too\na.jpg/Total\n")
    ingest = load_regions(columns, separator="/", first_line="2")
    assert [record.image for record in ingest.records] == ["a.jpg"]
    assert list(ingest.source) == ["annotations", "digest", "format", "separator", "first_line", "images", "boxes"]
    assert (ingest.source["format"], ingest.source["separator"], ingest.source["first_line"]) == ("columns", "/", 2)
    columns.write_text("image;text\na.jpg|To/tal\n")
    assert load_regions(columns, profile="artifact").records[0].words[0].text == "To/tal"
    assert load_regions(columns, profile="artifact", separator="/").records[0].image == "a.jpg|To"
    path = save(tmp_path / "t", TEXTOCR)
    facts = ("pairing", "small_boxes", "min_annotation_area")
    assert [load_regions(path).source[fact] for fact in facts] == ["paired", "pixels", 1.0]
    artifact = load_regions(path, profile="artifact", pairing="paired", min_annotation_area=2)
    assert [artifact.source[fact] for fact in facts] == ["paired", "normalised", 2.0]


def test_an_option_without_default_is_needed(columns: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    @dataclass(frozen=True)
    class Needy(Columns):
        name: ClassVar[str] = "needy"
        last_line: int = field(kw_only=True)

    monkeypatch.setattr(FORMATS, "_entries", {**FORMATS._entries, "needy": Needy})
    refused("format needy needs --format-option last_line=VALUE", load_regions, columns, file_format="needy")
    assert load_regions(columns, file_format="needy", last_line=9).source["last_line"] == 9


# The examples of the page about formats: its files are written, its commands run, their output is the page's.


QUESTION_IMAGES = [
    "train_images/003a8ae2ef43b901.jpg", "documents/pybv0228_81.png", "OCRBench_Images/IIIT5K/test/918_1.png",
    "receipt.png",
]  # fmt: skip
SECTIONS: dict[str, list[str]] = {
    "TextOCR and COCO-Text": [],
    "Tables of boxes": ["receipt.png"],
    "Forms: FUNSD and XFUND": ["funsd/images/form.png"],
    "Pages: hOCR, ALTO, PAGE XML": [],
    "Relations: GSR-Bench": ["val2017/000000000139.jpg"],
    "Open questions: TextVQA, DocVQA, OCRBench, your own": QUESTION_IMAGES,
}
"""Section -> the images, of 1000 x 800 pixels, that its files need."""


def files(text: str) -> dict[str, str]:
    """Name -> content of the blocks that follow a line with nothing but a name."""
    return dict(re.findall(r"^`(\S+)`:\n\n```\w+\n(.*?)^```", text, re.DOTALL | re.MULTILINE))


def commands(text: str) -> list[tuple[str, str]]:
    """What is typed and what it prints, from all console blocks."""
    typed = re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [found for block in typed for found in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", block, re.MULTILINE)]


def write_examples(folder: Path, title: str) -> list[Path]:
    """The files of a section and the images they need."""
    written = []
    for name, content in files(section("probes.md", title)).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        written.append(path)
    for name in SECTIONS[title]:
        paint(folder / name)
    return written


@pytest.mark.parametrize("title", SECTIONS)
def test_the_examples_print_what_the_page_says(tmp_path: Path, title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_examples(tmp_path, title)
    asked = commands(section("probes.md", title))
    assert asked
    for command, said in asked:
        program, group, *arguments = shlex.split(command)
        assert (program, group) == ("sightline", "probes")
        assert output(*arguments) == said


def test_every_format_of_files_that_others_publish_has_an_example(tmp_path: Path) -> None:
    paths = [path for title in SECTIONS for path in write_examples(tmp_path, title)]
    found = {detect_format(path) for path in paths if not path.name.startswith("instances_")}
    assert found == set(FORMATS) - {"regions", "textocr"}


# Damaged annotation files: read as far as they make sense, or refused in one line, never a traceback.


TRIES = 60
NOISE = b'0123456789"<>/,.;{}[]=- \n\xff'


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Cut off somewhere, or with a few bytes changed or missing."""
    if rng.random() < 0.3:
        return content[: rng.randrange(len(content))]
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data))
        if rng.random() < 0.5:
            data[place] = rng.choice(NOISE)
        else:
            del data[place : place + rng.randint(1, 12)]
    return bytes(data)


@pytest.mark.parametrize("title", SECTIONS)
def test_a_damaged_file_is_read_or_refused_in_one_line(tmp_path: Path, title: str) -> None:
    rng = random.Random(20260720)
    for path in write_examples(tmp_path, title):
        if path.name.startswith("instances_"):
            continue
        name, whole = detect_format(path), path.read_bytes()
        refusals = []
        for _ in range(TRIES):
            path.write_bytes(damaged(whole, rng))
            try:
                load_regions(path, file_format=name)
            except SightlineError as problem:
                refusals.append(str(problem))
        assert refusals
        assert all(path.name in said and "\n" not in said for said in refusals)


# The options that commands about annotations share, and what ``build`` says about images without a word to ask for.


WORDS = [{"text": "Total", "box": [10, 20, 30, 10]}, {"text": "Sum", "box": [10, 60, 30, 10]}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """One image; its boxes are declared nowhere."""
    row = {"image_id": "r", "image": "r.jpg", "width": 1000, "height": 1000, "words": WORDS}
    (tmp_path / "r.jsonl").write_text(json.dumps(row))
    return tmp_path / "r.jsonl"


def test_a_wrong_format_or_option_is_one_line_and_every_command_takes_them(path: Path, tmp_path: Path) -> None:
    probes = tmp_path / "p.jsonl"
    given = ["--format", "regions", "--format-option", "order=xywh", "--format-option", "units=pixels"]
    output("build", "--annotations", path, "--no-check-images", "--out", probes, *given)
    assert read_probes(probes).source["order"] == "xywh"
    output("regions", "--annotations", path, "--out", tmp_path / "again.jsonl", *given)
    assert (tmp_path / "again.jsonl").read_text().count('"Total"') == 1
    assert "negatives" in output("audit", probes, "--regions", path, *given)
    arguments = ["regions", "--annotations", path, "--out", tmp_path / "none.jsonl"]
    assert "no value; write order=VALUE" in refusal(*arguments, "--format-option", "order")
    said = refusal(*arguments, "--min-annotation-area", 1)
    assert said == "format regions has no option --min-annotation-area; formats that have it: coco_text, textocr"
    assert "format regions has no option 'images'; known: order" in refusal(*arguments, "--format-option", "images=x")
    assert "did you mean 'regions'" in refusal(*arguments, "--format", "region")
    assert not (tmp_path / "none.jsonl").exists()


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


def test_what_gives_no_probe_and_a_folder_of_no_pages_are_said(path: Path, tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("r\n")
    said = refusal(
        "build", "--annotations", path, "--no-check-images", "--out", tmp_path / "p.jsonl", "--boxes", "xywh",
        "--units", "pixels", "--exclude", tmp_path / "ids.txt",
    )  # fmt: skip
    assert said.endswith("gave a probe (0 without a candidate word, 1 excluded)")
    (tmp_path / "empty").mkdir()
    arguments = ["regions", "--annotations", tmp_path / "empty", "--out", tmp_path / "r.jsonl"]
    assert "no file in this folder is in a format of which folders are read (alto, funsd," in refusal(*arguments)
    assert refusal(*arguments, "--format", "textocr").endswith("is a folder; format textocr reads single files")
    assert refusal(*arguments, "--format", "alto").endswith("holds no alto file (*.xml, *.alto)")


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
