"""Audits of architectures with separators between their tokens: rows, smaller images, a kill and its resumption."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sightline.auditing.audit import audit
from sightline.auditing.config import AuditConfig
from tests.integration.test_audit import facts
from tests.integration.test_resume import DONE, command
from tests.warm_python import run_python

ARMS = {
    "llava_next": ["full", "target:0.3", "random:0.3/tile", "visionzip:0.3", "fastv:0.5"],
    "smolvlm": ["full", "target:0.3", "random:0.3/tile", "visionzip_qwen:0.3", "resize:0.5"],
    "paligemma": ["full", "target:0.3", "visionzip_qwen:0.3"],
}


@pytest.fixture
def settings(config: Any, zoo: Callable[[str], Path]) -> Callable[..., AuditConfig]:
    def make(name: str, **changes: Any) -> AuditConfig:
        made: AuditConfig = config("llava", arms=ARMS[name], model=str(zoo(name)), **changes)
        return made

    return make


@pytest.mark.parametrize("name", ARMS)
def test_rows_of_every_arm(settings: Callable[..., AuditConfig], name: str) -> None:
    frame = audit(settings(name, limit=2)).frame()
    assert set(frame["arm"]) == set(ARMS[name])
    full = frame[frame["arm"] == "full"].set_index("probe_id")
    assert (full["sequence_full"] == full["sequence_pruned"]).all()
    assert full["ecr"].to_numpy() == pytest.approx(1.0)
    for arm, rows in frame[frame["arm"] != "full"].groupby("arm"):
        assert (rows["sequence_pruned"] < rows["sequence_full"]).all(), arm
        assert (rows["sequence_full"].to_numpy() == full.loc[rows["probe_id"], "sequence_full"].to_numpy()).all(), arm
        assert (rows["k_tokens"] < rows["n_tokens"]).all(), arm
        assert rows[["loss_yes", "loss_no", "ecr"]].notna().all(axis=None), arm


@pytest.mark.parametrize("name", ["llava_next", "smolvlm"])
def test_killed_and_resumed_rows_are_identical(settings: Callable[..., AuditConfig], name: str, tmp_path: Path) -> None:
    killed = settings(name, limit=4, shard_images=1, out=tmp_path / "killed")
    process = run_python(command(killed))
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert len(list(killed.out.glob("rows/*/*.parquet"))) == DONE
    resumed = audit(killed)
    undisturbed = audit(killed.model_copy(update={"out": tmp_path / "undisturbed"}))
    assert resumed.missing == 0
    pd.testing.assert_frame_equal(facts(resumed.frame()), facts(undisturbed.frame()))
    assert not list(killed.out.rglob("*.tmp"))
