"""``--keep-scores``: what scored selectors rank tokens by is in the rows, and tells what they keep at other budgets."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from sightline.auditing.audit import audit
from sightline.core.selection import Budget
from sightline.errors import SightlineError
from sightline.rows import Run
from sightline.store.marks import unpack_mask


def scores(row: dict[str, Any]) -> np.ndarray:
    n = int(row["n_tokens"])
    return np.frombuffer(row["scores"], "<f4" if len(row["scores"]) == 4 * n else "<f8")


def replayed(row: dict[str, Any], budget: Budget, layout: list[tuple[int, int]]) -> np.ndarray:
    """The rule as the viewer has it: the K highest of the image, or of every tile, ties to the lower index."""
    values, kept, start = scores(row), np.zeros(int(row["n_tokens"]), dtype=bool), 0
    sizes = [a * b for a, b in layout] if budget.per == "tile" else [len(values)]
    for size in sizes:
        order = np.argsort(-values[start : start + size], kind="stable")[: budget.resolve(size)]
        kept[start + order] = True
        start += size
    return kept


def rows_by_probe(run: Run, arm: str) -> dict[str, dict[str, Any]]:
    return {row["probe_id"]: row for row in run.rows.to_pylist() if row["arm"] == arm}


def test_stored_scores_replay_what_a_run_at_another_budget_keeps(config: Any) -> None:
    arms = ["full", "target:0.15", "target:0.3", "target:0.6:score=overlap", "target:0.2:score=overlap", "grid:0.3"]
    run = audit(config("qwen3vl", arms=arms, keep_scores=True))
    assert run.manifest["keep_scores"] is True
    for own, other in (
        ("target:0.15", "target:0.3"),
        ("target:0.3", "target:0.15"),
        ("target:0.6:score=overlap", "target:0.2:score=overlap"),
    ):
        real = rows_by_probe(run, other)
        for probe, row in rows_by_probe(run, own).items():
            assert row["scores_rule"] == "top"
            wanted = unpack_mask(real[probe]["kept_mask"], row["n_tokens"])
            keep = Budget.ratio(float(other.split(":")[1]))
            assert (replayed(row, keep, []) == wanted).all()
    assert all(row["scores"] is None for row in rows_by_probe(run, "grid:0.3").values())


def test_tiles_have_scores_of_their_own(config: Any) -> None:
    run = audit(config("internvl", arms=["target:0.5/tile", "target:0.2/tile"], min_tiles=2, keep_scores=True))
    layouts = dict(zip(*(run.images.column(name).to_pylist() for name in ("image_key", "layout")), strict=True))
    real, tiles = rows_by_probe(run, "target:0.2/tile"), 1
    for probe, row in rows_by_probe(run, "target:0.5/tile").items():
        layout = [tuple(block) for block in json.loads(layouts[row["image_key"]])]
        tiles = max(tiles, len(layout))
        wanted = unpack_mask(real[probe]["kept_mask"], row["n_tokens"])
        assert (replayed(row, Budget.ratio(0.2, "tile"), layout) == wanted).all()
    assert tiles > 1, "no image has tiles"


def test_methods_with_another_rule_say_so(config: Any) -> None:
    run = audit(config("llava", arms=["bottom:0.3", "target_grid:0.3"], limit=1, keep_scores=True))
    assert {row["scores_rule"] for row in run.rows.to_pylist()} == {"other"}
    assert all(len(scores(row)) == row["n_tokens"] for row in run.rows.to_pylist())


def test_answers_do_not_depend_on_it_and_a_run_is_one_or_the_other(config: Any, tmp_path: Any) -> None:
    plain = audit(config("llava", arms=["target:0.3"], limit=1))
    kept = audit(config("llava", arms=["target:0.3"], limit=1, keep_scores=True, out=tmp_path / "kept"))
    same = ["probe_id", "margin", "kept_mask", "ecr"]
    assert plain.rows.select(same).equals(kept.rows.select(same))
    assert plain.rows.column("scores").null_count == plain.rows.num_rows
    with pytest.raises(SightlineError, match="with keep_scores true, this command has false"):
        audit(config("llava", arms=["target:0.3"], limit=1, out=tmp_path / "kept"))
