"""Architectures of the general route, audited end to end: killed and resumed, under both position policies."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sightline.auditing.audit import audit
from sightline.auditing.config import AuditConfig
from tests.integration.test_audit import facts
from tests.integration.test_resume import DONE, command
from tests.warm_python import run_python

ARMS = [
    "full",
    "target:0.3",
    "random:0.3",
    "visionzip_qwen:0.3",
    "hiprune:0.3:object_layer=1",
    "fastv:0.5",
    "resize:0.5",
]
"""Before and inside the language model, with signals of the tower, merging, and shown smaller."""


@pytest.fixture
def settings(data: Path, mini_probes: Path, tmp_path: Path, zoo: Callable[[str], Path]) -> Callable[..., AuditConfig]:
    def make(model_type: str, **changes: Any) -> AuditConfig:
        return AuditConfig(
            model=str(zoo(model_type)),
            probes=mini_probes,
            images=data / "mini_textocr",
            device="cpu",
            dtype="float32",
            matched_controls=False,
            **{"out": tmp_path / "run", "arms": ARMS, **changes},
        )

    return make


@pytest.mark.parametrize("model_type", ["qwen2_5_vl", "glm4v"])
def test_killed_and_resumed_rows_are_identical(
    settings: Callable[..., AuditConfig], model_type: str, tmp_path: Path
) -> None:
    config = settings(model_type, limit=6, shard_images=1, out=tmp_path / "killed")
    process = run_python(command(config))
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert len(list(config.out.glob("rows/*/*.parquet"))) == DONE
    resumed = audit(config)
    undisturbed = audit(config.model_copy(update={"out": tmp_path / "undisturbed"}))
    assert resumed.missing == 0
    pd.testing.assert_frame_equal(facts(resumed.frame()), facts(undisturbed.frame()))
    frame = undisturbed.frame()
    assert set(frame["arm"]) == set(ARMS)
    assert frame["legibility"].notna().any()
    smaller = frame[frame["arm"] == "resize:0.5"]
    assert (smaller["k_tokens"] <= np.ceil(smaller["n_tokens"] * 0.5)).all()


def test_windows_and_positions_are_audited_under_both_policies(
    settings: Callable[..., AuditConfig], tmp_path: Path
) -> None:
    frames = {
        policy: audit(
            settings("qwen2_5_vl", limit=2, positions=policy, out=tmp_path / policy, arms=["full", "target:0.3"])
        ).frame()
        for policy in ("preserve", "compact")
    }
    losses = {name: frame.set_index(["arm", "probe_id"])["loss_yes"] for name, frame in frames.items()}
    assert np.allclose(losses["preserve"].loc["full"], losses["compact"].loc["full"], atol=1e-6)
    assert not np.allclose(losses["preserve"].loc["target:0.3"], losses["compact"].loc["target:0.3"], atol=1e-4)
