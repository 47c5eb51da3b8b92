"""Formats of scanned pages, one page of each, and all that can be wrong with them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

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
HOCR_PAGE = """ <div class='ocr_page' id='page_1' title='image "/home/me/scans/page.png"; bbox 0 0 1000 800; ppageno 0'>
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
HOCR = HEAD + HOCR_PAGE + TAIL
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


def outline(left: float, top: float, right: float, bottom: float) -> list[float]:
    return [left, top, right, top, right, bottom, left, bottom]


MS_READ_WORDS: list[dict[str, Any]] = [
    {"boundingBox": outline(100, 100, 160, 114), "text": "Invoice"},
    {"boundingBox": outline(170, 99, 220, 114), "text": "date:", "confidence": "Low"},
]
LINES = [{"boundingBox": outline(100, 99, 220, 114), "text": "Invoice date:", "words": MS_READ_WORDS}]
MS_READ_PAGE = {"page": 1, "clockwiseOrientation": 0.3, "width": 1000, "height": 800, "unit": "pixel", "lines": LINES}
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


def xfund(*forms: Any) -> dict[str, Any]:
    return {"lang": "de", "version": "0.1", "split": "val", "documents": list(forms)}


def german(number: int = 0) -> dict[str, Any]:
    image = {"fname": f"de_val_{number}.jpg", "width": 1000, "height": 800}
    return {"id": f"de_val_{number}", "uid": "0a", "document": FORM, "img": image}


Texts = list[tuple[str, tuple[int, ...]]]
INVOICE, DATE = ("Invoice", (100, 100, 160, 114)), ("12.07.2031", (100, 120, 240, 136))
AND, BELOW = ("n&m", (170, 100, 220, 114)), ("date:", (170, 100, 220, 114))


class Sample(NamedTuple):
    """A page as a program writes it, and what stands on it."""

    file: str
    content: Any
    words: Texts
    lines: Texts
    sure: list[str] | None = None
    """Texts of which the program was at least half sure; None where it does not say how sure it was."""
    image: str = "page.png"

    def write(self, folder: Path, content: Any = None) -> Path:
        content = self.content if content is None else content
        (folder / self.file).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return folder / self.file


SAMPLES = {
    "hocr": Sample(
        "page.hocr", HOCR, [INVOICE, AND, DATE], [("Invoice n&m", (95, 98, 405, 116)), DATE], ["Invoice", "", DATE[0]]
    ),
    "alto": Sample(
        "page.xml",
        ALTO,
        [INVOICE, AND, ("12.07.", (100, 120, 140, 136)), ("2031", (150, 121, 190, 137))],
        [("Invoice n&m", (95, 98, 405, 116)), ("12.07. 2031", (100, 120, 190, 137))],
        ["Invoice", "", "12.07.", "2031"],
    ),
    "page_xml": Sample(
        "page.xml",
        PAGE_XML_PAGE,
        [INVOICE, AND, DATE],
        [("Invoice n&m.", (95, 98, 405, 116)), DATE],
        ["Invoice", "", DATE[0]],
    ),
    "ms_read": Sample(
        "doc_1.json",
        {"status": "Succeeded", "recognitionResults": [MS_READ_PAGE]},
        [INVOICE, ("date:", (170, 99, 220, 114))],
        [("Invoice date:", (100, 99, 220, 114))],
        ["Invoice", "date:"],
        "documents/doc_1.png",
    ),
    "funsd": Sample(
        "page.json",
        {"form": FORM},
        [INVOICE, BELOW, DATE],
        [("Invoice date:", (95, 98, 405, 116)), DATE],
    ),
    "xfund": Sample(
        "de.val.json",
        xfund(german(0)),
        [INVOICE, BELOW, DATE],
        [("Invoice date:", (95, 98, 405, 116)), DATE],
        image="de_val_0.jpg",
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_words_and_lines_stand_in_their_boxes(tmp_path: Path, name: str) -> None:
    sample = SAMPLES[name]
    path = sample.write(tmp_path)
    if name == "funsd":
        refused(path, r"no image of that name \(page.png, .jpg, .tif, ...\) in .*; say where with --images")
        paint(tmp_path / "page.png")
    assert detect_format(path) == name
    ingest = load_regions(path)
    (record,) = ingest.records
    assert in_pixels(record) == sample.words
    assert (record.image, record.image_id) == (sample.image, sample.image.rpartition(".")[0])
    assert (record.width, record.height) == (1000, 800)
    assert record.dataset == {"funsd": "FUNSD", "xfund": "XFUND-de"}.get(name, "")
    assert in_pixels(load_regions(path, level="lines").records[0]) == sample.lines
    if sample.sure is not None:
        sure = load_regions(path, min_confidence=50)
        assert [word.text for word in sure.records[0].words] == sample.sure
        assert (sure.counts.boxes_without_text, sure.source["min_confidence"]) == (sample.sure.count(""), 50)


WIDTHLESS = ALTO.replace('NR="1" WIDTH="1000"', 'NR="1"')
COORDS = '<Coords points="170,100 220,100 220,114 170,114"/>'
WRONG: list[tuple[str, Any, str]] = [
    ("hocr", HOCR.replace("bbox 100 100 160 114", "box"), r"line 12: a word without 'bbox x1 y1 x2 y2'"),
    ("hocr", HOCR.replace("100 100 160 114", "100 100 160 wide"), "line 12: .* is not four numbers"),
    ("hocr", HOCR.replace("ocr_page", "page"), "line 11: a line outside of every ocr_page"),
    ("hocr", HEAD + "<p>nothing</p>" + TAIL, "no element of class ocr_page"),
    ("hocr", HOCR.replace("bbox 0 0 1000 800", "bbox 0 0 10 8"), "reversed or far outside an image of 10 x 8"),
    ("hocr", HEAD + HOCR_PAGE * 2 + TAIL, "image 'page.png' was already described"),
    ("hocr", HOCR + HOCR_PAGE.replace('image "/home/me/scans/page.png"; ', ""), "2 pages, not all of which"),
    ("hocr", HOCR.replace("bbox 0 0 1000 800; ", ""), "not say how large .* 'page.png' was not found.*--images"),
    ("alto", ALTO.replace('HPOS="170"', 'HPOS="left"'), r"String 'n&m' has no HPOS, VPOS, WIDTH, HEIGHT"),
    ("alto", ALTO.replace("</Layout>", ""), r"page.xml line 23: not XML: mismatched tag"),
    ("alto", "<mets/>", "its root is <mets>, not <alto>"),
    ("alto", ALTO.replace(">pixel<", ">furlong<"), "MeasurementUnit 'furlong' is none of pixel, mm10"),
    ("alto", WIDTHLESS.replace(">pixel<", ">mm10<"), "positions are in mm10, but the Page has no WIDTH"),
    ("alto", WIDTHLESS.replace(">pixel<", ">inch1200<"), "positions are in inch1200, but the Page has no WIDTH"),
    *(
        ("page_xml", PAGE_XML_PAGE.replace(COORDS, each), r"Word 'w2' has no Coords of the form points=")
        for each in ('<Coords points="170;100"/>', "<Coords/>", "")
    ),
    ("page_xml", "<PcGts><Metadata/></PcGts>", "has no Page element"),
    (
        "page_xml",
        "\n".join(line for line in PAGE_XML_PAGE.splitlines() if "Word" not in line and "index=" not in line),
        "has no words, only lines; read those with --lines",
    ),
    ("ms_read", {"recognitionResults": []}, "list of pages under recognitionResults"),
    ("ms_read", {"recognitionResults": [{}]}, "page 0 has no list 'lines'"),
    ("ms_read", {"recognitionResults": [{**MS_READ_PAGE, "lines": [{"text": []}]}]}, "page 0 line 0 is no .* text"),
    *(
        ("ms_read", {"recognitionResults": [{**MS_READ_PAGE, "lines": [{"text": "x", "boundingBox": each}]}]}, "points")
        for each in ([1, 2, 3], [1, 2, 10**400, 4], ["a"] * 4, None)
    ),
    ("ms_read", {"recognitionResults": [MS_READ_PAGE, MS_READ_PAGE]}, "was already described by another page"),
    ("funsd", {"form": [*FORM, {"text": "x", "words": []}]}, "line 2: needs 'box' of four numbers"),
    ("funsd", {"form": [{**FORM[0], "words": [{"text": "x", "box": [1, 2, 3]}]}]}, "line 0 word 0: needs 'box'"),
    ("funsd", {"form": [{**FORM[0], "words": {}}]}, "line 0 has no list 'words'"),
    ("funsd", {"form": {}}, "no list 'form'"),
    ("funsd", '{"form": [', "not a JSON document"),
    ("xfund", xfund(german(), {"id": "x", "document": FORM}), r"page 1 does not name its image \(img.fname"),
    ("xfund", {"documents": {}}, "list of pages under documents"),
]


@pytest.mark.parametrize(("name", "content", "says"), WRONG, ids=[f"{each[0]}-{i}" for i, each in enumerate(WRONG)])
def test_what_is_wrong_is_said_with_file_and_place(tmp_path: Path, name: str, content: Any, says: str) -> None:
    if name == "funsd":
        paint(tmp_path / "page.png")
    refused(SAMPLES[name].write(tmp_path, content), says, file_format=name)


# hOCR, as Tesseract writes it.


def test_a_line_without_words_has_its_own_text(tmp_path: Path) -> None:
    page = '<div class="ocr_page" title="bbox 0 0 1000 800"><span class="ocr_line" title="bbox 1 2 30 14">Sum 5<br>'
    paint(tmp_path / "page.png")
    path = SAMPLES["hocr"].write(tmp_path, HEAD + page + "EUR</span></div>" + TAIL)
    refused(path, "has no words, only lines; read those with --lines")
    (record,) = load_regions(path, level="lines").records
    assert in_pixels(record) == [("Sum 5EUR", (1, 2, 30, 14))]


def test_the_image_is_found_beside_the_file_and_gives_its_size_where_the_page_does_not(tmp_path: Path) -> None:
    paint(tmp_path / "images" / "page.png", (2000, 1600))
    ingest = load_regions(SAMPLES["hocr"].write(tmp_path, HOCR.replace("bbox 0 0 1000 800; ", "")))
    assert (ingest.images, ingest.records[0].image) == (tmp_path / "images", "page.png")
    assert in_pixels(ingest.records[0])[0] == ("Invoice", (50, 50, 80, 57))


def test_a_folder_is_read_file_by_file_and_others_are_counted(tmp_path: Path) -> None:
    for name in ("b.hocr", "a.html"):
        (tmp_path / name).write_text(HOCR.replace("page.png", f"{name[0]}.png"), encoding="utf-8")
    (tmp_path / "index.html").write_text("<html><body>all pages</body></html>")
    ingest = load_regions(tmp_path)
    assert ingest.source["format"] == "hocr"
    assert [record.image for record in ingest.records] == ["a.png", "b.png"]
    assert ingest.counts.files_left_out == 1
    (tmp_path / "b.hocr").write_text(HOCR.replace("page.png", "b.png").replace("Invoice", "Receipt"), encoding="utf-8")
    assert load_regions(tmp_path).source["digest"] != ingest.source["digest"]


def test_several_pages_in_a_file_have_a_name_each(tmp_path: Path) -> None:
    path = SAMPLES["hocr"].write(tmp_path, HEAD + HOCR_PAGE + HOCR_PAGE.replace("page.png", "second.png") + TAIL)
    assert [record.image for record in load_regions(path).records] == ["page.png", "second.png"]


def test_entities_of_a_document_type_are_not_expanded(tmp_path: Path) -> None:
    doctype = '<!DOCTYPE html [<!ENTITY a "AAAAAAAAAA"><!ENTITY b "&a;&a;&a;">]>'
    path = SAMPLES["hocr"].write(tmp_path, doctype + HOCR_PAGE.replace("Invoice", "&b;"))
    assert load_regions(path).records[0].words[0].text == "&b;"


# ALTO XML, versions 2 to 4, and PAGE XML, of 2010 and of today.


@pytest.mark.parametrize("namespace", ["www.loc.gov/standards/alto/ns-v3#", "schema.ccs-gmbh.com/ALTO", ""])
def test_words_of_every_version_stand_in_their_boxes(tmp_path: Path, namespace: str) -> None:
    own = f'xmlns="http://{namespace}" ' if namespace else ""
    path = SAMPLES["alto"].write(tmp_path, ALTO.replace('xmlns="http://www.loc.gov/standards/alto/ns-v4#" ', own))
    assert detect_format(path) == "alto"
    assert in_pixels(load_regions(path).records[0]) == SAMPLES["alto"].words


@pytest.mark.parametrize("unit", ["mm10", "inch1200"])
def test_other_units_are_read_as_fractions_of_the_page(tmp_path: Path, unit: str) -> None:
    (record,) = load_regions(SAMPLES["alto"].write(tmp_path, ALTO.replace(">pixel<", f">{unit}<"))).records
    assert in_pixels(record) == SAMPLES["alto"].words
    assert (record.width, record.height) == (None, None)  # in pixels nobody knows


def test_a_page_without_size_is_as_large_as_its_image(tmp_path: Path) -> None:
    sized = ALTO.replace('NR="1" WIDTH="1000" HEIGHT="800"', 'NR="1" WIDTH="0" HEIGHT="0"')
    paint(tmp_path / "page.png")
    assert in_pixels(load_regions(SAMPLES["alto"].write(tmp_path, sized)).records[0]) == SAMPLES["alto"].words


def test_corners_may_be_elements_as_in_2010(tmp_path: Path) -> None:
    old = '<Coords><Point x="170" y="100"/><Point x="220" y="100"/><Point x="220" y="114"/></Coords>'
    path = SAMPLES["page_xml"].write(tmp_path, PAGE_XML_PAGE.replace(COORDS, old))
    assert in_pixels(load_regions(path).records[0]) == SAMPLES["page_xml"].words


def test_images_are_found_above_a_folder_of_pages(tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    SAMPLES["page_xml"].write(tmp_path / "page")
    (tmp_path / "page" / "mets.xml").write_text("<mets/>")
    paint(tmp_path / "page.png")
    ingest = load_regions(tmp_path / "page")
    assert ingest.images is not None
    assert ingest.images.samefile(tmp_path)
    assert ingest.counts.files_left_out == 1


# What Microsoft's Read service writes, in its older and newer form; forms one by one, and by language.


def test_without_an_image_beside_it_a_page_is_docvqas(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"recognitionResults": [MS_READ_PAGE]}))
    (tmp_path / "notes.json").write_text("{}")
    assert detect_format(tmp_path) == "ms_read"
    ingest = load_regions(tmp_path)
    assert [record.image_id for record in ingest.records] == ["documents/a", "documents/b"]
    assert ingest.counts.files_left_out == 1
    paint(tmp_path / "images" / "a.png")
    found = load_regions(tmp_path / "a.json")
    assert (found.records[0].image, found.images) == ("a.png", tmp_path / "images")


def test_later_versions_give_confidences_and_other_units(tmp_path: Path) -> None:
    words = [{**word, "confidence": sure} for word, sure in zip(MS_READ_WORDS, (0.95, 0.4), strict=True)]
    page = {**MS_READ_PAGE, "lines": [{**LINES[0], "words": words}]}
    path = SAMPLES["ms_read"].write(tmp_path, {"status": "succeeded", "analyzeResult": {"readResults": [page]}})
    assert [word.text for word in load_regions(path, min_confidence=90).records[0].words] == ["Invoice", ""]
    inches = {"analyzeResult": {"readResults": [{**MS_READ_PAGE, "unit": "inch"}]}}
    (record,) = load_regions(SAMPLES["ms_read"].write(tmp_path, inches)).records
    assert (record.width, record.height) == (None, None)
    assert record.words[0].box == (0.1, 0.125, 0.16, 0.1425)


def test_a_word_of_low_confidence_may_be_left_without_text(tmp_path: Path) -> None:
    path = SAMPLES["ms_read"].write(tmp_path)
    assert [word.text for word in load_regions(path, min_confidence=60).records[0].words] == ["Invoice", ""]


@pytest.mark.parametrize("folder", ["annotations", "."])
def test_a_folder_of_forms_is_read_in_the_order_of_names(tmp_path: Path, folder: str) -> None:
    (tmp_path / "annotations").mkdir()
    for name in ("82200067_0069", "00040534"):
        (tmp_path / "annotations" / f"{name}.json").write_text(json.dumps({"form": FORM}))
        paint(tmp_path / "images" / f"{name}.png")
    ingest = load_regions(tmp_path / folder)
    assert [record.image_id for record in ingest.records] == ["00040534", "82200067_0069"]
    assert ingest.images is not None
    assert ingest.images.samefile(tmp_path / "images")
    assert load_regions(tmp_path / folder, images=tmp_path / "images").records == ingest.records


def test_single_boxes_far_away_are_dropped_and_counted(tmp_path: Path) -> None:
    strange = {**FORM[1], "words": [{"text": "lost", "box": [9000, 10, 9100, 20]}, *FORM[1]["words"]]}
    content = xfund({**german(), "document": [FORM[0], strange]}, german(1))
    ingest = load_regions(SAMPLES["xfund"].write(tmp_path, content))
    assert [record.image for record in ingest.records] == ["de_val_0.jpg", "de_val_1.jpg"]
    assert in_pixels(ingest.records[0]) == SAMPLES["xfund"].words
    assert ingest.counts.dropped_malformed == 1


# XML from anywhere: nothing is expanded, nothing is fetched, nothing grows without bound.


LAUGHS = """<!DOCTYPE alto [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">
<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]>
<alto>&c;</alto>"""


def safe_xml_save(folder: Path, text: str) -> Path:
    (folder / "x.xml").write_text(text, encoding="utf-8")
    return folder / "x.xml"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (LAUGHS, "line 1: declares a document type.* delete the <!DOCTYPE"),
        ('<!DOCTYPE alto SYSTEM "alto.dtd"><alto/>', "line 1: declares a document type"),
        ('<!DOCTYPE alto [<!ENTITY secret SYSTEM "x.xml">]><alto>&secret;</alto>', "line 1: declares a document type"),
        ("<alto>&c;</alto>", "line 1: not XML: undefined entity"),
        ("<a>" * 101 + "</a>" * 101, "nest deeper than 100"),
        ('<?xml version="1.0" encoding="klingon"?><a/>', ".*: not XML: "),
    ],
)
def test_nothing_is_expanded_fetched_or_endless(tmp_path: Path, text: str, says: str) -> None:
    assert read_xml(safe_xml_save(tmp_path, "<a>" * 100 + "</a>" * 100)).tag == "a"
    with pytest.raises(SightlineError, match=rf"x\.xml.*{says}"):
        read_xml(safe_xml_save(tmp_path, text))


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


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "y.gz").write_bytes(gzip.compress(b"<a/>")[:-6])
    with pytest.raises(SightlineError, match="damaged gzip file"):
        data_rows.read_bytes(tmp_path / "y.gz")
