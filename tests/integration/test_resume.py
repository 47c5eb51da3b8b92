"""A run killed with SIGKILL in the middle of a write and run again equals an undisturbed one."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sightline.auditing.audit import audit
from sightline.auditing.config import AuditConfig
from tests.integration.conftest import MODELS, TEN_ARMS
from tests.integration.test_audit import facts
from tests.launching import words_of
from tests.warm_python import run_python

DONE = 12
KILLED = f"""
import os, signal
from sightline.cli import main

replace, written = os.replace, []

def replace_or_die(source, target):
    written.extend([target] * ("rows" in target.parts))
    if len(written) > {DONE}:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(source, target)

os.replace = replace_or_die
main()
"""
"""The command line, dying when its thirteenth file of rows is complete but does not have its name yet."""


def command(config: AuditConfig) -> list[str]:
    """What follows ``python`` on its command line."""
    return ["-c", KILLED, "run", *words_of(config)]


@pytest.mark.parametrize("model", MODELS)
def test_killed_and_resumed_rows_are_identical(config: Any, model: str, tmp_path: Path) -> None:
    settings = config(model, arms=TEN_ARMS, limit=6, shard_images=1, out=tmp_path / "killed")
    process = run_python(command(settings))
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert len(list(settings.out.glob("rows/*/*.parquet"))) == DONE
    assert list(settings.out.rglob("*.tmp")), "the kill leaves a file half-written"

    resumed = audit(settings)
    undisturbed = audit(settings.model_copy(update={"out": tmp_path / "undisturbed"}))
    assert resumed.missing == 0
    pd.testing.assert_frame_equal(facts(resumed.frame()), facts(undisturbed.frame()))
    assert not list(settings.out.rglob("*.tmp")), "what the kill left half-written is gone"
