"""Which texts of a page count, and which labels and values they make; what could be meant otherwise is refused."""

from pathlib import Path

import pytest

from sightline.boxes.detection import TextsRead, read_texts
from sightline.documents import reading
from sightline.documents.fields import find_fields
from sightline.documents.settings import kind_of_value, known_label
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
def test_a_text_counts_when_its_engine_is_sure_or_two_agree(
    first: str, second: str | None, counted: list[str], dropped: list[tuple[str, str]]
) -> None:
    page = read(first, second)
    assert [line.text for line in page.lines] == counted
    assert [(line.text, line.reason) for line in page.dropped] == dropped


def test_a_page_that_cannot_be_read_or_lies_on_its_side_says_so() -> None:
    upright = found(INVOICE)
    turned = tuple(type(text)(tuple((y, x) for x, y in text.outline), text.confidence, text.text) for text in upright)
    for texts, said in (
        ((), "no text was found"),
        (found("10 10 Total\n10 50 Sum", 0.75), "none of its 2 texts could be read for sure"),
        (found("10 10 letol\n10 50 muS\n10 90 hsaC", 0.7), "hardly anything can be read for sure: is it upside down"),
    ):
        assert said in reading.combine("page.png", TextsRead(WIDTH, HEIGHT, texts)).problem
    assert reading.combine("page.png", TextsRead(WIDTH, HEIGHT, upright)).problem == ""
    assert "runs upwards or downwards" in reading.combine("page.png", TextsRead(HEIGHT, WIDTH, turned)).problem


def test_a_part_of_a_line_has_its_share_of_the_box() -> None:
    line = reading.PageLine("Total: 12.50", (0.1, 0.2, 0.7, 0.3), 1.0)
    label, value = reading.words_of(line)
    assert (label.text, label.box[0], value.text, value.box[2]) == ("Total:", 0.1, "12.50", 0.7)
    assert 0.35 < value.box[0] < 0.45
    assert reading.part(line, 0, len(line.text)).box == line.box


def test_texts_stand_as_whole_words() -> None:
    for text, whole, stands in (
        ("12.50", "RM12.50", True), ("12.50", "112.50", False), ("12.50", "12.503", False),
        ("26-06-2018", "26-06-2018 17:08", True), ("Total", "Subtotal", False), ("ABC SDN", "ABCSDNBHD", False),
        ("ABC SDN", "abcsdn 12", True),
    ):  # fmt: skip
        assert bool(reading.standing(text).search(whole)) is stands, (text, whole)


def test_an_engine_reads_a_page_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn(INVOICE).save(tmp_path / "page.png")
    (tmp_path / "cut.jpg").write_bytes(b"\xff\xd8\xff\xe0 cut off")
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    pages = reading.read_pages(tmp_path, ["page.png", "cut.jpg"])
    texts = {reading.folded(line.text) for line in pages["page.png"].lines}
    assert {"copperwire", "139.95", "invoiceno:inv-20417"} <= {text.strip("$") for text in texts}
    assert "cannot be read" in pages["cut.jpg"].problem

    def again(*_: object, **__: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr("sightline.boxes.detection._run", again)
    assert reading.read_pages(tmp_path, ["page.png"])["page.png"] == pages["page.png"]
    with pytest.raises(AssertionError, match="read again"):
        read_texts("rapidocr", tmp_path, ["page.png"], cache=tmp_path / "another")


KINDS = {
    "amount": ["12.50", "RM 1,234.50", "€ 1.234,50"],
    "identifier": ["00.00", "INV-20417", "001335787520"],
    "date": ["26-06-2018", "2018/06/26", "12 Jan 2018", "March 3, 2021"],
    "text": ["A-1", "R2-D2 and others"],
    "name": ["Ali bin Abu"],
}
CALLED = {
    "TOTAL (RM):": "total", "Grand-Total": "total", "Invoice No.": "invoice number", "INVOICENO": "invoice number",
    "SUB TOTAL": "subtotal", "GST Reg. No": "tax number", "Bill To :": "customer", "Cashier": "cashier",
    "Description": None, "Totally": None, "": None,
}  # fmt: skip


def test_kinds_of_values_and_known_labels() -> None:
    assert {kind: [text for text in texts if kind_of_value(text) == kind] for kind, texts in KINDS.items()} == KINDS
    assert {text: (known := known_label(text)) and known.called for text in CALLED} == CALLED


def test_the_fields_of_an_invoice() -> None:
    fields = find_fields(read(INVOICE)).fields
    assert {(field.kind, field.label, field.row, field.value, field.whole, field.relation) for field in fields} == {
        ("identifier", "Invoice No", "", "INV-20417", "INV-20417", "right_of"),
        ("date", "Date", "", "26-06-2018", "26-06-2018 17:08", "right_of"),
        ("name", "Bill To", "", "Northern Lights", "Northern Lights", "below"),
        ("total", "Total", "", "139.95", "$139.95", "right_of"),
        ("amount", "Cash", "", "150.00", "150.00", "right_of"),
        ("table_cell", "Price", "Copper wire", "48.20", "", "in_row"),
        ("table_cell", "Qty", "Copper wire", "12", "", "in_row"),
        ("table_cell", "Price", "Steel plate", "91.75", "", "in_row"),
        ("table_cell", "Qty", "Steel plate", "3", "", "in_row"),
    }
    date = next(field for field in fields if field.kind == "date")
    assert date.value_box[0] == pytest.approx(0.72, abs=0.02)
    assert date.label_box == pytest.approx((0.6, 0.125, 0.648, 0.155))


def test_a_field_says_how_often_its_value_stands_elsewhere() -> None:
    fields = find_fields(read("100 40 Tax\n500 40 1.20\n100 90 Cash\n500 90 $1.20\n100 140 11.20")).fields
    assert [(field.label, field.elsewhere) for field in fields] == [("Tax", 1), ("Cash", 1)]


@pytest.mark.parametrize(
    ("listed", "second", "values", "refused"),
    [
        ("100 40 Tax\n500 40 1.20", None, ["1.20"], {}),
        ("100 40 Tax\n300 40 RM\n500 40 1.20", None, ["1.20"], {}),
        ("100 40 INV No.: 1212276 Cashier: Nicole", None, ["1212276", "Nicole"], {}),
        ("100 40 INVOICE NO 1212276\n100 90 TOTAL QTY\n100 140 TOTAL 4.60", None, ["1212276", "4.60"], {}),
        ("100 40 TOTAL 4.60\n100 90 TOTAL 5.20", None, [], {"label stands twice": 2}),
        ("100 40 Customer service is closed", None, [], {}),
        ("100 40 Colour code: 88-31", None, ["88-31"], {}),
        ("100 40 Tax\n500 40 1.20\n100 90 Tax\n500 90 3.40", None, [], {"label stands twice": 2}),
        ("100 40 Tax\n500 40 1.20\n100 90 Tax\n500 90 none", None, [], {"label stands twice": 1}),
        ("100 40 Tax\n300 40 smudge ~0.4\n500 40 1.20", None, [], {"something unread beside the label": 1}),
        ("100 40 Tax\n500 30 1.20\n500 48 3.40", None, [], {"two values beside the label": 1}),
        ("100 40 Tax\n500 40 1.20 ~0.92", None, [], {"not read surely enough to be asked for": 1}),
        ("100 40 Tax\n500 40 1.20 ~0.92", "500 40 1.20", ["1.20"], {}),
        ("100 40 GST 1D: 000781500416", None, [], {}),
        ("100 40 Tax\n500 40 none", None, [], {}),
        ("100 40 Cashier\n100 70 Item\n300 70 Price", None, [], {}),
        ("100 40 Price\n100 70 1.20\n100 100 3.40", None, [], {}),
    ],
)
def test_what_is_a_field_and_what_is_refused(
    listed: str, second: str | None, values: list[str], refused: dict[str, int]
) -> None:
    found = find_fields(read(listed, second))
    assert [field.value for field in found.fields] == values
    assert dict(found.refused) == refused
