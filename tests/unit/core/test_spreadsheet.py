"""Cells of tables: no text is a formula, and every text can be had back."""

from __future__ import annotations

import pandas as pd
import pytest

from sightline.core.text import as_text, from_text, without_formulas


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "=HYPERLINK(1)"])
def test_a_formula_becomes_text_and_comes_back(text: str) -> None:
    assert as_text(text) == f"'{text}"
    assert from_text(as_text(text)) == text


@pytest.mark.parametrize("value", ["target:0.3", "-0.25", "+3", "1e-3", "", "'quoted'", 5, -0.5, None, True])
def test_everything_else_stays(value: object) -> None:
    assert as_text(value) is value
    if isinstance(value, str):
        assert from_text(value) == value


def test_a_frame_has_its_texts_and_names_cleaned_and_its_numbers_alone() -> None:
    frame = pd.DataFrame({"arm": ["=1+1", "full", None], "value": [-1.0, 2.0, 3.0], "=x": ["a", "@b", "-1"]})
    assert without_formulas(frame).to_csv(index=False) == "arm,value,'=x\n'=1+1,-1.0,a\nfull,2.0,'@b\n,3.0,-1\n"
