"""Labels and values of a page, and everything that is refused because it could be meant otherwise."""

import pytest

from sightline.documents.fields import find_fields
from sightline.documents.rules import kind_of_value, known_label
from tests.unit.documents.pages_for_tests import INVOICE, read


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("12.50", "amount"), ("RM 1,234.50", "amount"), ("€ 1.234,50", "amount"), ("00.00", "identifier"),
        ("26-06-2018", "date"), ("2018/06/26", "date"), ("12 Jan 2018", "date"), ("March 3, 2021", "date"),
        ("INV-20417", "identifier"), ("001335787520", "identifier"), ("A-1", "text"), ("Ali bin Abu", "name"),
        ("R2-D2 and others", "text"),
    ],
)  # fmt: skip
def test_kinds_of_values(text: str, kind: str) -> None:
    assert kind_of_value(text) == kind


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("TOTAL (RM):", "total"), ("Grand-Total", "total"), ("Invoice No.", "invoice number"),
        ("INVOICENO", "invoice number"),
        ("SUB TOTAL", "subtotal"), ("GST Reg. No", "tax number"), ("Bill To :", "customer"), ("Cashier", "cashier"),
        ("Description", None), ("Totally", None), ("", None),
    ],
)  # fmt: skip
def test_known_labels(text: str, called: str | None) -> None:
    known = known_label(text)
    assert (known and known.called) == called


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


def test_a_value_that_stands_elsewhere_too_is_counted() -> None:
    fields = find_fields(read("100 40 Tax\n500 40 1.20\n100 90 Cash\n500 90 $1.20\n100 140 11.20")).fields
    assert [(field.label, field.elsewhere) for field in fields] == [("Tax", 1), ("Cash", 1)]
