""""""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sightline.errors import SightlineError
from sightline.probes import read_textocr, write_regions
from sightline.probes.annotations import detect_format, load_regions
from tests.unit.probes.formats.pages import in_pixels, paint, refused


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


def test_each_text_keeps_its_box(write: Any) -> None:
    ingest = read_textocr(write(document(WITH_EMPTY)))
    (record,) = ingest.records
    assert [(word.text, word.box) for word in record.words] == list(zip(["first", "", "third"], BOXES, strict=True))
    assert (record.image, record.width, record.height, record.split) == ("train/a.jpg", 100, 200, "val")
    assert ingest.counts.boxes_without_text == 1


def test_the_artifacts_shift_is_an_option(write: Any, tmp_path: Path) -> None:
    ingest = read_textocr(write(document(WITH_EMPTY)), pairing="shifted")
    (record,) = ingest.records
    assert [(word.text, word.box) for word in record.words] == list(zip(["first", "third", ""], BOXES, strict=True))
    write_regions(tmp_path / "r.jsonl", ingest.records, layout="artifact")
    row = json.loads((tmp_path / "r.jsonl").read_text())
    assert row["ocr_tokens"] == [{"text": t, "bbox": list(b)} for t, b in zip(["first", "third"], BOXES, strict=False)]
    assert row["evidence_region_count"] == 3


def test_boxes_that_leave_the_image_are_clipped_and_counted(write: Any) -> None:
    ingest = read_textocr(write(document([{"utf8_string": "edge", "bbox": [-10, 180, 30, 40]}])))
    assert ingest.records[0].words[0].box == (0.0, 0.9, 0.2, 1.0)
    assert ingest.counts.clipped_boxes == 1


def test_what_cannot_be_used_is_counted(write: Any) -> None:
    content = document(
        [
            {"utf8_string": "good", "bbox": [1, 1, 10, 10]},
            {"utf8_string": "outside", "bbox": [150, 1, 10, 10]},
            {"utf8_string": "flat", "bbox": [1, 1, 10, 0]},
            {"utf8_string": "short", "bbox": [1, 1, 10]},
            {"utf8_string": "infinite", "bbox": [1, 1, float("inf"), 10]},
            {"utf8_string": "vague", "bbox": [1, 1, 10, 10], "area": "large"},
            {"utf8_string": "half \ud83d", "bbox": [1, 1, 10, 10]},
            {"utf8_string": "tiny", "bbox": [1, 1, 10, 10], "area": 0.5},
        ]
    )
    content["imgToAnns"]["a"].append("nowhere")
    counts = read_textocr(write(content)).counts
    assert (counts.boxes, counts.dropped_no_area, counts.dropped_malformed) == (1, 2, 4)
    assert (counts.dropped_small, counts.dropped_missing) == (1, 1)


def test_numbers_beyond_every_float_are_met_like_other_odd_values(write: Any) -> None:
    vast = {"utf8_string": "vast", "bbox": [1, 1, 10, 10], "area": 10**400}
    assert read_textocr(write(document([vast]))).counts.dropped_malformed == 1
    with pytest.raises(SightlineError, match="no numeric width and height"):
        read_textocr(write(document([], width=10**400)))


def test_a_missing_area_is_computed(write: Any) -> None:
    counts = read_textocr(write(document([{"utf8_string": "w", "bbox": [1, 1, 10, 10], "area": None}]))).counts
    assert counts.boxes == 1


def test_tiny_pixel_boxes_are_pixels_unless_asked_otherwise(write: Any) -> None:
    path = write(document([{"utf8_string": "dot", "bbox": [0, 0, 1, 1]}]))
    assert read_textocr(path).records[0].words[0].box == (0.0, 0.0, 0.01, 0.005)
    assert read_textocr(path, small_boxes="normalised").records[0].words[0].box == (0.0, 0.0, 1.0, 1.0)


def test_images_without_boxes_are_left_out(write: Any) -> None:
    ingest = read_textocr(write(document([])))
    assert ingest.records == ()
    assert ingest.counts.images_without_boxes == 1


@pytest.mark.parametrize("name", ["../a.jpg", "/etc/a.jpg", "train/../../a.jpg", "C:\\a.jpg", "..\\a.jpg", ""])
def test_names_that_leave_the_root_are_refused(write: Any, name: str) -> None:
    with pytest.raises(SightlineError, match=r"image 'a': image name"):
        read_textocr(write(document([{"utf8_string": "w", "bbox": [1, 1, 10, 10]}], file_name=name)))


def test_other_files_are_refused(write: Any, tmp_path: Path) -> None:
    with pytest.raises(SightlineError, match="needs the objects imgs, anns and imgToAnns"):
        read_textocr(write({"imgs": {}}))
    with pytest.raises(SightlineError, match="image 'a': needs an object in imgs and a list in imgToAnns"):
        read_textocr(write({"imgs": {"a": 3}, "anns": {}, "imgToAnns": {}}))
    (tmp_path / "broken.json").write_text('{"imgs": ')
    with pytest.raises(SightlineError, match=r"broken\.json: not a JSON document"):
        read_textocr(tmp_path / "broken.json")
    with pytest.raises(SightlineError, match="cannot be read: No such file"):
        read_textocr(tmp_path / "absent.json")


def test_an_image_without_size_is_refused(write: Any) -> None:
    with pytest.raises(SightlineError, match="no numeric width and height"):
        read_textocr(write(document([], width="wide")))


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


def test_words_that_nobody_could_read_are_boxes_without_text(tmp_path: Path) -> None:
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


def test_legibility_and_language_choose_the_words_that_count(tmp_path: Path) -> None:
    DOCUMENT["anns"]["4"] = annotation(4, [1, 1, 40, 10], "blur", legibility="illegible")
    DOCUMENT["imgToAnns"]["217925"].append(4)
    path = save(tmp_path, "cats anns imgs imgToAnns")

    def read(**options: Any) -> list[str]:
        return [word.text for word in load_regions(path, **options).records[0].words]

    assert read() == ["Invoice", "", "Straße", ""]
    assert read(legibility="any") == ["Invoice", "", "Straße", "blur"]
    assert read(language="english") == ["Invoice", "", "", ""]


def test_a_document_without_the_three_objects_is_refused(tmp_path: Path) -> None:
    refused(save(tmp_path, "anns imgs"), "it needs the objects imgs, anns and imgToAnns", file_format="coco_text")


# FUNSD, one file per form, and XFUND, one file per language.


FORM: list[dict[str, Any]] = [
    {
        "box": [95, 98, 405, 116],
        "text": "Invoice date:",
        "label": "question",
        "words": [{"box": [100, 100, 160, 114], "text": "Invoice"}, {"box": [170, 100, 220, 114], "text": "date:"}],
        "linking": [[0, 1]],
        "id": 0,
    },
    {
        "box": [100, 120, 240, 136],
        "text": "12.07.2031",
        "label": "answer",
        "words": [{"box": [100, 120, 240, 136], "text": "12.07.2031"}],
        "linking": [[0, 1]],
        "id": 1,
    },
]
WORDS = [("Invoice", (100, 100, 160, 114)), ("date:", (170, 100, 220, 114)), ("12.07.2031", (100, 120, 240, 136))]
LINES = [("Invoice date:", (95, 98, 405, 116)), ("12.07.2031", (100, 120, 240, 136))]


def xfund(*forms: Any) -> dict[str, Any]:
    return {"lang": "de", "version": "0.1", "split": "val", "documents": list(forms)}


def german(number: int = 0) -> dict[str, Any]:
    image = {"fname": f"de_val_{number}.jpg", "width": 1000, "height": 800}
    return {"id": f"de_val_{number}", "uid": "0a", "document": FORM, "img": image}


def funsd_save(path: Path, content: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A split as FUNSD is packed: annotations beside images."""
    for name in ("82200067_0069", "00040534"):
        funsd_save(tmp_path / "annotations" / f"{name}.json", {"form": FORM})
        paint(tmp_path / "images" / f"{name}.png")
    return tmp_path


def test_a_form_is_as_large_as_the_image_of_its_name(published: Path) -> None:
    path = published / "annotations" / "00040534.json"
    assert detect_format(path) == "funsd"
    (record,) = load_regions(path).records
    assert in_pixels(record) == WORDS
    assert (record.image, record.image_id, record.dataset) == ("00040534.png", "00040534", "FUNSD")
    assert in_pixels(load_regions(path, level="lines").records[0]) == LINES


@pytest.mark.parametrize("folder", ["annotations", "."])
def test_a_folder_is_read_in_the_order_of_names(published: Path, folder: str) -> None:
    ingest = load_regions(published / folder)
    assert [record.image_id for record in ingest.records] == ["00040534", "82200067_0069"]
    assert ingest.images is not None
    assert ingest.images.samefile(published / "images")
    assert load_regions(published / folder, images=published / "images").records == ingest.records


def test_a_form_without_its_image_says_where_it_was_looked_for(tmp_path: Path) -> None:
    path = funsd_save(tmp_path / "form.json", {"form": FORM})
    refused(path, r"no image of that name \(form.png, .jpg, .tif, ...\) in .*; say where with --images")


def test_an_entity_without_a_box_is_named(published: Path) -> None:
    path = published / "annotations" / "00040534.json"
    funsd_save(path, {"form": [*FORM, {"text": "x", "words": []}]})
    refused(path, "form entity 2: needs a 'box' of four numbers")
    funsd_save(path, {"form": [{**FORM[0], "words": [{"text": "x", "box": [1, 2, 3]}]}]})
    refused(path, "form entity 0 word 0: needs a 'box'")
    funsd_save(path, {"form": {}})
    refused(path, "form is not a list of entities")
    path.write_text('{"form": [')
    refused(path, "not a JSON document")


def test_xfund_is_read_without_its_images(tmp_path: Path) -> None:
    path = funsd_save(tmp_path / "de.val.json", xfund(german(0), german(1)))
    assert detect_format(path) == "xfund"
    ingest = load_regions(path)
    assert [(record.image_id, record.image) for record in ingest.records] == [
        ("de_val_0", "de_val_0.jpg"),
        ("de_val_1", "de_val_1.jpg"),
    ]
    assert in_pixels(ingest.records[0]) == WORDS
    assert (ingest.records[0].width, ingest.records[0].dataset) == (1000, "XFUND-de")
    assert in_pixels(load_regions(path, level="lines").records[1]) == LINES


def test_an_xfund_document_that_names_no_image_is_named(tmp_path: Path) -> None:
    refused(
        funsd_save(tmp_path / "a.json", xfund(german(), {"id": "x", "document": FORM})),
        "document 1 does not name its im",
    )
    refused(funsd_save(tmp_path / "a.json", {"documents": {}}), "needs the list 'documents'", file_format="xfund")


def test_single_boxes_far_away_are_dropped_and_counted(tmp_path: Path) -> None:
    strange = {**FORM[1], "words": [{"text": "lost", "box": [9000, 10, 9100, 20]}, *FORM[1]["words"]]}
    path = funsd_save(tmp_path / "a.json", xfund({**german(), "document": [FORM[0], strange]}))
    ingest = load_regions(path)
    assert in_pixels(ingest.records[0]) == WORDS
    assert ingest.counts.dropped_malformed == 1


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


def test_a_table_that_says_the_image_size_needs_no_image(tmp_path: Path) -> None:
    assert in_pixels(load_regions(box_table_save(tmp_path, TABLES["the image's size"])).records[0]) == BOX_TABLE_WORDS
    refused(
        box_table_save(tmp_path, TABLES["corners"]),
        r"line 2: boxes in pixels need the size of 'r.png': .*--images, or columns",
    )


def test_fractions_are_declared_and_never_concluded(tmp_path: Path) -> None:
    path = box_table_save(tmp_path, "image,text,x1,y1,x2,y2\nr.png,Invoice,0.1,0.125,0.16,0.1425\n")
    paint(tmp_path / "r.png")
    refused(path, r"read as pixels, but no coordinate exceeds 1 \(--units normalised\)")
    (record,) = load_regions(path, units="normalised").records
    assert in_pixels(record) == BOX_TABLE_WORDS[:1]
    refused(
        box_table_save(tmp_path, TABLES["corners"]), r"image 'r.png': every box is .*far outside", units="normalised"
    )


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_says_the_encoding(tmp_path: Path, encoding: str) -> None:
    paint(tmp_path / "r.png")
    path = box_table_save(tmp_path, "image,text,x1,y1,x2,y2\nr.png,Größe,100,100,160,114\n", encoding)
    assert detect_format(path) == "csv"
    assert load_regions(path).records[0].words[0].text == "Größe"


def test_another_encoding_has_to_be_named(tmp_path: Path) -> None:
    paint(tmp_path / "r.png")
    path = box_table_save(tmp_path, "image,text,x1,y1,x2,y2\nr.png,Größe,100,100,160,114\n", "cp1252")
    refused(path, "not utf-8 text .* --format-option encoding=cp1252")
    assert load_regions(path, encoding="cp1252").records[0].words[0].text == "Größe"
    refused(path, "not klingon text", encoding="klingon")


def test_quoted_texts_hold_delimiters_and_line_breaks(tmp_path: Path) -> None:
    paint(tmp_path / "r.png")
    path = box_table_save(tmp_path, 'image,text,x1,y1,x2,y2\n\nr.png,"a, ""b""\nc\u2028d",100,100,160,114\n')
    assert load_regions(path).records[0].words[0].text == 'a, "b" c d'


def test_images_may_be_named_by_their_id_and_lie_in_folders(tmp_path: Path) -> None:
    paint(tmp_path / "images" / "2024" / "r.png")
    (record,) = load_regions(box_table_save(tmp_path, TABLES["corners"].replace("r.png", "2024/r"))).records
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
    path = box_table_save(tmp_path, f"image,text,x1,y1,x2,y2\nr.png,Total,100,200,160,214\n{line}\n")
    if says is None:
        assert [record.image for record in load_regions(path).records] == ["r.png"]  # found under its last part
    else:
        refused(path, says)


def test_a_header_without_a_box_is_refused_with_what_is_needed(tmp_path: Path) -> None:
    path = box_table_save(tmp_path, "picture,word\nr.png,Invoice\n")
    refused(path, r"line 1: needs columns for the image \(image, .*the box .*; found picture, word", file_format="csv")
    refused(
        box_table_save(tmp_path, 'image,text,points\nr.png,x,"1,2"\n'),
        "line 2: points '1,2' is not a list of",
        images=tmp_path,
    )


def test_a_format_made_for_a_table_goes_before_the_plain_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sightline.probes.formats import FORMATS

    path = box_table_save(tmp_path, TABLES["corners"])
    monkeypatch.setattr(FORMATS.get("textocr"), "recognises", lambda start: True)
    assert detect_format(path) == "textocr"
