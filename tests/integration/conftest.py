"""What tests of whole audits share: quick configurations, rows to compare, refusals, kills."""

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sightline import AuditConfig, Run, SightlineError, audit
from sightline.core.row import TIME_COLUMNS
from sightline.probes import HardPairRules, build_hard_pairs, load_regions, write_probes
from tests.launching import words_of
from tests.warm_python import run_python

MODELS = ("qwen3vl", "llava", "internvl")
SMALL: dict[str, dict[str, int]] = {"qwen3vl": {"max_pixels": 100352}, "llava": {}, "internvl": {"max_tiles": 2}}
"""Image limits that keep tiny models quick."""
TEN_ARMS = [
    "full", "target:0.3", "random:0.3", "grid:0.3", "shuffled:0.3", "target_grid:0.3", "protected:0.4",
    "soft_evidence:0.3", "coin:0.2", "fastv:0.5",
]  # fmt: skip


@pytest.fixture(scope="session")
def mini_probes(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hard pairs on the first twelve usable images of the mini set."""
    data = data / "mini_textocr"
    records = load_regions(data / "TextOCR_mini_val.json").records
    pairs = build_hard_pairs(records, HardPairRules(limit_images=12))
    path = tmp_path_factory.mktemp("probes") / "mini.jsonl"
    write_probes(path, pairs.probes)
    return path


def make_config(data: Path, probes: Path, out: Path, model: str, /, **changes: Any) -> AuditConfig:
    """A quick configuration on the mini set."""
    settings: dict[str, Any] = {
        "model": str(data / "tiny" / model),
        "probes": probes,
        "images": data / "mini_textocr",
        "out": out,
        "arms": ["full", "target:0.3", "random:0.3"],
        "device": "cpu",
        "dtype": "float32",
        "limit": 3,
        "matched_controls": False,
        **changes,
        "image_options": {**SMALL[model], **changes.get("image_options", {})},
    }
    return AuditConfig(**settings)


@pytest.fixture
def config(data: Path, mini_probes: Path, tmp_path: Path) -> Any:
    """``config("llava", arms=[...], limit=2)`` -> a quick AuditConfig on the mini set."""
    return partial(make_config, data, mini_probes, tmp_path / "run")


def facts(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows without timings, in an order that does not depend on the run."""
    return frame.drop(columns=list(TIME_COLUMNS)).sort_values(["arm", "probe_id"]).reset_index(drop=True)


def refused_with(work: Callable[[], object], *words: str) -> None:
    """A sentence for the user that says all of these, which the test makes up of what it has drawn or changed."""
    with pytest.raises(SightlineError) as caught:
        work()
    for word in words:
        assert word in str(caught.value)


@pytest.fixture
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a model fails the test: what is wrong must be known before."""
    monkeypatch.setattr("sightline.auditing.worker.load_backbone", lambda *_, **__: pytest.fail("a model was loaded"))


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


def killed_and_resumed(settings: AuditConfig) -> Run:
    """The rows of a run that was killed and gone on with are those of an undisturbed one, which is returned."""
    process = run_python(command(settings))
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert f"loading {Path(settings.model).name}" in process.stderr.splitlines(), "said before it is done"
    assert len(list(settings.out.glob("rows/*/*.parquet"))) == DONE
    assert list(settings.out.rglob("*.tmp")), "the kill leaves a file half-written"
    resumed = audit(settings)
    undisturbed = audit(settings.model_copy(update={"out": settings.out.with_name("undisturbed")}))
    assert resumed.missing == 0
    pd.testing.assert_frame_equal(facts(resumed.frame()), facts(undisturbed.frame()))
    assert resumed.images.select(["image_key", "cells"]).equals(undisturbed.images.select(["image_key", "cells"]))
    assert not list(settings.out.rglob("*.tmp")), "what the kill left half-written is gone"
    return undisturbed
