"""What becomes of a field in an answer: values compared as what they are, wrong ones looked for on the page."""

from decimal import Decimal

import pytest

from sightline.answering.field_outcomes import PlacedText, count_edits, is_silent, judge_field, number, same_value

PAGE = [
    PlacedText("Total", (0.1, 0.5, 0.2, 0.52)),
    PlacedText("8.87", (0.7, 0.5, 0.8, 0.52)),
    PlacedText("2.18", (0.7, 0.4, 0.8, 0.42)),
    PlacedText("Change 11.13 MYR", (0.5, 0.6, 0.8, 0.62)),
    PlacedText("INV-6000", (0.1, 0.1, 0.3, 0.12)),
]
REGION = [(0.7, 0.5, 0.8, 0.52)]


AMOUNTS = {
    "8.87": "8.87", "$1,234.50": "1234.50", "1.234,50 EUR": "1234.50", "RM 12.00": "12.00", "RM12.00": "12.00",
    "(3.20)": "-3.20", "6,000": "6000", "0.500": "0.500", "1'000.00": "1000.00", ".50": ".50",
    "12/02/2018": None, "SB01": None, "": None,
}  # fmt: skip
SAME = {
    ("$6000.00", "6,000.00", "amount"): True,
    ("60000.0", "6000.00", "amount"): False,  # the same characters but for the mark
    ("6000", "6000.00", "total"): True,
    ("600000", "6000.00", ""): False,
    ("12-02-2018", "12/02/2018", "date"): True,
    ("12/02/2081", "12/02/2018", "date"): False,
    ("inv-6000.", "INV-6000", "identifier"): True,
    ("INV6000", "INV-6000", "identifier"): False,
}
EDITS = {("600000", "6000000"): (0, 0, 1), ("887", "867"): (1, 0, 0), ("1234", "124"): (0, 1, 0), ("", "12"): (0, 0, 2)}
SILENT = ["", " ... ", "N/A", "unknown", "I can't read the total.", "not visible"]


def test_an_amount_is_its_number() -> None:
    assert {text: number(text) for text in AMOUNTS} == {t: value and Decimal(value) for t, value in AMOUNTS.items()}


def test_values_are_compared_as_what_they_are() -> None:
    assert {values: same_value(*values) for values in SAME} == SAME


def test_silence_is_told_from_an_answer() -> None:
    assert [text for text in (*SILENT, "Nottingham", "0.00", "No. 5") if is_silent(text)] == SILENT


def test_digits_are_counted_as_changed_lost_and_added() -> None:
    assert {pair: count_edits(*pair) for pair in EDITS} == EDITS


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ("8.87", "right"),
        ("2.18", "swapped"),
        ("11.13", "swapped"),  # alone within a longer line
        ("8.67", "digit_error"),
        ("88.7", "digit_error"),  # the mark alone
        ("1113.1", "invented"),  # no part of a number of the page counts
        ("blue", "invented"),
        ("", "silent"),
    ],
)
def test_a_wrong_answer_is_looked_for_on_the_page(answer: str, outcome: str) -> None:
    right = same_value(answer, "8.87", "amount")
    found = judge_field(answer, ["8.87"], right=right, loss=0.01, kind="amount", page=PAGE, regions=REGION)
    assert found.outcome == outcome
    assert [found.swapped, found.digit_error, found.invented, found.silent].count(True) == (outcome != "right")
    assert found.confidently_wrong is (outcome in ("swapped", "digit_error", "invented"))


def test_where_a_wrong_value_is_from_is_told_where_it_can_be() -> None:
    found = judge_field("2.18", ["8.87"], right=False, loss=2.0, kind="amount", page=PAGE, regions=REGION)
    assert (found.swapped_text, found.swapped_box) == ("2.18", [0.7, 0.4, 0.8, 0.42])
    assert (found.confidently_wrong, found.character_errors) == (False, 0.75)
    found = judge_field("8.8", ["8.87"], right=False, loss=0.1, kind="amount", page=PAGE, regions=REGION)
    assert (found.outcome, found.digits_lost) == ("digit_error", 1)
    found = judge_field("blue", ["red"], right=False, loss=0.1)
    assert (found.outcome, found.swapped, found.invented, found.digit_error) == ("wrong", None, None, None)
