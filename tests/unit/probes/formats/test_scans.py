"""Formats of scanned pages, one page of each, and all that can be wrong with them."""

import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sightline.probes import data_rows
from sightline.probes.annotations import detect_format, load_regions
from sightline.probes.formats import pages
from sightline.probes.formats.pages import below, read_xml
from tests.conftest import DATA
from tests.refusals import Refused
from tests.unit.probes.formats.pages import in_pixels, paint

PAGES = DATA / "pages"
HOCR, ALTO, PAGE_XML = ((PAGES / name).read_text("utf-8") for name in ("tesseract.hocr", "alto.xml", "page.xml"))
HEAD, TAIL = HOCR[: HOCR.index(" <div class='ocr_page'")], " </body>\n</html>\n"
HOCR_PAGE = HOCR.removeprefix(HEAD).removesuffix(TAIL)
MS_READ_PAGE: dict[str, Any] = json.loads((PAGES / "read.json").read_text("utf-8"))
FORM: list[dict[str, Any]] = json.loads((PAGES / "form.json").read_text("utf-8"))["form"]


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


HEADED, DATED = ("Invoice n&m", (95, 98, 405, 116)), ("Invoice date:", (95, 98, 405, 116))
SAMPLES = {
    "hocr": Sample("page.hocr", HOCR, [INVOICE, AND, DATE], [HEADED, DATE], ["Invoice", "", DATE[0]]),
    "alto": Sample(
        "page.xml", ALTO,
        [INVOICE, AND, ("12.07.", (100, 120, 140, 136)), ("2031", (150, 121, 190, 137))],
        [HEADED, ("12.07. 2031", (100, 120, 190, 137))],
        ["Invoice", "", "12.07.", "2031"],
    ),
    "page_xml": Sample(
        "page.xml", PAGE_XML, [INVOICE, AND, DATE], [("Invoice n&m.", HEADED[1]), DATE], ["Invoice", "", DATE[0]]
    ),
    "ms_read": Sample(
        "doc_1.json", {"status": "Succeeded", "recognitionResults": [MS_READ_PAGE]},
        [INVOICE, ("date:", (170, 99, 220, 114))], [("Invoice date:", (100, 99, 220, 114))], ["Invoice", "date:"],
        "documents/doc_1.png",
    ),
    "funsd": Sample("page.json", {"form": FORM}, [INVOICE, BELOW, DATE], [DATED, DATE]),
    "xfund": Sample("de.val.json", xfund(german(0)), [INVOICE, BELOW, DATE], [DATED, DATE], image="de_val_0.jpg"),
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_words_and_lines_stand_in_their_boxes(tmp_path: Path, name: str, refused: Refused) -> None:
    sample = SAMPLES[name]
    path = sample.write(tmp_path)
    if name == "funsd":
        refused("no image of that name (page", load_regions, path)
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
WORDLESS = "\n".join(line for line in PAGE_XML.splitlines() if "Word" not in line and "index=" not in line)


def read_pages(*changes: dict[str, Any]) -> dict[str, Any]:
    return {"recognitionResults": [{**MS_READ_PAGE, **change} for change in changes]}


WRONG: list[tuple[str, Any, str]] = [
    ("hocr", HOCR.replace("bbox 100 100 160 114", "box"), "line 12: a word without 'bbox x1 y1 x2 y2'"),
    ("hocr", HOCR.replace("100 100 160 114", "100 100 160 wide"), "is not four numbers"),
    ("hocr", HOCR.replace("100 100 160 114", "100 100 160 inf"), "160 inf' is not four numbers"),
    ("hocr", HOCR.replace("ocr_page", "page"), "line 11: a line outside of every ocr_page"),
    ("hocr", HEAD + "<p>nothing</p>" + TAIL, "no element of class ocr_page"),
    ("hocr", HOCR.replace("bbox 0 0 1000 800", "bbox 0 0 10 8"), "reversed or far outside an image of 10 x 8"),
    ("hocr", HEAD + HOCR_PAGE * 2 + TAIL, "png' was already described"),
    ("hocr", HOCR + HOCR_PAGE.replace('image "/home/me/scans/page.png"; ', ""), "2 pages, not all of which"),
    ("hocr", HOCR.replace("bbox 0 0 1000 800; ", ""), "does not say how large its image is"),
    ("alto", ALTO.replace('HPOS="170"', 'HPOS="left"'), "String 'n&m' has no HPOS, VPOS, WIDTH, HEIGHT"),
    ("alto", ALTO.replace("</Layout>", ""), "line 23: not XML: mismatched tag"),
    ("alto", "<mets/>", "its root is <mets>, not <alto>"),
    ("alto", ALTO.replace(">pixel<", ">furlong<"), "MeasurementUnit 'furlong' is none of pixel, mm10"),
    ("alto", WIDTHLESS.replace(">pixel<", ">mm10<"), "positions are in mm10, but the Page has no WIDTH"),
    ("alto", WIDTHLESS.replace(">pixel<", ">inch1200<"), "positions are in inch1200, but the Page has no WIDTH"),
    *(("page_xml", PAGE_XML.replace(COORDS, each), "Word 'w2' has no Coords of the form points=")
      for each in ('<Coords points="170;100"/>', "<Coords/>", "")),
    ("page_xml", "<PcGts><Metadata/></PcGts>", "has no Page element"),
    ("page_xml", WORDLESS, "page.xml: has no words, only lines"),
    ("ms_read", {"recognitionResults": []}, "list of pages under recognitionResults"),
    ("ms_read", {"recognitionResults": [{}]}, "page 0 has no list 'lines'"),
    ("ms_read", read_pages({"lines": [{"text": []}]}), "page 0 line 0 is no"),
    *(("ms_read", read_pages({"lines": [{"text": "x", "boundingBox": each}]}), f"found {str(each or 'nothing')[:9]}")
      for each in ([1, 2, 3], [1, 2, 10**400, 4], ["a"] * 4, None)),
    ("ms_read", read_pages({}, {}), "was already described by another page"),
    ("funsd", {"form": [*FORM, {"text": "x", "words": []}]}, "line 2: needs 'box' of four numbers"),
    ("funsd", {"form": [{**FORM[0], "words": [{"text": "x", "box": [1, 2, 3]}]}]}, "line 0 word 0: needs 'box'"),
    ("funsd", {"form": [{**FORM[0], "words": {}}]}, "line 0 has no list 'words'"),
    ("funsd", {"form": {}}, "no list 'form'"),
    ("funsd", '{"form": [', "not a JSON document"),
    ("xfund", xfund(german(), {"id": "x", "document": FORM}), "page 1 does not name its image"),
    ("xfund", {"documents": {}}, "list of pages under documents"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "says"), WRONG, ids=[f"{each[0]}-{i}" for i, each in enumerate(WRONG)])
def test_what_is_wrong_is_said(tmp_path: Path, name: str, content: Any, says: str, refused: Refused) -> None:
    if name == "funsd":
        paint(tmp_path / "page.png")
    refused(says, load_regions, SAMPLES[name].write(tmp_path, content), file_format=name)


# hOCR, as Tesseract writes it.


def test_a_file_of_several_pages_is_several_images(tmp_path: Path) -> None:
    path = SAMPLES["hocr"].write(tmp_path, HEAD + HOCR_PAGE + HOCR_PAGE.replace("page.png", "second.png") + TAIL)
    assert [record.image for record in load_regions(path).records] == ["page.png", "second.png"]


def test_entities_of_hocr_are_not_expanded(tmp_path: Path) -> None:
    doctype = '<!DOCTYPE html [<!ENTITY a "AAAAAAAAAA"><!ENTITY b "&a;&a;&a;">]>'
    path = SAMPLES["hocr"].write(tmp_path, doctype + HOCR_PAGE.replace("Invoice", "&b;"))
    assert load_regions(path).records[0].words[0].text == "&b;"


def test_a_page_without_a_size_is_as_large_as_its_image(tmp_path: Path) -> None:
    paint(tmp_path / "images" / "page.png", (2000, 1600))
    ingest = load_regions(SAMPLES["hocr"].write(tmp_path, HOCR.replace("bbox 0 0 1000 800; ", "")))
    assert (ingest.images, ingest.records[0].image) == (tmp_path / "images", "page.png")
    assert in_pixels(ingest.records[0])[0] == ("Invoice", (50, 50, 80, 57))


def test_a_line_without_words_has_its_own_text(tmp_path: Path, refused: Refused) -> None:
    page = '<div class="ocr_page" title="bbox 0 0 1000 800"><span class="ocr_line" title="bbox 1 2 30 14">Sum 5<br>'
    paint(tmp_path / "page.png")
    path = SAMPLES["hocr"].write(tmp_path, HEAD + page + "EUR</span></div>" + TAIL)
    refused("has no words, only lines; read those with --lines", load_regions, path)
    (record,) = load_regions(path, level="lines").records
    assert in_pixels(record) == [("Sum 5EUR", (1, 2, 30, 14))]


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


# ALTO XML, versions 2 to 4, and PAGE XML, of 2010 and of today.


def test_alto_of_every_version_and_unit_is_read(tmp_path: Path) -> None:
    alto = SAMPLES["alto"]
    paint(tmp_path / "page.png")
    for namespace in ("http://www.loc.gov/standards/alto/ns-v3#", "http://schema.ccs-gmbh.com/ALTO", ""):
        own = ALTO.replace("http://www.loc.gov/standards/alto/ns-v4#", namespace)
        path = alto.write(tmp_path, own if namespace else own.replace('xmlns="" ', ""))
        assert detect_format(path) == "alto"
        assert in_pixels(load_regions(path).records[0]) == alto.words
    for unit in ("mm10", "inch1200"):  # read as fractions of the page
        (record,) = load_regions(alto.write(tmp_path, ALTO.replace(">pixel<", f">{unit}<"))).records
        assert in_pixels(record) == alto.words
        assert (record.width, record.height) == (None, None), "in pixels nobody knows"
    sized = ALTO.replace('NR="1" WIDTH="1000" HEIGHT="800"', 'NR="1" WIDTH="0" HEIGHT="0"')
    assert in_pixels(load_regions(alto.write(tmp_path, sized)).records[0]) == alto.words, "as large as its image"


def test_page_xml_of_2010_is_read(tmp_path: Path) -> None:
    page_xml = SAMPLES["page_xml"]
    old = '<Coords><Point x="170" y="100"/><Point x="220" y="100"/><Point x="220" y="114"/></Coords>'
    path = page_xml.write(tmp_path, PAGE_XML.replace(COORDS, old))
    assert in_pixels(load_regions(path).records[0]) == page_xml.words


def test_images_are_found_above_a_folder_of_pages(tmp_path: Path) -> None:
    paint(tmp_path / "page.png")
    (tmp_path / "pages").mkdir()
    SAMPLES["page_xml"].write(tmp_path / "pages")
    (tmp_path / "pages" / "mets.xml").write_text("<mets/>")
    ingest = load_regions(tmp_path / "pages")
    assert ingest.images is not None
    assert ingest.images.samefile(tmp_path)
    assert ingest.counts.files_left_out == 1


# What Microsoft's Read service writes, in its older and newer form; forms one by one, and by language.


def sure_words(path: Path, least: int) -> list[str]:
    return [word.text for word in load_regions(path, min_confidence=least).records[0].words]


def test_pages_of_the_read_service_without_an_image_are_docvqas(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.json").write_text(json.dumps(read_pages({})))
    (tmp_path / "notes.json").write_text("{}")
    assert detect_format(tmp_path) == "ms_read"
    ingest = load_regions(tmp_path)
    assert [record.image_id for record in ingest.records] == ["documents/a", "documents/b"]
    assert ingest.counts.files_left_out == 1
    assert sure_words(tmp_path / "a.json", 60) == ["Invoice", ""]
    paint(tmp_path / "images" / "a.png")
    found = load_regions(tmp_path / "a.json")
    assert (found.records[0].image, found.images) == ("a.png", tmp_path / "images")


def test_the_newer_read_service_tells_shares_of_confidence_and_inches(tmp_path: Path) -> None:
    (line,) = MS_READ_PAGE["lines"]
    words = [{**word, "confidence": share} for word, share in zip(line["words"], (0.95, 0.4), strict=True)]
    newer = {"readResults": [{**MS_READ_PAGE, "lines": [{**line, "words": words}]}]}
    path = SAMPLES["ms_read"].write(tmp_path, {"status": "succeeded", "analyzeResult": newer})
    assert sure_words(path, 90) == ["Invoice", ""]
    inches = {"analyzeResult": {"readResults": [{**MS_READ_PAGE, "unit": "inch"}]}}
    (record,) = load_regions(SAMPLES["ms_read"].write(tmp_path, inches)).records
    assert (record.width, record.height) == (None, None)
    assert record.words[0].box == (0.1, 0.125, 0.16, 0.1425)


def test_a_folder_of_forms_is_read_in_the_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "annotations").mkdir()
    for name in ("82200067_0069", "00040534"):
        (tmp_path / "annotations" / f"{name}.json").write_text(json.dumps({"form": FORM}))
        paint(tmp_path / "images" / f"{name}.png")
    for folder in ("annotations", "."):
        ingest = load_regions(tmp_path / folder)
        assert [record.image_id for record in ingest.records] == ["00040534", "82200067_0069"]
        assert ingest.images is not None
        assert ingest.images.samefile(tmp_path / "images")
        assert load_regions(tmp_path / folder, images=tmp_path / "images").records == ingest.records


def test_a_single_box_far_outside_its_page_is_dropped(tmp_path: Path) -> None:
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


def test_nothing_in_xml_is_expanded_or_fetched(tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "x.xml"
    path.write_text("<a>" * 100 + "</a>" * 100)
    assert read_xml(path, "a").tag == "a"
    for text, says in (
        (LAUGHS, "line 1: declares a document type"),
        ('<!DOCTYPE alto SYSTEM "alto.dtd"><alto/>', "line 1: declares a document type"),
        ('<!DOCTYPE alto [<!ENTITY secret SYSTEM "x.xml">]><alto>&secret;</alto>', "line 1: declares a document type"),
        ("<alto>&c;</alto>", "line 1: not XML: undefined entity"),
        ("<a>" * 101 + "</a>" * 101, "nest deeper than 100"),
        ('<?xml version="1.0" encoding="klingon"?><a/>', "not XML: "),
    ):
        path.write_text(text)
        refused(says, read_xml, path, "alto")


def test_names_of_xml_lose_their_namespaces(tmp_path: Path) -> None:
    path = tmp_path / "x.xml"
    text = '<?xml version="1.0" encoding="ISO-8859-1"?><n:a xmlns:n="u"><n:b n:c="ü"/></n:a>'
    path.write_bytes(text.encode("latin-1"))
    root = read_xml(path, "a")
    assert root.tag == "a"
    assert [each.attrib for each in below(root, "b")] == [{"c": "ü"}]


def test_xml_is_bounded_when_it_is_unpacked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    path, packed = tmp_path / "x.xml", tmp_path / "x.xml.gz"
    monkeypatch.setattr(pages, "MAX_XML_BYTES", 2**20)
    path.write_text("<a>" + " " * 2**20 + "</a>")
    refused("x.xml: holds more than 1 MiB; split it", read_xml, path, "a")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert packed.stat().st_size < 2**12
    refused("holds more than 1 MiB", read_xml, packed, "a")
    packed.write_bytes(gzip.compress(b"<a/>")[:-6])
    refused("damaged gzip file", data_rows.read_bytes, packed)
