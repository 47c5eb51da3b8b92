"""Golden cases: what a public implementation answered, and how closely ours must agree.

A method's adapter is ``tests/golden/adapters/<file stem>.py`` with ``run(case) -> dict`` mapping the case's output
names to what Sightline computes. The adapter only renames tensors; the algorithm is the selector's own.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ADAPTERS = Path(__file__).parent / "adapters"

PENDING: frozenset[str] = frozenset()
"""Files whose method is not ported yet. Empty once every method is here."""


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


def read_cases(path: Path) -> list[Case]:
    archive = np.load(path, allow_pickle=False)
    cases = []
    for text in archive["meta"]:
        meta = json.loads(str(text))
        cases.append(
            Case(
                file=path.stem,
                id=meta["id"],
                name=meta["name"],
                params=meta["params"],
                inputs={name: archive[key] for name, key in meta["inputs"].items()},
                outputs={name: archive[key] for name, key in meta["outputs"].items()},
                compare=meta["compare"],
                dtype=meta["dtype"],
            )
        )
    return cases


def adapter(stem: str) -> Callable[[Case], dict[str, Any]]:
    module = importlib.import_module(f"tests.golden.adapters.{stem}")
    return module.run  # type: ignore[no-any-return]


def _array(value: Any) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().float() if value.is_floating_point() and value.dtype.itemsize < 4 else value.detach()
        value = value.cpu().numpy()
    return np.asarray(value)


def _close(ours: np.ndarray, theirs: np.ndarray, rtol: float, name: str, floor: float = 1e-6) -> None:
    """Elementwise relative, with ``floor`` of the largest entry as absolute slack for entries near zero."""
    scale = float(np.max(np.abs(theirs))) if theirs.size else 0.0
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=floor * max(scale, 1e-12), err_msg=name)


def check(case: Case, answer: Mapping[str, Any]) -> None:
    """Raises AssertionError unless the answer agrees with the recorded outputs under the case's compare mode."""
    missing = set(case.outputs) - set(answer)
    if case.compare != "info":
        assert not missing, f"{case.file}:{case.id}: the adapter does not answer {sorted(missing)}"
    for name, theirs in case.outputs.items():
        if name not in answer:
            continue
        ours = _array(answer[name])
        _check_one(case, name, ours, theirs)


def _check_one(case: Case, name: str, ours: np.ndarray, theirs: np.ndarray) -> None:
    mode = case.compare
    integral = theirs.dtype.kind in "iub" or theirs.dtype.kind in "US"
    if mode == "info":
        # The official code breaks down here (NaN, repeated picks); ours must answer with distinct tokens instead.
        if integral and name in ("kept", "order"):
            assert len(set(ours.tolist())) == len(ours), f"{name}: repeated picks on a degenerate input"
        return
    if mode == "scores":
        if name in ("score", "scores"):
            _close(ours, theirs, 1e-3, name)
        elif name in ("kept", "keep_sequence"):
            score = case_scores(case)
            offset = int(case.params.get("image_start", 0)) if name == "keep_sequence" else 0
            valid = lambda ix: ix[(ix >= offset) & (ix < offset + len(score))] - offset  # noqa: E731
            np.testing.assert_allclose(
                np.sort(score[valid(ours)]), np.sort(score[valid(theirs)]), rtol=1e-6, err_msg="kept scores"
            )
            assert len(ours) == len(theirs), "number kept"
        return
    if mode.startswith("jaccard>="):
        if name == "kept":
            a, b = set(ours.tolist()), set(theirs.tolist())
            overlap = len(a & b) / len(a | b)
            assert overlap >= float(mode.removeprefix("jaccard>=")), f"{name}: overlap {overlap:.3f}"
        return
    if mode == "prefix":
        if name == "order":
            rank = int(case.params["D"])
            np.testing.assert_array_equal(ours[:rank], theirs[:rank], err_msg=name)
        return
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


def case_scores(case: Case) -> np.ndarray:
    """The per-token score that decides a top-k case whose ties are real."""
    for name in ("last_row", "cls_attn_heads"):
        if name in case.inputs:
            heads = case.inputs[name].astype(np.float64)
            n = int(case.params["N"])
            start = int(case.params.get("image_start", 0))
            return heads.mean(axis=0)[start : start + n]
    raise AssertionError(f"{case.file}:{case.id}: no score input to compare by")
