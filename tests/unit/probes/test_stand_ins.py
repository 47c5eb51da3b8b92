"""Stand-ins are drawn from seeds, and hard enough that no slice of a table is empty."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pytest

from sightline.core.probe import Probe
from sightline.probes.annotations import load_regions
from sightline.probes.stand_ins.drawn_questions import drawn_pages
from sightline.probes.stand_ins.published_layouts import PHOTOGRAPHS, StandIns

SLICES: dict[str, Callable[[Probe], object]] = {
    "several words": lambda probe: len(tokens(probe.answers[0])) >= 3,
    "a long question": lambda probe: len(tokens(probe.question)) >= 10,
    "a relation": lambda probe: {"from", "to", "between", "per"} & set(tokens(probe.question)),
    "a number": lambda probe: any(char.isdigit() for char in probe.answers[0]),
    "a field": lambda probe: {"page", "date", "total", "amount"} & set(tokens(probe.question)),
}
"""What makes a question hard, by the paper's tags."""


def tokens(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


@pytest.mark.parametrize("name", ["textvqa/TextVQA_0.5.1_val.json", "docvqa/val_v1.0_withQT.json", "qa/questions.csv"])
def test_every_layout_has_two_dozen_questions_and_no_empty_slice(stand_ins: StandIns, name: str) -> None:
    probes = load_regions(stand_ins.file(name)).probes
    assert len(probes) == 24
    for what, is_in in SLICES.items():
        assert 3 <= sum(bool(is_in(probe)) for probe in probes) <= 21, what


def test_ocrbench_has_two_questions_of_each_type(stand_ins: StandIns) -> None:
    probes = load_regions(stand_ins.file("ocrbench/OCRBench.json")).probes
    assert set(Counter(probe.kind for probe in probes).values()) == {2}
    assert sum(any(char.isdigit() for char in probe.answers[0]) for probe in probes) >= 3


def test_what_is_drawn_depends_on_the_seed_alone() -> None:
    (one,), (again,), (other,) = (drawn_pages(seed, 1, PHOTOGRAPHS[:1]) for seed in (650_000_000, 650_000_000, 5))
    assert one.encoded("PNG") == again.encoded("PNG")
    assert one.questions(2) == again.questions(2)
    assert one.encoded("PNG") != other.encoded("PNG")


def test_questions_name_a_word_that_is_there_once_and_their_answers_stand_in_their_evidence() -> None:
    for page in drawn_pages(650_000_000, 3, PHOTOGRAPHS):
        texts = [word.text.casefold() for word in page.words]
        for asked in page.questions(2):
            named = re.findall(r'"([^"]+)"', asked.text)
            assert named
            assert all(texts.count(name.casefold()) == 1 for name in named)
            said = [word.text for word, role in asked.evidence if role == "answer_value"]
            assert " ".join(said) == asked.answer
