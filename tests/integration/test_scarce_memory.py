"""An audit whose memory runs out: smaller batches and the same rows, or one line that says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sightline.auditing.audit import audit
from sightline.auditing.launchers.here import Inline
from sightline.errors import SightlineError
from sightline.store import RunFolder
from tests.scarce import Scarce

ARMS = ["full", "target:0.3", "divprune:0.3"]


@pytest.fixture
def audited(config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """``audited("llava", limit)`` -> (rows, memory) of an audit that may use ``limit`` bytes beside its weights."""
    work = Inline.run

    def make(
        model: str, limit: float = float("inf"), execution: str = "eager", arms: list[str] = ARMS
    ) -> tuple[pd.DataFrame, Scarce]:
        memory = Scarce(limit)

        def capped(*given: Any) -> None:
            with memory:
                work(*given)

        monkeypatch.setattr(Inline, "run", capped)
        settings = {"arms": arms, "limit": 4, "shard_images": 4, "batch_images": 4, "batch_tokens": 1_000_000}
        out = tmp_path / f"{model}-{execution}-{limit}-{len(arms)}"
        return audit(config(model, **settings, execution=execution, out=out)).frame(), memory

    return make


@pytest.mark.parametrize(
    ("model", "execution", "part"), [("llava", "eager", 0.7), ("llava", "graph", 0.7), ("qwen3vl", "eager", 0.9)]
)
def test_smaller_batches_give_the_same_rows(audited: Any, model: str, execution: str, part: float) -> None:
    plenty, memory = audited(model, execution=execution)
    assert memory.refused == 0
    scarce, less = audited(model, memory.peak * part, execution)
    assert less.refused > 0
    assert less.peak < memory.peak
    for column in ("probe_id", "arm", "predicted", "kept_mask"):
        assert scarce[column].tolist() == plenty[column].tolist()
    assert np.allclose(scarce["margin"], plenty["margin"], atol=1e-4)
    assert not plenty["conditions"].str.contains("halved").any()
    assert scarce["conditions"].str.contains("halved").any(), "rows say that their batch was another"


def test_the_limit_is_met_once_not_with_every_arm(audited: Any) -> None:
    _, memory = audited("llava")
    _, few = audited("llava", memory.peak * 0.7)
    _, many = audited("llava", memory.peak * 0.7, arms=[*ARMS, "grid:0.9", "random:0.9", "center:0.9"])
    assert many.refused == few.refused > 0


def test_nothing_outlives_the_audit(audited: Any) -> None:
    _, memory = audited("llava")
    assert memory.live == 0


@pytest.mark.parametrize("part", [0.3, 0.1, 0.01])
def test_far_too_little_memory_is_one_clear_line(audited: Any, part: float) -> None:
    _, memory = audited("llava")
    with pytest.raises(SightlineError, match=r"out of memory on .*; use a smaller .*--shard-images") as caught:
        audited("llava", memory.peak * part)
    assert "\n" not in str(caught.value)


def test_rows_written_before_memory_ran_out_are_kept(
    audited: Any, config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, work, write = Scarce(), Inline.run, RunFolder.write_rows

    def capped(*given: Any) -> None:
        with memory:
            work(*given)

    def writing(self: RunFolder, *given: Any) -> None:
        write(self, *given)
        memory.limit = 0.0

    settings = config("llava", arms=ARMS, limit=4, shard_images=2)
    with monkeypatch.context() as patched:
        patched.setattr(Inline, "run", capped)
        patched.setattr(RunFolder, "write_rows", writing)
        with pytest.raises(SightlineError, match="out of memory"):
            audit(settings)
    kept = {path: path.read_bytes() for path in (settings.out / "rows").rglob("*.parquet")}
    assert kept
    resumed = audit(settings).frame()
    assert all(path.read_bytes() == content for path, content in kept.items())
    plenty, _ = audited("llava")
    assert resumed["predicted"].tolist() == plenty["predicted"].tolist()
