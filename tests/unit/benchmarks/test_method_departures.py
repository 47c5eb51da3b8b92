"""The page's table of departures is what its command prints, as far as another processor rounds alike."""

import re

import pytest
import torch
from benchmarks.method_departures import METHODS, RECORDED, lines

from sightline.selectors import SELECTORS
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "methods.md").read_text(encoding="utf-8").splitlines()
NUMBER = re.compile(r"\d+\.\d{3}")
ROUNDING = 0.05
"""A pair that another order of summation swaps moves an index by about as much."""


def figures(line: str) -> list[float]:
    return [float(number) for number in NUMBER.findall(line)]


@pytest.mark.parametrize("method", METHODS)
def test_the_page_says_how_far_a_method_is_from_its_public_code(method: str) -> None:
    with torch.inference_mode():
        *_, found = lines([method])
    _, name, draws, _, _, again, _ = (part.strip() for part in found.split("|"))
    assert name.strip("`") in SELECTORS
    (written,) = (line for line in PAGE if line.startswith(f"| {name} | {draws} |") and f"| {again} |" in line)
    assert len(figures(found)) == 4
    assert figures(written) == pytest.approx(figures(found), abs=ROUNDING)


def test_every_recorded_file_is_compared() -> None:
    assert {path.stem for path in RECORDED.glob("*.npz")} == METHODS.keys()
