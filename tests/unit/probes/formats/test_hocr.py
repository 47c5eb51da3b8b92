"""hOCR, as Tesseract writes it."""

from __future__ import annotations

from pathlib import Path

from sightline.probes.annotations import detect_format, load_regions
from tests.unit.probes.formats.pages import in_pixels, paint, refused

HEAD = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN" "http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">
<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="en" lang="en">
 <head><title></title>
  <meta http-equiv="Content-Type" content="text/html;charset=utf-8"/>
  <meta name='ocr-system' content='tesseract 5.3.0' />
 </head>
 <body>
"""
PAGE = """  <div class='ocr_page' id='page_1' title='image "/home/me/scans/page.png"; bbox 0 0 1000 800; ppageno 0'>
   <div class='ocr_carea' title="bbox 90 90 400 140"><p class='ocr_par' title="bbox 90 90 400 140">
     <span class='ocr_line' title="bbox 95 98 405 116; baseline 0 -4; x_size 20">
      <span class='ocrx_word' id='word_1' title='bbox 100 100 160 114; x_wconf 96'>Invoice</span>
      <span class='ocrx_word' title='bbox 170 100 220 114; x_wconf 31'><strong><em>n&amp;m</em></strong></span>
     </span>
     <span class='ocr_caption' title="bbox 100 120 240 136">
      <span class='ocrx_word' title='bbox 100 120 240 136; x_wconf 88'>12.07.2031</span>
     </span></p></div>
  </div>
"""
TAIL = " </body>\n</html>\n"


def write(folder: Path, body: str = PAGE, name: str = "page.hocr") -> Path:
    path = folder / name
    path.write_text(HEAD + body + TAIL, encoding="utf-8")
    return path


def test_words_stand_in_their_boxes(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert detect_format(path) == "hocr"
    (record,) = load_regions(path).records
    assert in_pixels(record) == [
        ("Invoice", (100, 100, 160, 114)),
        ("n&m", (170, 100, 220, 114)),
        ("12.07.2031", (100, 120, 240, 136)),
    ]
    assert (record.image_id, record.image, record.width, record.height) == ("page", "page.png", 1000, 800)


def test_lines_are_their_words_in_the_box_of_the_line(tmp_path: Path) -> None:
    (record,) = load_regions(write(tmp_path), level="lines").records
    assert in_pixels(record) == [("Invoice n&m", (95, 98, 405, 116)), ("12.07.2031", (100, 120, 240, 136))]


def test_a_line_without_words_has_its_own_text(tmp_path: Path) -> None:
    page = '<div class="ocr_page" title="bbox 0 0 1000 800"><span class="ocr_line" title="bbox 1 2 30 14">Sum 5<br>'
    paint(tmp_path / "page.png")
    path = write(tmp_path, page + "EUR</span></div>")
    refused(path, "has no words, only lines; read those with --lines")
    (record,) = load_regions(path, level="lines").records
    assert in_pixels(record) == [("Sum 5EUR", (1, 2, 30, 14))]


def test_texts_that_the_program_was_unsure_of_stay_as_boxes(tmp_path: Path) -> None:
    ingest = load_regions(write(tmp_path), min_confidence=50)
    assert [word.text for word in ingest.records[0].words] == ["Invoice", "", "12.07.2031"]
    assert ingest.counts.boxes_without_text == 1
    assert ingest.source["min_confidence"] == 50


def test_the_image_is_found_beside_the_file_whatever_folder_is_stated(tmp_path: Path) -> None:
    paint(tmp_path / "images" / "page.png")
    ingest = load_regions(write(tmp_path))
    assert ingest.images == tmp_path / "images"
    assert ingest.records[0].image == "page.png"


def test_a_page_without_a_box_is_as_large_as_its_image(tmp_path: Path) -> None:
    path = write(tmp_path, PAGE.replace("bbox 0 0 1000 800; ", ""))
    refused(path, "does not say how large its image is, and 'page.png' was not found.*--images")
    paint(tmp_path / "page.png", (2000, 1600))
    assert in_pixels(load_regions(path).records[0])[0] == ("Invoice", (50, 50, 80, 57))


def test_a_folder_is_read_file_by_file_and_others_are_counted(tmp_path: Path) -> None:
    write(tmp_path, PAGE.replace("page.png", "b.png"), "b.hocr")
    write(tmp_path, PAGE.replace("page.png", "a.png"), "a.html")
    (tmp_path / "index.html").write_text("<html><body>all pages</body></html>")
    ingest = load_regions(tmp_path)
    assert ingest.source["format"] == "hocr"
    assert [record.image for record in ingest.records] == ["a.png", "b.png"]
    assert ingest.counts.files_left_out == 1
    before = ingest.source["digest"]
    write(tmp_path, PAGE.replace("page.png", "b.png").replace("Invoice", "Receipt"), "b.hocr")
    assert load_regions(tmp_path).source["digest"] != before


def test_several_pages_in_a_file_need_a_name_each(tmp_path: Path) -> None:
    paint(tmp_path / "page.png")
    path = write(tmp_path, PAGE + PAGE.replace("page.png", "second.png"))
    assert [record.image for record in load_regions(path).records] == ["page.png", "second.png"]
    refused(write(tmp_path, PAGE + PAGE.replace('image "/home/me/scans/page.png"; ', "")), "2 pages, not all of which")
    refused(write(tmp_path, PAGE + PAGE), "image 'page.png' was already described")


def test_what_is_wrong_is_said_with_its_line(tmp_path: Path) -> None:
    refused(write(tmp_path, PAGE.replace("bbox 100 100 160 114", "box")), r"line 12: a word without 'bbox x1 y1 x2 y2'")
    refused(write(tmp_path, PAGE.replace("100 100 160 114", "100 100 160 wide")), "line 12: .* is not four numbers")
    refused(write(tmp_path, PAGE.replace("ocr_page", "page")), "line 11: a line outside of every ocr_page")
    refused(write(tmp_path, "<p>nothing</p>"), "no element of class ocr_page", file_format="hocr")
    far = PAGE.replace("bbox 0 0 1000 800", "bbox 0 0 10 8")
    refused(write(tmp_path, far), "every box is reversed or far outside an image of 10 x 8")


def test_entities_of_a_document_type_are_not_expanded(tmp_path: Path) -> None:
    path = tmp_path / "page.hocr"
    doctype = '<!DOCTYPE html [<!ENTITY a "AAAAAAAAAA"><!ENTITY b "&a;&a;&a;">]>'
    path.write_text(doctype + PAGE.replace("Invoice", "&b;"))
    assert load_regions(path).records[0].words[0].text == "&b;"
