"""TextOCR, COCO-Text and tables of boxes: words that stand in one file for all images."""

import json
from pathlib import Path
from typing import Any

import pytest

from sightline.errors import SightlineError
from sightline.probes import read_textocr, write_regions
from sightline.probes.annotations import detect_format, load_regions
from sightline.probes.formats import FORMATS
from tests.refusals import Refused
from tests.unit.probes.formats.pages import in_pixels, paint


def document(annotations: list[dict[str, Any]], **image: Any) -> dict[str, Any]:
    info = {"id": "a", "width": 100, "height": 200, "set": "val", "file_name": "train/a.jpg"} | image
    anns = {f"a_{i}": {"area": 50.0, **annotation} for i, annotation in enumerate(annotations)}
    return {"imgs": {"a": info}, "anns": anns, "imgToAnns": {"a": list(anns)}}


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def save(content: Any) -> Path:
        path = tmp_path / "annotations.json"
        path.write_text(json.dumps(content))
        return path

    return save


WITH_EMPTY = [
    {"utf8_string": " first ", "bbox": [10, 20, 10, 20]},
    {"utf8_string": "", "bbox": [30, 20, 10, 20]},
    {"utf8_string": "third", "bbox": [50, 20, 10, 20]},
]
BOXES = [(0.1, 0.1, 0.2, 0.2), (0.3, 0.1, 0.4, 0.2), (0.5, 0.1, 0.6, 0.2)]


def test_each_text_keeps_its_box_unless_the_artifacts_shift_is_asked_for(write: Any, tmp_path: Path) -> None:
    ingest = read_textocr(write(document(WITH_EMPTY)))
    (record,) = ingest.records
    assert [(word.text, word.box) for word in record.words] == list(zip(["first", "", "third"], BOXES, strict=True))
    assert (record.image, record.width, record.height, record.split) == ("train/a.jpg", 100, 200, "val")
    assert ingest.counts.boxes_without_text == 1
    ingest = read_textocr(write(document(WITH_EMPTY)), pairing="shifted")
    (record,) = ingest.records
    assert [(word.text, word.box) for word in record.words] == list(zip(["first", "third", ""], BOXES, strict=True))
    write_regions(tmp_path / "r.jsonl", ingest.records, layout="artifact")
    row = json.loads((tmp_path / "r.jsonl").read_text())
    assert row["ocr_tokens"] == [{"text": t, "bbox": list(b)} for t, b in zip(["first", "third"], BOXES, strict=False)]
    assert row["evidence_region_count"] == 3
    path = write(document([{"utf8_string": "dot", "bbox": [0, 0, 1, 1]}]))
    assert read_textocr(path).records[0].words[0].box == (0.0, 0.0, 0.01, 0.005)
    assert read_textocr(path, small_boxes="normalised").records[0].words[0].box == (0.0, 0.0, 1.0, 1.0)


def test_what_cannot_be_used_is_counted(write: Any) -> None:
    whole = [1, 1, 10, 10]
    content = document(
        [
            {"utf8_string": "edge", "bbox": [-10, 180, 30, 40]},
            {"utf8_string": "computed", "bbox": whole, "area": None},
            {"utf8_string": "outside", "bbox": [150, 1, 10, 10]},
            {"utf8_string": "flat", "bbox": [1, 1, 10, 0]},
            {"utf8_string": "short", "bbox": [1, 1, 10]},
            {"utf8_string": "infinite", "bbox": [1, 1, float("inf"), 10]},
            {"utf8_string": "vague", "bbox": whole, "area": "large"},
            {"utf8_string": "vast", "bbox": whole, "area": 10**400},
            {"utf8_string": "half \ud83d", "bbox": whole},
            {"utf8_string": "tiny", "bbox": whole, "area": 0.5},
        ]
    )
    content["imgToAnns"]["a"].append("nowhere")
    content["imgs"]["b"] = content["imgs"]["a"]
    ingest = read_textocr(write(content))
    counts = ingest.counts
    assert ingest.records[0].words[0].box == (0.0, 0.9, 0.2, 1.0)
    assert (counts.boxes, counts.clipped_boxes, counts.dropped_no_area, counts.dropped_malformed) == (2, 1, 2, 5)
    assert (counts.dropped_small, counts.dropped_missing, counts.images_without_boxes) == (1, 1, 1)


WORD = {"utf8_string": "w", "bbox": [1, 1, 10, 10]}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"imgs": {}}, "needs the objects imgs, anns and imgToAnns"),
        ({"imgs": {"a": 3}, "anns": {}, "imgToAnns": {}}, "image 'a': needs an object in imgs and a list in imgToAnns"),
        (document([], width="wide"), "image 'a': has no numeric width and height"),
        (document([], width=10**400), "image 'a': has no numeric width and height"),
        *(
            (document([WORD], file_name=name), "image 'a': image name")
            for name in ("../a.jpg", "/etc/a.jpg", "train/../../a.jpg", "C:\\a.jpg", "..\\a.jpg", "")
        ),
    ],
)
def test_what_is_no_such_document_is_refused(write: Any, tmp_path: Path, content: Any, says: str) -> None:
    with pytest.raises(SightlineError, match=says):
        read_textocr(write(content))
    (tmp_path / "broken.json").write_text('{"imgs": ')
    for name, reason in (("broken", "not a JSON document"), ("absent", "cannot be read: No such file")):
        with pytest.raises(SightlineError, match=rf"{name}\.json: {reason}"):
            read_textocr(tmp_path / f"{name}.json")


# COCO-Text, as version 2 is published.


def annotation(number: int, box: list[float], text: str | None, **more: str) -> dict[str, Any]:
    said = {"class": "machine printed", "language": "english", "legibility": "legible"} | more
    spoken = {} if text is None else {"utf8_string": text}
    return {"id": number, "image_id": 217925, "bbox": box, "area": box[2] * box[3], "mask": [], **said, **spoken}


DOCUMENT: dict[str, Any] = {
    "cats": {},
    "anns": {
        "1": annotation(1, [100, 100, 60, 14], "Invoice"),
        "2": annotation(2, [170, 100, 50, 14], None, legibility="illegible"),
        "3": annotation(3, [100, 120, 140, 16], "Straße", language="not english"),
    },
    "imgs": {
        "217925": {
            "id": 217925,
            "set": "val",
            "width": 1000,
            "height": 800,
            "file_name": "COCO_train2014_000000217925.jpg",
        },
        "300": {"id": 300, "set": "train", "width": 10, "height": 10, "file_name": "COCO_train2014_000000000300.jpg"},
    },
    "imgToAnns": {"217925": [1, 2, 3], "300": []},
    "info": {"version": "2.0"},
}


def save(folder: Path, keys: str) -> Path:
    path = folder / "cocotext.v2.json"
    path.write_text(json.dumps({key: DOCUMENT[key] for key in keys.split()}))
    return path


@pytest.mark.parametrize(
    "keys", ["cats anns imgs imgToAnns info", "imgs anns cats imgToAnns info", "info imgs anns imgToAnns"]
)
def test_it_is_told_from_textocr_in_whatever_order_it_comes(tmp_path: Path, keys: str) -> None:
    assert detect_format(save(tmp_path, keys)) == "coco_text"


def test_words_are_chosen_by_legibility_and_language(tmp_path: Path, refused: Refused) -> None:
    ingest = load_regions(save(tmp_path, "cats anns imgs imgToAnns"))
    (record,) = ingest.records
    assert in_pixels(record) == [
        ("Invoice", (100, 100, 160, 114)),
        ("", (170, 100, 220, 114)),
        ("Straße", (100, 120, 240, 136)),
    ]
    assert (record.image, record.split) == ("COCO_train2014_000000217925.jpg", "val")
    assert (record.record_id, record.dataset) == ("coco-text-217925", "COCO-Text")
    assert (ingest.counts.boxes_without_text, ingest.counts.images_without_boxes) == (1, 1)
    DOCUMENT["anns"]["4"] = annotation(4, [1, 1, 40, 10], "blur", legibility="illegible")
    DOCUMENT["imgToAnns"]["217925"].append(4)
    path = save(tmp_path, "cats anns imgs imgToAnns")

    def read(**options: Any) -> list[str]:
        return [word.text for word in load_regions(path, **options).records[0].words]

    assert read() == ["Invoice", "", "Straße", ""]
    assert read(legibility="any") == ["Invoice", "", "Straße", "blur"]
    assert read(language="english") == ["Invoice", "", "", ""]
    refused("it needs the objects imgs, anns and", load_regions, save(tmp_path, "anns imgs"), file_format="coco_text")


# Boxes in a table, as spreadsheets and scripts write them.


BOX_TABLE_WORDS = [("Invoice", (100, 100, 160, 114)), ("12.07.2031", (100, 120, 240, 136))]

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


def box_table_save(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    (folder / "words.csv").write_text(text, encoding=encoding)
    return folder / "words.csv"


@pytest.mark.parametrize("table", TABLES)
def test_columns_are_understood_by_their_names(tmp_path: Path, table: str) -> None:
    paint(tmp_path / "r.png")
    path = box_table_save(tmp_path, TABLES[table])
    assert detect_format(path) == "csv"
    ingest = load_regions(path)
    assert in_pixels(ingest.records[0]) == BOX_TABLE_WORDS
    assert (ingest.records[0].image, ingest.records[0].width) == ("r.png", 1000)
    assert ingest.images == tmp_path


HEAD = "image,text,x1,y1,x2,y2\n"
FIRST = f"{HEAD}r.png,Total,100,200,160,214\n"
FRACTIONS = f"{HEAD}r.png,Invoice,0.1,0.125,0.16,0.1425\n"


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
        (f"{HEAD}r.png,Größe,100,100,160,114\n", {}, "--format-option encoding=cp1252"),
        (FIRST, {"encoding": "klingon"}, "not klingon text"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(
    tmp_path: Path, text: str, options: Any, says: str, refused: Refused
) -> None:
    paint(tmp_path / "r.png")
    refused(says, load_regions, box_table_save(tmp_path, text, "cp1252"), file_format="csv", **options)


def test_sizes_units_and_encodings_may_be_said(tmp_path: Path) -> None:
    assert in_pixels(load_regions(box_table_save(tmp_path, TABLES["the image's size"])).records[0]) == BOX_TABLE_WORDS
    paint(tmp_path / "r.png")
    (record,) = load_regions(box_table_save(tmp_path, FRACTIONS), units="normalised").records
    assert in_pixels(record) == BOX_TABLE_WORDS[:1]
    path = box_table_save(tmp_path, f"{HEAD}r.png,Größe,100,100,160,114\n", "cp1252")
    assert load_regions(path, encoding="cp1252").records[0].words[0].text == "Größe"
    path = box_table_save(tmp_path, f"{FIRST}../r.png,Invoice,100,100,160,114\n")
    assert [record.image for record in load_regions(path).records] == ["r.png"]  # found under its last part


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_says_the_encoding(tmp_path: Path, encoding: str) -> None:
    paint(tmp_path / "r.png")
    path = box_table_save(tmp_path, "image,text,x1,y1,x2,y2\nr.png,Größe,100,100,160,114\n", encoding)
    assert detect_format(path) == "csv"
    assert load_regions(path).records[0].words[0].text == "Größe"


def test_quoted_texts_names_by_id_and_formats_made_for_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paint(tmp_path / "r.png")
    path = box_table_save(tmp_path, 'image,text,x1,y1,x2,y2\n\nr.png,"a, ""b""\nc\u2028d",100,100,160,114\n')
    assert load_regions(path).records[0].words[0].text == 'a, "b" c d'
    (tmp_path / "r.png").unlink()
    paint(tmp_path / "images" / "2024" / "r.png")
    (record,) = load_regions(box_table_save(tmp_path, TABLES["corners"].replace("r.png", "2024/r"))).records
    assert record.image == "2024/r.png"
    path = box_table_save(tmp_path, TABLES["corners"])
    monkeypatch.setattr(FORMATS.get("textocr"), "recognises", lambda start: True)
    assert detect_format(path) == "textocr"
