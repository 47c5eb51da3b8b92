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
    more = {"tokens": np.zeros((3, 2), np.float32)}
    with pytest.raises(AssertionError, match="does not say how to compare 'tokens'"):
        check(replace(case, outputs={**case.outputs, **more}), {**right(case), **more})


def test_what_disagrees_beside_the_kept_tokens_is_seen() -> None:
    for mode, name, changed, words in [
        ("scores", "keep_sequence", slice(-1, None), "outside the visual tokens"),
        ("info", "order", slice(None), "other tokens than were kept"),
    ]:
        case = next(case for case in cases() if {"kept", name} <= set(case.outputs) and case.compare == mode)
        wrong = {key: np.array(output) for key, output in right(case).items()}
        wrong[name][changed] += 1
        with pytest.raises(AssertionError, match=words):
            check(case, wrong)
