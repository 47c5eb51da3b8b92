"""TextOCR, COCO-Text and tables of boxes: words that stand in one file for all images."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sightline.probes import read_textocr, write_regions
from sightline.probes.annotations import detect_format, load_regions
from sightline.probes.formats import FORMATS
from tests.refusals import Refused
from tests.unit.probes.conftest import Save
from tests.unit.probes.formats.pages import in_pixels, paint


def document(annotations: list[dict[str, Any]], **image: Any) -> dict[str, Any]:
    info = {"id": "a", "width": 100, "height": 200, "set": "val", "file_name": "train/a.jpg"} | image
    anns = {f"a_{i}": {"area": 50.0, **annotation} for i, annotation in enumerate(annotations)}
    return {"imgs": {"a": info}, "anns": anns, "imgToAnns": {"a": list(anns)}}


def word(text: str, box: Sequence[float], **more: Any) -> dict[str, Any]:
    return {"utf8_string": text, "bbox": box, **more}


BOXES = [(0.1, 0.1, 0.2, 0.2), (0.3, 0.1, 0.4, 0.2), (0.5, 0.1, 0.6, 0.2)]


def test_each_text_keeps_its_box_unless_the_artifacts_shift_is_asked_for(save: Save, tmp_path: Path) -> None:
    texts = [" first ", "", "third"]
    path = save(document([word(text, [10 + 20 * i, 20, 10, 20]) for i, text in enumerate(texts)]))
    ingest = read_textocr(path)
    (record,) = ingest.records
    assert [(word.text, word.box) for word in record.words] == list(zip(["first", "", "third"], BOXES, strict=True))
    assert (record.image, record.width, record.height, record.split) == ("train/a.jpg", 100, 200, "val")
    assert ingest.counts.boxes_without_text == 1
    (record,) = read_textocr(path, pairing="shifted").records
    assert [(word.text, word.box) for word in record.words] == list(zip(["first", "third", ""], BOXES, strict=True))
    write_regions(tmp_path / "r.jsonl", [record], layout="artifact")
    row = json.loads((tmp_path / "r.jsonl").read_text())
    assert row["ocr_tokens"] == [{"text": t, "bbox": list(b)} for t, b in zip(["first", "third"], BOXES, strict=False)]
    assert row["evidence_region_count"] == 3
    path = save(document([word("dot", [0, 0, 1, 1])]))
    assert read_textocr(path).records[0].words[0].box == (0.0, 0.0, 0.01, 0.005)
    assert read_textocr(path, small_boxes="normalised").records[0].words[0].box == (0.0, 0.0, 1.0, 1.0)


WHOLE = [1, 1, 10, 10]


def test_what_cannot_be_used_is_counted(save: Save) -> None:
    content = document(
        [
            word("edge", [-10, 180, 30, 40]), word("computed", WHOLE, area=None), word("outside", [150, 1, 10, 10]),
            word("flat", [1, 1, 10, 0]), word("short", [1, 1, 10]), word("infinite", [1, 1, float("inf"), 10]),
            word("vague", WHOLE, area="large"), word("vast", WHOLE, area=10**400), word("half \ud83d", WHOLE),
            word("tiny", WHOLE, area=0.5),
        ]
    )  # fmt: skip
    content["imgToAnns"]["a"].append("nowhere")
    content["imgs"]["b"] = content["imgs"]["a"]
    ingest = read_textocr(save(content))
    counts = ingest.counts
    assert ingest.records[0].words[0].box == (0.0, 0.9, 0.2, 1.0)
    assert (counts.boxes, counts.clipped_boxes, counts.dropped_no_area, counts.dropped_malformed) == (2, 1, 2, 5)
    assert (counts.dropped_small, counts.dropped_missing, counts.images_without_boxes) == (1, 1, 1)
    assert read_textocr(save(document([word("w", WHOLE)], width=0))).counts.dropped_no_area == 1


def test_what_is_no_such_document_is_refused(save: Save, tmp_path: Path, refused: Refused) -> None:
    outside = ("../a.jpg", "/etc/a.jpg", "train/../../a.jpg", "C:\\a.jpg", "..\\a.jpg", "")
    odd_image: dict[str, Any] = {"imgs": {"a": 3}, "anns": {}, "imgToAnns": {}}
    for content, says in (
        ({"imgs": {}}, "needs the objects imgs, anns and imgToAnns"),
        (odd_image, "image 'a': needs an object in imgs and a list in imgToAnns"),
        (document([], width="wide"), "image 'a': has no numeric width and height"),
        (document([], width=10**400), "image 'a': has no numeric width and height"),
        *(
            (document([word("w", [1, 1, 10, 10])], file_name=name), f"image 'a': image name {name!r}")
            for name in outside
        ),
    ):
        refused(says, read_textocr, save(content))
    (tmp_path / "broken.json").write_text('{"imgs": ')
    for name, reason in (("broken", "not a JSON document"), ("absent", "cannot be read: No such file")):
        refused(f"{name}.json: {reason}", read_textocr, tmp_path / f"{name}.json")


def annotation(number: int, box: list[float], **more: str) -> dict[str, Any]:
    said = {"class": "machine printed", "language": "english", "legibility": "legible"} | more
    return {"id": number, "image_id": 217925, "bbox": box, "area": box[2] * box[3], "mask": [], **said}


def coco_image(number: int, part: str) -> dict[str, Any]:
    name = f"COCO_train2014_{number}.jpg"
    return {"id": number, "set": part, "width": 1000, "height": 800, "file_name": name}


COCO_TEXT: dict[str, Any] = {
    "cats": {},
    "anns": {
        "1": annotation(1, [100, 100, 60, 14], utf8_string="Invoice"),
        "2": annotation(2, [170, 100, 50, 14], legibility="illegible"),
        "3": annotation(3, [100, 120, 140, 16], utf8_string="Straße", language="not english"),
        "4": annotation(4, [1, 1, 40, 10], utf8_string="blur", legibility="illegible"),
    },
    "imgs": {"217925": coco_image(217925, "val"), "300": coco_image(300, "train")},
    "imgToAnns": {"217925": [1, 2, 3, 4], "300": []},
    "info": {"version": "2.0"},
}


def test_coco_text_is_told_in_whatever_order_it_comes(save: Save, refused: Refused) -> None:
    for keys in ("info imgs anns imgToAnns", "imgs anns cats imgToAnns info", "cats anns imgs imgToAnns info"):
        assert detect_format(save({key: COCO_TEXT[key] for key in keys.split()})) == "coco_text"
    path = save({"anns": {}, "imgs": {}})
    refused("it needs the objects imgs, anns and", load_regions, path, file_format="coco_text")


def test_words_of_coco_text_are_read_if_they_are_legible_and_of_the_language(save: Save) -> None:
    path = save(COCO_TEXT)
    ingest = load_regions(path)
    (record,) = ingest.records
    assert in_pixels(record) == [
        ("Invoice", (100, 100, 160, 114)), ("", (170, 100, 220, 114)), ("Straße", (100, 120, 240, 136)),
        ("", (1, 1, 41, 11)),
    ]  # fmt: skip
    assert (record.image, record.split) == ("COCO_train2014_217925.jpg", "val")
    assert (record.record_id, record.dataset) == ("coco-text-217925", "COCO-Text")
    assert (ingest.counts.boxes_without_text, ingest.counts.images_without_boxes) == (2, 1)
    chosen: list[tuple[dict[str, Any], list[str]]] = [
        ({"legibility": "any"}, ["Invoice", "", "Straße", "blur"]),
        ({"language": "english"}, ["Invoice", "", "", ""]),
    ]
    for options, texts in chosen:
        assert [word.text for word in load_regions(path, **options).records[0].words] == texts


# Boxes in a table, as spreadsheets and scripts write them.

TABLE_WORDS = [("Invoice", (100, 100, 160, 114)), ("12.07.2031", (100, 120, 240, 136))]
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
HEAD = "image,text,x1,y1,x2,y2\n"
FIRST = f"{HEAD}r.png,Total,100,200,160,214\n"
FRACTIONS = f"{HEAD}r.png,Invoice,0.1,0.125,0.16,0.1425\n"
SIZES = f"{HEAD}r.png,Größe,100,100,160,114\n"


def table(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    (folder / "words.csv").write_text(text, encoding=encoding)
    return folder / "words.csv"


@pytest.mark.parametrize("name", TABLES)
def test_columns_are_understood_by_their_names(tmp_path: Path, name: str) -> None:
    if name != "the image's size":
        paint(tmp_path / "r.png")
    path = table(tmp_path, TABLES[name])
    assert detect_format(path) == "csv"
    ingest = load_regions(path)
    (record,) = ingest.records
    assert in_pixels(record) == TABLE_WORDS
    assert (record.image, record.width) == ("r.png", 1000)
    assert ingest.images == (None if name == "the image's size" else tmp_path)


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        (f"{FIRST}r.png,Invoice,100,100,160\n", {}, "line 3: 5 cells under 6 columns"),
        (f"{FIRST}r.png,Invoice,100,100,160,wide\n", {}, "line 3: x1,y1,x2,y2 is '100,100,160,wide',"),
        (f"{FIRST},Invoice,100,100,160,114\n", {}, "line 3: image name '' is empty"),
        ("picture,word\nr.png,x\n", {}, "line 1: needs columns for the image (image,"),
        ('image,text,points\nr.png,x,"1,2"\n', {}, "line 2: points '1,2' is not a list of"),
        (TABLES["corners"].replace("r.png", "s.png"), {}, "line 2: boxes in pixels need the size of 's"),
        (FRACTIONS, {}, "read as pixels, but no coordinate exceeds 1 (--units normalised)"),
        (TABLES["corners"], {"units": "normalised"}, "png': every box is"),
        (SIZES, {}, "--format-option encoding=cp1252"),
        (FIRST, {"encoding": "klingon"}, "there is no encoding called klingon"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(
    tmp_path: Path, text: str, options: Any, says: str, refused: Refused
) -> None:
    paint(tmp_path / "r.png")
    refused(says, load_regions, table(tmp_path, text, "cp1252"), file_format="csv", **options)


def test_a_table_may_be_in_fractions_in_any_encoding_and_quoted(tmp_path: Path) -> None:
    paint(tmp_path / "r.png")
    (record,) = load_regions(table(tmp_path, FRACTIONS), units="normalised").records
    assert in_pixels(record) == TABLE_WORDS[:1]
    assert load_regions(table(tmp_path, SIZES, "cp1252"), encoding="cp1252").records[0].words[0].text == "Größe"
    for encoding in ("utf-8-sig", "utf-16"):  # said by a byte-order mark
        path = table(tmp_path, SIZES, encoding)
        assert detect_format(path) == "csv"
        assert load_regions(path).records[0].words[0].text == "Größe"
    path = table(tmp_path, 'image,text,x1,y1,x2,y2\n\nr.png,"a, ""b""\nc\u2028d",100,100,160,114\n')
    assert load_regions(path).records[0].words[0].text == 'a, "b" c d'


def test_an_image_of_a_table_is_found_under_its_last_part_and_without_its_ending(tmp_path: Path) -> None:
    paint(tmp_path / "r.png")
    path = table(tmp_path, f"{FIRST}../r.png,Invoice,100,100,160,114\n")
    assert [record.image for record in load_regions(path).records] == ["r.png"]
    (tmp_path / "r.png").unlink()
    paint(tmp_path / "images" / "2024" / "r.png")
    (record,) = load_regions(table(tmp_path, TABLES["corners"].replace("r.png", "2024/r"))).records
    assert record.image == "2024/r.png"


def test_a_format_made_for_a_table_comes_before_plain_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FORMATS.get("textocr"), "recognises", lambda start: True)
    assert detect_format(table(tmp_path, TABLES["corners"])) == "textocr"
