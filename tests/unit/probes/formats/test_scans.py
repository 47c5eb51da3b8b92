"""hOCR, as Tesseract writes it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from sightline.errors import SightlineError
from sightline.probes import data_rows
from sightline.probes.annotations import detect_format, load_regions
from sightline.probes.formats import pages
from sightline.probes.formats.pages import below, read_xml
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


# ALTO XML, versions 2 to 4.


ALTO = """<?xml version="1.0" encoding="UTF-8"?>
<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#" xmlns:xlink="http://www.w3.org/1999/xlink">
 <Description>
  <MeasurementUnit>pixel</MeasurementUnit>
  <sourceImageInformation><fileName>file:///scans/page.png</fileName></sourceImageInformation>
 </Description>
 <Layout>
  <Page ID="P1" PHYSICAL_IMG_NR="1" WIDTH="1000" HEIGHT="800">
   <PrintSpace HPOS="0" VPOS="0" WIDTH="1000" HEIGHT="800">
    <TextBlock ID="B1" HPOS="90" VPOS="90" WIDTH="300" HEIGHT="60">
     <TextLine ID="L1" HPOS="95" VPOS="98" WIDTH="310" HEIGHT="18">
      <String CONTENT="Invoice" HPOS="100" VPOS="100" WIDTH="60" HEIGHT="14" WC="0.96"/><SP WIDTH="10"/>
      <String CONTENT="n&amp;m" HPOS="170" VPOS="100" WIDTH="50" HEIGHT="14" WC="0.31"/>
     </TextLine>
     <TextLine ID="L2">
      <String CONTENT="12.07." HPOS="100" VPOS="120" WIDTH="40" HEIGHT="16" SUBS_TYPE="HypPart1"/><HYP CONTENT="-"/>
      <String CONTENT="2031" HPOS="150" VPOS="121" WIDTH="40" HEIGHT="16"/>
     </TextLine>
    </TextBlock>
   </PrintSpace>
  </Page>
 </Layout>
</alto>
"""
WORDS = [
    ("Invoice", (100, 100, 160, 114)),
    ("n&m", (170, 100, 220, 114)),
    ("12.07.", (100, 120, 140, 136)),
    ("2031", (150, 121, 190, 137)),
]


def alto_write(folder: Path, text: str = ALTO) -> Path:
    path = folder / "page.xml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "namespace",
    [
        'xmlns="http://www.loc.gov/standards/alto/ns-v4#" ',
        'xmlns="http://www.loc.gov/standards/alto/ns-v3#" ',
        'xmlns="http://schema.ccs-gmbh.com/ALTO" ',
        "",
    ],
)
def test_words_of_every_version_stand_in_their_boxes(tmp_path: Path, namespace: str) -> None:
    path = alto_write(tmp_path, ALTO.replace('xmlns="http://www.loc.gov/standards/alto/ns-v4#" ', namespace))
    assert detect_format(path) == "alto"
    (record,) = load_regions(path).records
    assert in_pixels(record) == WORDS
    assert (record.image, record.width, record.height) == ("page.png", 1000, 800)


def test_lines_have_their_own_box_or_the_one_around_their_words(tmp_path: Path) -> None:
    (record,) = load_regions(alto_write(tmp_path), level="lines").records
    assert in_pixels(record) == [("Invoice n&m", (95, 98, 405, 116)), ("12.07. 2031", (100, 120, 190, 137))]


def test_confidence_is_a_share_of_one_in_the_file(tmp_path: Path) -> None:
    texts = [word.text for word in load_regions(alto_write(tmp_path), min_confidence=50).records[0].words]
    assert texts == ["Invoice", "", "12.07.", "2031"]


@pytest.mark.parametrize("unit", ["mm10", "inch1200"])
def test_other_units_are_read_as_fractions_of_the_page(tmp_path: Path, unit: str) -> None:
    path = alto_write(tmp_path, ALTO.replace(">pixel<", f">{unit}<"))
    (record,) = load_regions(path).records
    assert in_pixels(record) == WORDS
    assert (record.width, record.height) == (None, None)  # in pixels nobody knows
    refused(
        alto_write(tmp_path, ALTO.replace(">pixel<", f">{unit}<").replace('NR="1" WIDTH="1000"', 'NR="1"')),
        f"positions are in {unit}, but the Page has no WIDTH and HEIGHT",
    )


def test_an_unknown_unit_is_refused(tmp_path: Path) -> None:
    refused(
        alto_write(tmp_path, ALTO.replace(">pixel<", ">furlong<")), "MeasurementUnit 'furlong' is none of pixel, mm10"
    )


def test_a_page_without_size_is_as_large_as_its_image(tmp_path: Path) -> None:
    path = alto_write(tmp_path, ALTO.replace('NR="1" WIDTH="1000" HEIGHT="800"', 'NR="1" WIDTH="0" HEIGHT="0"'))
    paint(tmp_path / "page.png")
    assert in_pixels(load_regions(path).records[0]) == WORDS


def test_what_is_wrong_is_said_with_file_and_place(tmp_path: Path) -> None:
    refused(
        alto_write(tmp_path, ALTO.replace('HPOS="170"', 'HPOS="left"')),
        r"String 'n&m' has no HPOS, VPOS, WIDTH, HEIGHT",
    )
    refused(alto_write(tmp_path, ALTO.replace("</Layout>", "")), r"page.xml line 23: not XML: mismatched tag")
    refused(alto_write(tmp_path, "<mets/>"), "its root is <mets>, not <alto>", file_format="alto")


# PAGE XML, of 2010 and of today.


PAGE_XML_PAGE = """<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15">
 <Metadata><Creator>me</Creator></Metadata>
 <Page imageFilename="page.png" imageWidth="1000" imageHeight="800">
  <TextRegion id="r1"><Coords points="90,90 400,90 400,140 90,140"/>
   <TextLine id="l1"><Coords points="95,98 405,99 405,116 95,115"/>
    <Word id="w1"><Coords points="100,101 160,100 160,114 101,113"/>
     <TextEquiv index="1" conf="0.3"><Unicode>lnvoice</Unicode></TextEquiv>
     <TextEquiv index="0" conf="0.96"><Unicode>Invoice</Unicode></TextEquiv></Word>
    <Word id="w2"><Coords points="170,100 220,100 220,114 170,114"/>
     <TextEquiv conf="0.31"><Unicode>n&amp;m</Unicode></TextEquiv></Word>
    <TextEquiv><Unicode>Invoice n&amp;m.</Unicode></TextEquiv>
   </TextLine>
   <TextLine id="l2"><Coords points="100,120 240,120 240,136 100,136"/>
    <Word id="w3"><Coords points="100,120 240,120 240,136 100,136"/>
     <TextEquiv><Unicode>12.07.2031</Unicode></TextEquiv></Word>
   </TextLine>
  </TextRegion>
 </Page>
</PcGts>
"""
PAGE_XML_WORDS = [
    ("Invoice", (100, 100, 160, 114)),
    ("n&m", (170, 100, 220, 114)),
    ("12.07.2031", (100, 120, 240, 136)),
]


def page_xml_write(folder: Path, text: str = PAGE_XML_PAGE, name: str = "page.xml") -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_words_stand_in_the_box_around_their_outline_with_the_first_reading(tmp_path: Path) -> None:
    path = page_xml_write(tmp_path)
    assert detect_format(path) == "page_xml"
    (record,) = load_regions(path).records
    assert in_pixels(record) == PAGE_XML_WORDS
    assert (record.image, record.width, record.height) == ("page.png", 1000, 800)


def test_lines_have_their_own_reading_or_that_of_their_words(tmp_path: Path) -> None:
    (record,) = load_regions(page_xml_write(tmp_path), level="lines").records
    assert in_pixels(record) == [("Invoice n&m.", (95, 98, 405, 116)), ("12.07.2031", (100, 120, 240, 136))]


def test_confidence_is_that_of_the_reading(tmp_path: Path) -> None:
    texts = [word.text for word in load_regions(page_xml_write(tmp_path), min_confidence=50).records[0].words]
    assert texts == ["Invoice", "", "12.07.2031"]


def test_corners_may_be_elements_as_in_2010(tmp_path: Path) -> None:
    old = '<Coords><Point x="170" y="100"/><Point x="220" y="100"/><Point x="220" y="114"/></Coords>'
    path = page_xml_write(tmp_path, PAGE_XML_PAGE.replace('<Coords points="170,100 220,100 220,114 170,114"/>', old))
    assert in_pixels(load_regions(path).records[0]) == PAGE_XML_WORDS


def test_images_are_found_above_a_folder_of_pages(tmp_path: Path) -> None:
    page_xml_write(tmp_path, name="page/one.xml")
    page_xml_write(tmp_path, "<mets/>", name="page/mets.xml")
    paint(tmp_path / "page.png")
    ingest = load_regions(tmp_path / "page")
    assert ingest.images is not None
    assert ingest.images.samefile(tmp_path)
    assert ingest.counts.files_left_out == 1


def test_a_page_of_lines_alone_says_how_to_read_it(tmp_path: Path) -> None:
    without = "\n".join(line for line in PAGE_XML_PAGE.splitlines() if "Word" not in line and "index=" not in line)
    refused(page_xml_write(tmp_path, without), "has no words, only lines; read those with --lines")


@pytest.mark.parametrize("coords", ['<Coords points="170;100"/>', "<Coords/>", ""])
def test_an_element_without_an_outline_is_named(tmp_path: Path, coords: str) -> None:
    bad = PAGE_XML_PAGE.replace('<Coords points="170,100 220,100 220,114 170,114"/>', coords)
    refused(page_xml_write(tmp_path, bad), r"Word 'w2' has no Coords of the form points=")


def test_a_file_without_a_page_is_refused(tmp_path: Path) -> None:
    refused(page_xml_write(tmp_path, "<PcGts><Metadata/></PcGts>"), "has no Page element")


# What Microsoft's Read service writes, in its older and newer form.


def outline(left: float, top: float, right: float, bottom: float) -> list[float]:
    return [left, top, right, top, right, bottom, left, bottom]


MS_READ_WORDS: list[dict[str, Any]] = [
    {"boundingBox": outline(100, 100, 160, 114), "text": "Invoice"},
    {"boundingBox": outline(170, 99, 220, 114), "text": "date:", "confidence": "Low"},
]
LINES = [{"boundingBox": outline(100, 99, 220, 114), "text": "Invoice date:", "words": MS_READ_WORDS}]
MS_READ_PAGE = {"page": 1, "clockwiseOrientation": 0.3, "width": 1000, "height": 800, "unit": "pixel", "lines": LINES}


def save(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def test_words_and_lines_are_read_with_the_box_around_their_outline(tmp_path: Path) -> None:
    path = save(tmp_path / "ocr" / "doc_1.json", {"status": "Succeeded", "recognitionResults": [MS_READ_PAGE]})
    (record,) = load_regions(path).records
    assert in_pixels(record) == [("Invoice", (100, 100, 160, 114)), ("date:", (170, 99, 220, 114))]
    (lines,) = load_regions(path, level="lines").records
    assert in_pixels(lines) == [("Invoice date:", (100, 99, 220, 114))]
    assert (record.width, record.height) == (1000, 800)


def test_without_an_image_beside_it_a_page_is_docvqas(tmp_path: Path) -> None:
    path = save(tmp_path / "ocr_results" / "doc_1.json", {"recognitionResults": [MS_READ_PAGE]})
    assert load_regions(path).records[0].image == "documents/doc_1.png"
    paint(tmp_path / "images" / "doc_1.png")
    found = load_regions(path)
    assert found.records[0].image == "doc_1.png"
    assert found.images is not None
    assert found.images.name == "images"


def test_a_folder_of_pages_is_recognised(tmp_path: Path) -> None:
    for name in ("b", "a"):
        save(tmp_path / f"{name}.json", {"recognitionResults": [MS_READ_PAGE]})
    (tmp_path / "notes.json").write_text("{}")
    assert detect_format(tmp_path) == "ms_read"
    ingest = load_regions(tmp_path)
    assert [record.image_id for record in ingest.records] == ["documents/a", "documents/b"]
    assert ingest.counts.files_left_out == 1


def test_later_versions_give_confidences_and_other_units(tmp_path: Path) -> None:
    words = [{**word, "confidence": sure} for word, sure in zip(MS_READ_WORDS, (0.95, 0.4), strict=True)]
    page = {**MS_READ_PAGE, "lines": [{**LINES[0], "words": words}]}
    path = save(tmp_path / "a.json", {"status": "succeeded", "analyzeResult": {"readResults": [page]}})
    assert [word.text for word in load_regions(path, min_confidence=90).records[0].words] == ["Invoice", ""]
    inches = {**MS_READ_PAGE, "unit": "inch"}
    (record,) = load_regions(save(path, {"analyzeResult": {"readResults": [inches]}})).records
    assert (record.width, record.height) == (None, None)
    assert record.words[0].box == (0.1, 0.125, 0.16, 0.1425)


def test_a_word_of_low_confidence_may_be_left_without_text(tmp_path: Path) -> None:
    path = save(tmp_path / "a.json", {"recognitionResults": [MS_READ_PAGE]})
    assert [word.text for word in load_regions(path, min_confidence=60).records[0].words] == ["Invoice", ""]
    assert [word.text for word in load_regions(path, min_confidence=50).records[0].words] == ["Invoice", "date:"]


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"recognitionResults": []}, "needs a list of pages under 'recognitionResults'"),
        ({"recognitionResults": [{}]}, "a page has no list of 'lines'"),
        ({"recognitionResults": [{**MS_READ_PAGE, "lines": [{"text": 3}]}]}, "a line or word has no 'text'"),
        (
            {"recognitionResults": [{**MS_READ_PAGE, "lines": [{"text": "x", "boundingBox": [1, 2, 3]}]}]},
            "is not a list of points",
        ),
        (
            {"recognitionResults": [{**MS_READ_PAGE, "lines": [{"text": "x", "boundingBox": [1, 2, 10**400, 4]}]}]},
            "has a coordinate beyond every image",
        ),
        ({"recognitionResults": [MS_READ_PAGE, MS_READ_PAGE]}, "was already described by another page"),
    ],
)
def test_what_is_no_page_is_refused_in_one_line(tmp_path: Path, document: Any, says: str) -> None:
    refused(save(tmp_path / "a.json", document), says, file_format="ms_read")


# XML from anywhere: nothing is expanded, nothing is fetched, nothing grows without bound.


LAUGHS = """<!DOCTYPE alto [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">
<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]>
<alto>&c;</alto>"""


def safe_xml_save(folder: Path, text: str) -> Path:
    (folder / "x.xml").write_text(text, encoding="utf-8")
    return folder / "x.xml"


@pytest.mark.parametrize(
    "text",
    [
        LAUGHS,
        '<!DOCTYPE alto SYSTEM "alto.dtd"><alto/>',
        '<!DOCTYPE alto [<!ENTITY secret SYSTEM "x.xml">]><alto>&secret;</alto>',
    ],
)
def test_a_document_type_is_refused_before_any_entity_is_read(tmp_path: Path, text: str) -> None:
    with pytest.raises(SightlineError, match=r"x\.xml line 1: declares a document type.* delete the <!DOCTYPE"):
        read_xml(safe_xml_save(tmp_path, text))


def test_an_entity_that_nobody_declared_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SightlineError, match="line 1: not XML: undefined entity"):
        read_xml(safe_xml_save(tmp_path, "<alto>&c;</alto>"))


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    assert read_xml(safe_xml_save(tmp_path, "<a>" * 100 + "</a>" * 100)).tag == "a"
    with pytest.raises(SightlineError, match="nest deeper than 100"):
        read_xml(safe_xml_save(tmp_path, "<a>" * 101 + "</a>" * 101))


def test_a_large_file_is_refused_packed_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MAX_XML_BYTES", 2**20)
    path = safe_xml_save(tmp_path, "<a>" + " " * 2**20 + "</a>")
    with pytest.raises(SightlineError, match=r"x\.xml: holds more than 1 MiB; split it"):
        read_xml(path)
    packed = tmp_path / "x.xml.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert packed.stat().st_size < 2**12
    with pytest.raises(SightlineError, match="holds more than 1 MiB"):
        read_xml(packed)


def test_namespaces_are_left_out_and_other_encodings_read(tmp_path: Path) -> None:
    path = tmp_path / "x.xml"
    path.write_bytes(
        '<?xml version="1.0" encoding="ISO-8859-1"?><n:a xmlns:n="u"><n:b n:c="ü"/></n:a>'.encode("latin-1")
    )
    root = read_xml(path)
    assert root.tag == "a"
    assert [each.attrib for each in below(root, "b")] == [{"c": "ü"}]


def test_an_unknown_encoding_and_a_damaged_archive_are_named(tmp_path: Path) -> None:
    with pytest.raises(SightlineError, match=r"x\.xml.*: not XML: "):
        read_xml(safe_xml_save(tmp_path, '<?xml version="1.0" encoding="klingon"?><a/>'))
    (tmp_path / "y.gz").write_bytes(gzip.compress(b"<a/>")[:-6])
    with pytest.raises(SightlineError, match="damaged gzip file"):
        data_rows.read_bytes(tmp_path / "y.gz")
