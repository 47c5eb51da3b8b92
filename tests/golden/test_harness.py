"""The comparison itself: no compare mode lets a wrong, a short or an unread output pass."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.conftest import DATA
from tests.golden.harness import Case, check, read_cases


@cache
def cases() -> tuple[Case, ...]:
    return tuple(case for path in sorted((DATA / "golden").glob("*.npz")) for case in read_cases(path))


MODES = sorted({case.compare for case in cases()})


def right(case: Case) -> dict[str, Any]:
    """An answer that passes: the recorded one, or K tokens where the recorded one is broken."""
    if case.compare == "info":
        return {name: np.arange(int(case.params["K"])) for name in case.outputs}
    return dict(case.outputs)


def spoiled(output: np.ndarray) -> np.ndarray:
    """Other values in the same shape."""
    if output.dtype.kind in "US":
        return np.char.add(output, "x")
    if output.dtype.kind == "b":
        return ~output
    if output.dtype.kind in "iu":
        return np.full_like(output, -7)
    return output + 1 + np.abs(output).max(initial=0)


@pytest.mark.parametrize("mode", MODES)
def test_a_right_answer_passes_and_one_wrong_output_does_not(mode: str) -> None:
    tried = 0
    for case in cases():
        answer = right(case)
        if case.compare != mode:
            continue
        check(case, answer)
        for name, output in answer.items():
            if not output.size:
                continue
            with pytest.raises(AssertionError):
                check(case, {**answer, name: spoiled(output)})
            if output.ndim and len(output) > 1:
                with pytest.raises(AssertionError):
                    check(case, {**answer, name: output[:-1]})
            with pytest.raises(AssertionError, match="nobody answers"):
                check(case, {key: value for key, value in answer.items() if key != name})
            tried += 1
    assert tried


@pytest.mark.parametrize("mode", ["info", "scores", "prefix", "jaccard>=0.7"])
def test_an_output_that_a_mode_says_nothing_about_is_an_error(mode: str) -> None:
    case = next(case for case in cases() if case.compare == mode)
    unread = replace(case, outputs={**case.outputs, "tokens": np.zeros((3, 2), np.float32)})
    with pytest.raises(AssertionError, match="does not say how to compare 'tokens'"):
        check(unread, {**right(case), "tokens": np.zeros((3, 2), np.float32)})


def test_text_that_is_dropped_beside_tied_tokens_is_seen() -> None:
    case = next(case for case in cases() if "keep_sequence" in case.outputs and case.compare == "scores")
    kept = case.outputs["keep_sequence"].copy()
    kept[-1] += 1
    with pytest.raises(AssertionError, match="outside the visual tokens"):
        check(case, {**case.outputs, "keep_sequence": kept})


def test_an_order_that_lists_other_tokens_than_were_kept_is_seen() -> None:
    case = next(case for case in cases() if {"kept", "order"} <= set(case.outputs) and case.compare == "info")
    answer = right(case)
    answer["order"] = answer["order"] + 1
    with pytest.raises(AssertionError, match="other tokens than were kept"):
        check(case, answer)
