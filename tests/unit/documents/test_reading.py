"""A text counts when its engine is sure or two agree; what does not count is kept with its reason."""

from pathlib import Path

import pytest

from sightline.boxes.detection import TextsRead, read_texts
from sightline.documents import reading
from tests.unit.documents.pages_for_tests import HEIGHT, INVOICE, WIDTH, drawn, found, read


@pytest.mark.parametrize(
    ("first", "second", "counted", "dropped"),
    [
        ("10 10 Total", None, ["Total"], []),
        ("10 10 Total ~0.5", None, [], [("Total", reading.UNSURE)]),
        ("10 14 Cash\n400 10 9.81\n10 50 Tax\n400 47 1.20", None, ["Cash", "9.81", "Tax", "1.20"], []),
        ("10 10 Total ~0.5", "10 10 Total", ["Total"], []),
        ("10 10 Total ~0.5", "10 10 TOTAL", ["Total"], []),
        ("10 10 Total ~0.5", "10 90 Total", [], [("Total", reading.UNSURE), ("Total", reading.ALONE)]),
        ("10 10 SERAI 12.50 ~0.5", "10 10 SERAT\n82 10 12.50", ["12.50"], [("SERAI", reading.DISAGREE)]),
        ("10 10 6,70 ~0.5", "10 10 6.70", [], [("6,70", reading.DISAGREE)]),
        ("10 10 SERAI", "10 10 SERAT", ["SERAI"], []),
        ("10 10 JALANMERANTI", "10 10 JALAN\n82 10 MERANTI", ["JALAN MERANTI"], []),
        ("10 10 1 234", "10 10 1\n40 10 234", ["1 234"], []),
        ("10 10 ****", None, [], [("****", reading.NO_TEXT)]),
        ("10 10 Total", "10 90 speck ~0.3", ["Total"], []),
    ],
)
def test_which_texts_count(first: str, second: str | None, counted: list[str], dropped: list[tuple[str, str]]) -> None:
    page = read(first, second)
    assert [line.text for line in page.lines] == counted
    assert [(line.text, line.reason) for line in page.dropped] == dropped


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ((), "no text was found"),
        (found("10 10 Total\n10 50 Sum", 0.75), "none of its 2 texts could be read for sure"),
        (found("10 10 letol\n10 50 muS\n10 90 hsaC", 0.7), "hardly anything can be read for sure: is it upside down"),
    ],
)
def test_a_page_that_cannot_be_read_says_so(texts: tuple, said: str) -> None:
    assert said in reading.combine("page.png", TextsRead(WIDTH, HEIGHT, texts)).problem


def test_a_page_that_lies_on_its_side_says_so() -> None:
    upright = found(INVOICE)
    turned = tuple(type(text)(tuple((y, x) for x, y in text.outline), text.confidence, text.text) for text in upright)
    assert reading.combine("page.png", TextsRead(WIDTH, HEIGHT, upright)).problem == ""
    assert "runs upwards or downwards" in reading.combine("page.png", TextsRead(HEIGHT, WIDTH, turned)).problem


def test_a_part_of_a_line_has_its_share_of_the_box() -> None:
    line = reading.PageLine("Total: 12.50", (0.1, 0.2, 0.7, 0.3), 1.0)
    label, value = reading.words_of(line)
    assert (label.text, value.text) == ("Total:", "12.50")
    assert label.box[0] == 0.1
    assert value.box[2] == 0.7
    assert 0.35 < value.box[0] < 0.45
    assert reading.part(line, 0, len(line.text)).box == line.box


@pytest.mark.parametrize(
    ("text", "line", "stands"),
    [
        ("12.50", "RM12.50", True), ("12.50", "112.50", False), ("12.50", "12.503", False),
        ("26-06-2018", "26-06-2018 17:08", True), ("Total", "Subtotal", False), ("ABC SDN", "ABCSDNBHD", False),
        ("ABC SDN", "abcsdn 12", True),
    ],
)  # fmt: skip
def test_where_a_text_stands(text: str, line: str, stands: bool) -> None:
    assert bool(reading.standing(text).search(line)) is stands


def test_an_engine_reads_a_page_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn(INVOICE).save(tmp_path / "page.png")
    (tmp_path / "cut.jpg").write_bytes(b"\xff\xd8\xff\xe0 cut off")
    names, cache = ["page.png", "cut.jpg"], tmp_path / "cache"
    pages = reading.read_pages(tmp_path, names, cache=cache, workers=1)
    texts = {reading.folded(line.text) for line in pages["page.png"].lines}
    assert {"copperwire", "139.95", "invoiceno:inv-20417"} <= {text.strip("$") for text in texts}
    assert "cannot be read" in pages["cut.jpg"].problem

    def again(*_: object, **__: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr("sightline.boxes.detection._run", again)
    assert reading.read_pages(tmp_path, ["page.png"], cache=cache)["page.png"] == pages["page.png"]
    with pytest.raises(AssertionError, match="read again"):
        read_texts("rapidocr", tmp_path, ["page.png"], cache=tmp_path / "another")
