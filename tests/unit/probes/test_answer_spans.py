"""Where an answer stands among the words of a page, and what is on its line."""

from __future__ import annotations

import pytest

from sightline.core.probe import Box
from sightline.probes.evidence import Span, find_span, line_context, plain, span_at

WORDS = ["Invoice", "No.", "2010-55", "Total:", "$1,000.00", "paid", "on", "March", "3,", "1997", "by", "Mill", "Lane"]


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        (["march 3 1997"], Span(7, 3, "equal")),
        (["$1,000.00"], Span(4, 1, "equal")),
        (["100000"], Span(4, 1, "equal")),
        (["Mill Lane Ltd", "mill lane"], Span(11, 2, "equal")),
        (["201055 Tot"], Span(2, 2, "contained")),
        (["10"], None),
        (["Mill Lane Limited"], Span(11, 2, "similar", 2 / 3)),
        (["elsewhere"], None),
        (["..."], None),
        ([], None),
    ],
)
def test_an_answer_is_found_by_equality_then_containment_then_similarity(
    answers: list[str], found: Span | None
) -> None:
    assert find_span(WORDS, answers) == found


def test_no_more_words_are_taken_than_needed_and_of_several_places_the_first() -> None:
    assert find_span(["-", "b", "a", "b"], ["b"]) == Span(1, 1, "equal")
    assert find_span(["a", "b", "c", "a", "b"], ["a b"]) == Span(0, 2, "equal")


def test_answers_of_more_than_twelve_words_are_not_equalled() -> None:
    words = [f"w{number}" for number in range(20)]
    assert find_span(words, [" ".join(words[2:14])]) == Span(2, 12, "equal")
    longer = find_span(words, [" ".join(words[2:16])])
    assert longer == Span(2, 12, "similar", 12 / 14)


def test_from_a_known_first_word_on_the_length_is_inferred() -> None:
    said = [plain(word) for word in WORDS]
    assert span_at(said, 7, "march 3 1997") == Span(7, 3, "equal")
    assert span_at(said, 4, "000") == Span(4, 1, "contained")
    assert span_at(said, 10, "mill lane limited") == Span(10, 3, "similar", 0.5)
    assert span_at(said, 0, "mill lane") is None


def box(x: float, y: float, width: float = 40, height: float = 20) -> Box:
    return (x, y, x + width, y + height)


def test_line_context_is_three_words_on_either_side_from_left_to_right() -> None:
    line = [box(50 * place, 100) for place in (4, 0, 1, 2, 3, 5, 6, 7, 8)]  # the fifth of the line is written first
    others = [box(200, 60), box(200, 140)]
    assert line_context([*line, *others], [0]) == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(("height", "away", "near"), [(20, 15, True), (20, 16, False), (4, 8, True), (4, 9, False)])
def test_a_line_reaches_three_quarters_of_the_height_and_at_least_eight_pixels(
    height: float, away: float, near: bool
) -> None:
    boxes = [box(0, 100, height=height), box(50, 100 + away, height=height)]
    assert line_context(boxes, [0]) == ([1] if near else [])


def test_the_words_of_the_answer_are_no_context_of_each_other() -> None:
    boxes = [box(50 * place, 100) for place in range(4)]
    assert line_context(boxes, [1, 2]) == [0, 3]
