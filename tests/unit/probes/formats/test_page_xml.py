"""PAGE XML, of 2010 and of today."""

from __future__ import annotations

from pathlib import Path

import pytest

from sightline.probes.annotations import detect_format, load_regions
from tests.unit.probes.formats.pages import in_pixels, paint, refused

PAGE = """<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
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
WORDS = [("Invoice", (100, 100, 160, 114)), ("n&m", (170, 100, 220, 114)), ("12.07.2031", (100, 120, 240, 136))]


def write(folder: Path, text: str = PAGE, name: str = "page.xml") -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_words_stand_in_the_box_around_their_outline_with_the_first_reading(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert detect_format(path) == "page_xml"
    (record,) = load_regions(path).records
    assert in_pixels(record) == WORDS
    assert (record.image, record.width, record.height) == ("page.png", 1000, 800)


def test_lines_have_their_own_reading_or_that_of_their_words(tmp_path: Path) -> None:
    (record,) = load_regions(write(tmp_path), level="lines").records
    assert in_pixels(record) == [("Invoice n&m.", (95, 98, 405, 116)), ("12.07.2031", (100, 120, 240, 136))]


def test_confidence_is_that_of_the_reading(tmp_path: Path) -> None:
    texts = [word.text for word in load_regions(write(tmp_path), min_confidence=50).records[0].words]
    assert texts == ["Invoice", "", "12.07.2031"]


def test_corners_may_be_elements_as_in_2010(tmp_path: Path) -> None:
    old = '<Coords><Point x="170" y="100"/><Point x="220" y="100"/><Point x="220" y="114"/></Coords>'
    path = write(tmp_path, PAGE.replace('<Coords points="170,100 220,100 220,114 170,114"/>', old))
    assert in_pixels(load_regions(path).records[0]) == WORDS


def test_images_are_found_above_a_folder_of_pages(tmp_path: Path) -> None:
    write(tmp_path, name="page/one.xml")
    write(tmp_path, "<mets/>", name="page/mets.xml")
    paint(tmp_path / "page.png")
    ingest = load_regions(tmp_path / "page")
    assert ingest.images is not None
    assert ingest.images.samefile(tmp_path)
    assert ingest.counts.files_left_out == 1


def test_a_page_of_lines_alone_says_how_to_read_it(tmp_path: Path) -> None:
    without = "\n".join(line for line in PAGE.splitlines() if "Word" not in line and "index=" not in line)
    refused(write(tmp_path, without), "has no words, only lines; read those with --lines")


@pytest.mark.parametrize("coords", ['<Coords points="170;100"/>', "<Coords/>", ""])
def test_an_element_without_an_outline_is_named(tmp_path: Path, coords: str) -> None:
    bad = PAGE.replace('<Coords points="170,100 220,100 220,114 170,114"/>', coords)
    refused(write(tmp_path, bad), r"Word 'w2' has no Coords of the form points=")


def test_a_file_without_a_page_is_refused(tmp_path: Path) -> None:
    refused(write(tmp_path, "<PcGts><Metadata/></PcGts>"), "has no Page element")
