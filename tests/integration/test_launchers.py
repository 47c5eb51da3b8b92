"""Where the work runs, how many do it and who dies meanwhile: the rows are the same."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from sightline.auditing.audit import audit
from sightline.errors import SightlineError
from tests.integration.conftest import MODELS
from tests.launching import (
    facts_of,
    finish,
    holders,
    is_alive,
    kill,
    row_files,
    running,
    start,
    wait_until,
    workers_of,
)

SETTINGS: dict[str, Any] = {
    "arms": ["full", "target:0.3", "fastv:0.5"],
    "interventions": ["occlusion"],
    "limit": 4,
    "shard_images": 1,
    "threads": 1,
}


@pytest.mark.parametrize("model", MODELS)
def test_rows_are_the_same_whoever_computes_them(config: Any, model: str, tmp_path: Path) -> None:
    here = audit(config(model, **SETTINGS, out=tmp_path / "inline"))
    local = config(model, **SETTINGS, out=tmp_path / "local", launcher="local", workers=2)
    shared = config(model, **SETTINGS, out=tmp_path / "queue", launcher="queue")
    audit(local)
    both = [start(shared), start(shared)]
    with running(*both):
        for process in both:
            finish(process)
    for other in (local, shared):
        assert facts_of(other.out).equals(facts_of(here.path)), other.launcher
        assert not (other.out / "leases").exists(), "whoever is done holds nothing"
