"""Architectures of the general route and of others' packages, and methods of other papers, audited end to end."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch

from sightline import SELECTORS, AuditConfig, Selection, Selector, TokenView, audit
from tests.integration.conftest import killed_and_resumed

GENERAL = [
    "full", "target:0.3", "random:0.3", "visionzip_qwen:0.3", "hiprune:0.3:object_layer=1", "fastv:0.5", "resize:0.5",
]  # fmt: skip
"""Before and inside the language model, with signals of the tower, merging, and shown smaller."""
ARMS = {
    "qwen2_5_vl": GENERAL,
    "glm4v": GENERAL,
    "llava_next": ["full", "target:0.3", "random:0.3/tile", "visionzip:0.3", "fastv:0.5"],
    "smolvlm": ["full", "target:0.3", "random:0.3/tile", "visionzip_qwen:0.3", "resize:0.5"],
    "paligemma": ["full", "target:0.3", "visionzip_qwen:0.3"],
}
SEPARATED = ("llava_next", "smolvlm", "paligemma")
"""Architectures with separators between their tokens."""


@pytest.fixture
def settings(config: Any, zoo: Callable[[str], Path]) -> Callable[..., AuditConfig]:
    return lambda name, **changes: config("llava", model=str(zoo(name)), arms=ARMS[name], **changes)


def check_rows(frame: pd.DataFrame, name: str) -> None:
    """Of every arm of an architecture with separators: what is said of sequences, tokens and losses."""
    assert set(frame["arm"]) == set(ARMS[name])
    full = frame[frame["arm"] == "full"].set_index("probe_id")
    assert (full["sequence_full"] == full["sequence_pruned"]).all()
    assert full["ecr"].to_numpy() == pytest.approx(1.0)
    for arm, rows in frame[frame["arm"] != "full"].groupby("arm"):
        assert (rows["sequence_pruned"] < rows["sequence_full"]).all(), arm
        assert (rows["sequence_full"].to_numpy() == full.loc[rows["probe_id"], "sequence_full"].to_numpy()).all(), arm
        assert (rows["k_tokens"] < rows["n_tokens"]).all(), arm
        assert rows[["loss_yes", "loss_no", "ecr"]].notna().all(axis=None), arm


@pytest.mark.parametrize(("name", "limit"), [("qwen2_5_vl", 6), ("glm4v", 6), ("llava_next", 4), ("smolvlm", 4)])
def test_killed_and_resumed_rows_are_identical(settings: Callable[..., AuditConfig], name: str, limit: int) -> None:
    frame = killed_and_resumed(settings(name, limit=limit, shard_images=1)).frame()
    if name in SEPARATED:
        check_rows(frame, name)
    else:
        assert set(frame["arm"]) == set(ARMS[name])
        assert frame["legibility"].notna().any()
        smaller = frame[frame["arm"] == "resize:0.5"]
        assert (smaller["k_tokens"] <= np.ceil(smaller["n_tokens"] * 0.5)).all()


def test_rows_of_every_arm_of_a_model_without_turns(settings: Callable[..., AuditConfig]) -> None:
    check_rows(audit(settings("paligemma", limit=2)).frame(), "paligemma")


@dataclass(frozen=True)
class AtBoxes(Selector):
    """Reads boxes, and does not say so."""

    name: ClassVar[str] = "at_boxes"

    @property
    def reads_boxes(self) -> bool | None:
        return None

    def select(self, view: TokenView, k: int) -> Selection:
        middle = (view.cells[:, :2] + view.cells[:, 2:]) / 2.0
        aim = view.boxes[:, :2].mean(dim=0) if len(view.boxes) else torch.zeros(2, dtype=torch.float64)
        return Selection((middle - aim).square().sum(dim=1).argsort(stable=True)[:k])


def test_detection_is_billed_to_methods_that_read_boxes_or_do_not_say(
    config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SELECTORS.names()
    monkeypatch.setattr(SELECTORS, "_entries", {**SELECTORS._entries, "at_boxes": AtBoxes})
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    arms = ["at_boxes:0.1", "center:0.1", "hybrid:0.1"]
    frame = audit(config("qwen3vl", limit=1, arms=arms, box_source="rapidocr")).frame()
    billed = frame.groupby("selector")["boxes_ms"].count()
    assert billed["at_boxes"] == len(frame) / 3
    assert billed["center"] == billed["hybrid"] == 0
