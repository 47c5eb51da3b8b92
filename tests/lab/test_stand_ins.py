"""Stand-ins are drawn from seeds, and hard enough that no slice of a table is empty."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageChops

from lab.stand_ins import PHOTOGRAPHS, StandIns, drawn_pages
from sightline import Probe
from sightline.checks.demo import asset
from sightline.probes import load_regions
from sightline_paper.data import unpack

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


def test_the_shipped_archive_is_what_is_drawn(stand_ins: StandIns, tmp_path: Path) -> None:
    """Word for word and, where files lose nothing, pixel for pixel; how a file is compressed depends on the library."""
    unpack(asset("stand-ins.tar.xz"), tmp_path)
    names = {path.relative_to(stand_ins.folder) for path in stand_ins.folder.rglob("*") if path.is_file()}
    assert {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()} == names
    for name in names:
        shipped, drawn = tmp_path / name, stand_ins.file(str(name))
        if name.suffix == ".png":
            assert ImageChops.difference(Image.open(shipped), Image.open(drawn)).getbbox() is None, name
        elif name.suffix == ".parquet":
            ours, theirs = (pq.read_table(path).to_pylist() for path in (drawn, shipped))
            assert [row | {"image": None} for row in ours] == [row | {"image": None} for row in theirs], name
        elif name.suffix != ".jpg":
            assert shipped.read_bytes() == drawn.read_bytes(), name
