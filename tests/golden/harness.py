"""Golden cases: what a public implementation answered, and how closely ours must agree.

A file's cases are answered by the function behind ``@answers("<file stem>")``, which maps a case's output names to what
Sightline computes. It only renames tensors; the algorithm is the selector's own.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class Case:
    file: str
    id: str
    name: str
    params: Mapping[str, Any]
    inputs: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]
    compare: str
    dtype: str

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The inputs that are numbers."""
        return {name: torch.from_numpy(value) for name, value in self.inputs.items() if value.dtype.kind not in "US"}


def read_cases(path: Path) -> list[Case]:
    archive = np.load(path, allow_pickle=False)
    cases = []
    for meta in map(json.loads, map(str, archive["meta"])):
        facts = {key: meta[key] for key in ("id", "name", "params", "compare", "dtype")}
        inputs, outputs = ({name: archive[key] for name, key in meta[part].items()} for part in ("inputs", "outputs"))
        cases.append(Case(file=path.stem, **facts, inputs=inputs, outputs=outputs))
    return cases


Answer = Callable[[Case], dict[str, Any]]
ANSWERS: dict[str, Answer] = {}
MODULES = ("audit_answers", "token_answers", "layer_answers", "head_answers")


def answers(*stems: str) -> Callable[[Answer], Answer]:
    """Marks what answers the cases of these files."""

    def mark(answer: Answer) -> Answer:
        ANSWERS.update(dict.fromkeys(stems, answer))
        return answer

    return mark


def answer_to(case: Case) -> dict[str, Any]:
    for module in MODULES:
        importlib.import_module(f"tests.golden.{module}")
    assert case.file in ANSWERS, f"nothing here answers the cases of {case.file}.npz"
    return ANSWERS[case.file](case)


def _array(value: Any) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().float() if value.is_floating_point() and value.dtype.itemsize < 4 else value.detach()
        value = value.cpu().numpy()
    return np.asarray(value)


def _close(ours: np.ndarray, theirs: np.ndarray, rtol: float, name: str, floor: float = 1e-6) -> None:
    """Elementwise relative, with ``floor`` of the largest entry as absolute slack for entries near zero."""
    scale = float(np.max(np.abs(theirs))) if theirs.size else 0.0
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=floor * max(scale, 1e-12), err_msg=name)


NAMED = {
    "info": ("kept", "order"),
    "scores": ("score", "scores", "kept", "keep_sequence"),
    "jaccard": ("kept", "order"),
    "prefix": ("kept", "order"),
}
"""Modes that say what must hold for some outputs; all others compare any output as it is."""


def check(case: Case, answer: Mapping[str, Any]) -> None:
    """Raises AssertionError unless the answer agrees with every recorded output under the case's compare mode.

    An output about which a mode says nothing is an error, so that no recorded name goes unread.
    """
    missing = set(case.outputs) - set(answer)
    assert not missing, f"{case.file}:{case.id}: nobody answers {sorted(missing)}"
    mode, _, least = case.compare.partition(">=")
    for name, theirs in case.outputs.items():
        ours = _array(answer[name])
        said = name in NAMED.get(mode, (name,))
        assert said, f"{case.file}:{case.id}: mode {case.compare!r} does not say how to compare {name!r}"
        if mode not in NAMED:
            _check_equal(case, name, ours, theirs)
        elif mode == "scores":
            _check_tied(case, name, ours, theirs)
        else:
            # Where the public code breaks down (NaN, repeated picks), any K distinct tokens will do.
            _check_picks(case, name, ours, int(case.params["K"]) if mode == "info" else len(theirs))
        if mode == "jaccard":  # a half-precision run: in which order most of the same tokens came is rounding noise
            overlap = len(np.intersect1d(ours, theirs)) / len(np.union1d(ours, theirs))
            assert overlap >= float(least), f"{name}: overlap {overlap:.3f}"
        if mode == "prefix":  # only the first D picks mean something: they agree one by one, and are all kept
            first = case.outputs["order"][: int(case.params["D"])]
            if name == "order":
                np.testing.assert_array_equal(ours[: len(first)], first, err_msg=name)
            assert np.isin(first, ours).all(), f"{name}: one of the first {len(first)} picks is not kept"
    if {"kept", "order"} <= set(case.outputs):
        kept, order = np.sort(_array(answer["kept"])), np.sort(_array(answer["order"]))
        np.testing.assert_array_equal(order, kept, err_msg="the order lists other tokens than were kept")


def _check_tied(case: Case, name: str, ours: np.ndarray, theirs: np.ndarray) -> None:
    """Which of equal scores survives is undefined: the kept scores must be the same, and all else exactly."""
    if name in ("score", "scores"):
        _close(ours, theirs, 1e-3, name)
        return
    score = case_scores(case)
    # keep_sequence counts from the start of the prompt: what is not a visual token is text, which is always kept.
    first = int(case.params["image_start"]) if name == "keep_sequence" else 0
    (text, visual), (their_text, their_visual) = (_apart(indices, first, len(score)) for indices in (ours, theirs))
    np.testing.assert_array_equal(text, their_text, err_msg=f"{name}: outside the visual tokens")
    _check_picks(case, name, visual, len(their_visual))
    np.testing.assert_allclose(np.sort(score[visual]), np.sort(score[their_visual]), rtol=1e-6, err_msg="kept scores")


def _check_equal(case: Case, name: str, ours: np.ndarray, theirs: np.ndarray) -> None:
    """Integers and words exactly (or as sets), floats to the mode's tolerance."""
    mode = case.compare
    integral = theirs.dtype.kind in "iubUS"
    if mode.startswith("set+allclose"):
        if integral:
            np.testing.assert_array_equal(np.sort(ours, axis=None), np.sort(theirs, axis=None), err_msg=name)
        else:
            rtol = float(mode.removeprefix("set+allclose"))
            # An official run in half precision is itself only good to a fraction of its largest entry.
            _close(ours, theirs, rtol, name, floor=rtol if case.dtype == "float16" else 1e-6)
        return
    assert mode in ("exact", "exact+allclose", "allclose"), f"unknown compare mode {mode!r}"
    if integral:
        np.testing.assert_array_equal(ours, theirs, err_msg=name)
    elif theirs.dtype == np.float64 and mode == "allclose":
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9, err_msg=name)
    else:
        _close(ours, theirs, 1e-3, name)


def _check_picks(case: Case, name: str, picks: np.ndarray, count: int) -> None:
    """``count`` distinct visual tokens."""
    assert picks.shape == (count,), f"{name}: {picks.shape} instead of {count} tokens"
    assert len(set(picks.tolist())) == count, f"{name}: a token was picked twice"
    assert ((picks >= 0) & (picks < int(case.params["N"]))).all(), f"{name}: not a visual token"


def _apart(indices: np.ndarray, first: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions outside the n visual tokens that start at ``first``, and the visual tokens counted from 0."""
    visual = (indices >= first) & (indices < first + n)
    return indices[~visual], indices[visual] - first


def case_scores(case: Case) -> np.ndarray:
    """The per-token score that decides a top-k case whose ties are real."""
    for name in ("last_row", "cls_attn_heads"):
        if name in case.inputs:
            heads = case.inputs[name].astype(np.float64)
            n = int(case.params["N"])
            start = int(case.params.get("image_start", 0))
            return heads.mean(axis=0)[start : start + n]
    raise AssertionError(f"{case.file}:{case.id}: no score input to compare by")
