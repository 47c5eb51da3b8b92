"""Boxes in a table, as spreadsheets and scripts write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sightline.probes.annotations import detect_format, load_regions
from tests.unit.probes.formats.pages import in_pixels, paint, refused

WORDS = [("Invoice", (100, 100, 160, 114)), ("12.07.2031", (100, 120, 240, 136))]

TABLES = {
    "corners": "image,text,x1,y1,x2,y2\nr.png,Invoice,100,100,160,114\nr.png,12.07.2031,100,120,240,136\n",
    "width and height of the box": "image,text,x,y,w,h\nr.png,Invoice,100,100,60,14\nr.png,12.07.2031,100,120,140,16\n",
    "other names and order": (
        "Xmin,Ymin,Xmax,Ymax,Transcription,File Name\n100,100,160,114,Invoice,r.png\n100,120,240,136,12.07.2031,r.png\n"
    ),
    "semicolons": "image;text;left;top;width;height\nr.png;Invoice;100;100;60;14\nr.png;12.07.2031;100;120;140;16\n",
    "tabs": "image\ttext\tx1\ty1\tx2\ty2\nr.png\tInvoice\t100\t100\t160\t114\nr.png\t12.07.2031\t100\t120\t240\t136\n",
    "eight columns": (
        "image,x1,y1,x2,y2,x3,y3,x4,y4,text\n"
        "r.png,100,101,160,100,160,114,101,113,Invoice\nr.png,100,120,240,120,240,136,100,136,12.07.2031\n"
    ),
    "a polygon": (
        'image,text,polygon\nr.png,Invoice,"100,101 160,100 160,114 101,113"\n'
        'r.png,12.07.2031,"[[100, 120], [240, 120], [240, 136], [100, 136]]"\n'
    ),
    "the image's size": (
        "image,width,height,text,x1,y1,x2,y2\n"
        "r.png,1000,800,Invoice,100,100,160,114\nr.png,1000,800,12.07.2031,100,120,240,136\n"
    ),
}


def save(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    (folder / "words.csv").write_text(text, encoding=encoding)
    return folder / "words.csv"


@pytest.mark.parametrize("table", TABLES)
def test_columns_are_understood_by_their_names(tmp_path: Path, table: str) -> None:
    paint(tmp_path / "r.png")
    path = save(tmp_path, TABLES[table])
    assert detect_format(path) == "csv"
    ingest = load_regions(path)
    assert in_pixels(ingest.records[0]) == WORDS
    assert (ingest.records[0].image, ingest.records[0].width) == ("r.png", 1000)
    assert ingest.images == tmp_path


def test_a_table_that_says_the_image_size_needs_no_image(tmp_path: Path) -> None:
    assert in_pixels(load_regions(save(tmp_path, TABLES["the image's size"])).records[0]) == WORDS
    refused(
        save(tmp_path, TABLES["corners"]), r"line 2: boxes in pixels need the size of 'r.png': .*--images, or columns"
    )


def test_fractions_are_declared_and_never_concluded(tmp_path: Path) -> None:
    path = save(tmp_path, "image,text,x1,y1,x2,y2\nr.png,Invoice,0.1,0.125,0.16,0.1425\n")
    paint(tmp_path / "r.png")
    refused(path, r"read as pixels, but no coordinate exceeds 1 \(--units normalised\)")
    (record,) = load_regions(path, units="normalised").records
    assert in_pixels(record) == WORDS[:1]
    refused(save(tmp_path, TABLES["corners"]), r"image 'r.png': every box is .*far outside", units="normalised")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_says_the_encoding(tmp_path: Path, encoding: str) -> None:
    paint(tmp_path / "r.png")
    path = save(tmp_path, "image,text,x1,y1,x2,y2\nr.png,Größe,100,100,160,114\n", encoding)
    assert detect_format(path) == "csv"
    assert load_regions(path).records[0].words[0].text == "Größe"


def test_another_encoding_has_to_be_named(tmp_path: Path) -> None:
    paint(tmp_path / "r.png")
    path = save(tmp_path, "image,text,x1,y1,x2,y2\nr.png,Größe,100,100,160,114\n", "cp1252")
    refused(path, "not utf-8 text .* --format-option encoding=cp1252")
    assert load_regions(path, encoding="cp1252").records[0].words[0].text == "Größe"
    refused(path, "not klingon text", encoding="klingon")


def test_quoted_texts_hold_delimiters_and_line_breaks(tmp_path: Path) -> None:
    paint(tmp_path / "r.png")
    path = save(tmp_path, 'image,text,x1,y1,x2,y2\n\nr.png,"a, ""b""\nc\u2028d",100,100,160,114\n')
    assert load_regions(path).records[0].words[0].text == 'a, "b" c d'


def test_images_may_be_named_by_their_id_and_lie_in_folders(tmp_path: Path) -> None:
    paint(tmp_path / "images" / "2024" / "r.png")
    (record,) = load_regions(save(tmp_path, TABLES["corners"].replace("r.png", "2024/r"))).records
    assert record.image == "2024/r.png"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("r.png,Invoice,100,100,160", "line 3: 5 cells under 6 columns"),
        ("r.png,Invoice,100,100,160,wide", "line 3: x1,y1,x2,y2 is '100,100,160,wide', which is not all numbers"),
        ("../r.png,Invoice,100,100,160,114", None),
        (",Invoice,100,100,160,114", "line 3: image name '' is empty"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, says: str | None) -> None:
    paint(tmp_path / "r.png")
    path = save(tmp_path, f"image,text,x1,y1,x2,y2\nr.png,Total,100,200,160,214\n{line}\n")
    if says is None:
        assert [record.image for record in load_regions(path).records] == ["r.png"]  # found under its last part
    else:
        refused(path, says)


def test_a_header_without_a_box_is_refused_with_what_is_needed(tmp_path: Path) -> None:
    path = save(tmp_path, "picture,word\nr.png,Invoice\n")
    refused(path, r"line 1: needs columns for the image \(image, .*the box .*; found picture, word", file_format="csv")
    refused(
        save(tmp_path, 'image,text,points\nr.png,x,"1,2"\n'), "line 2: points '1,2' is not a list of", images=tmp_path
    )


def test_a_format_made_for_a_table_goes_before_the_plain_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sightline.probes.formats import FORMATS

    path = save(tmp_path, TABLES["corners"])
    monkeypatch.setattr(FORMATS.get("textocr"), "recognises", lambda start: True)
    assert detect_format(path) == "textocr"
