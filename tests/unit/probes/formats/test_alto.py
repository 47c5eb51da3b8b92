"""ALTO XML, versions 2 to 4."""

from __future__ import annotations

from pathlib import Path

import pytest

from sightline.probes.annotations import detect_format, load_regions
from tests.unit.probes.formats.pages import in_pixels, paint, refused

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


def write(folder: Path, text: str = ALTO) -> Path:
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
    path = write(tmp_path, ALTO.replace('xmlns="http://www.loc.gov/standards/alto/ns-v4#" ', namespace))
    assert detect_format(path) == "alto"
    (record,) = load_regions(path).records
    assert in_pixels(record) == WORDS
    assert (record.image, record.width, record.height) == ("page.png", 1000, 800)


def test_lines_have_their_own_box_or_the_one_around_their_words(tmp_path: Path) -> None:
    (record,) = load_regions(write(tmp_path), level="lines").records
    assert in_pixels(record) == [("Invoice n&m", (95, 98, 405, 116)), ("12.07. 2031", (100, 120, 190, 137))]


def test_confidence_is_a_share_of_one_in_the_file(tmp_path: Path) -> None:
    texts = [word.text for word in load_regions(write(tmp_path), min_confidence=50).records[0].words]
    assert texts == ["Invoice", "", "12.07.", "2031"]


@pytest.mark.parametrize("unit", ["mm10", "inch1200"])
def test_other_units_are_read_as_fractions_of_the_page(tmp_path: Path, unit: str) -> None:
    path = write(tmp_path, ALTO.replace(">pixel<", f">{unit}<"))
    (record,) = load_regions(path).records
    assert in_pixels(record) == WORDS
    assert (record.width, record.height) == (None, None)  # in pixels nobody knows
    refused(
        write(tmp_path, ALTO.replace(">pixel<", f">{unit}<").replace('NR="1" WIDTH="1000"', 'NR="1"')),
        f"positions are in {unit}, but the Page has no WIDTH and HEIGHT",
    )


def test_an_unknown_unit_is_refused(tmp_path: Path) -> None:
    refused(write(tmp_path, ALTO.replace(">pixel<", ">furlong<")), "MeasurementUnit 'furlong' is none of pixel, mm10")


def test_a_page_without_size_is_as_large_as_its_image(tmp_path: Path) -> None:
    path = write(tmp_path, ALTO.replace('NR="1" WIDTH="1000" HEIGHT="800"', 'NR="1" WIDTH="0" HEIGHT="0"'))
    paint(tmp_path / "page.png")
    assert in_pixels(load_regions(path).records[0]) == WORDS


def test_what_is_wrong_is_said_with_file_and_place(tmp_path: Path) -> None:
    refused(
        write(tmp_path, ALTO.replace('HPOS="170"', 'HPOS="left"')), r"String 'n&m' has no HPOS, VPOS, WIDTH, HEIGHT"
    )
    refused(write(tmp_path, ALTO.replace("</Layout>", "")), r"page.xml line 23: not XML: mismatched tag")
    refused(write(tmp_path, "<mets/>"), "its root is <mets>, not <alto>", file_format="alto")
