"""``benchmarks/paper_cost.py``: a measurement beside every published number; what no time is left for is named."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from sightline.cost.card import CostCard
from sightline.cost.measuring_process import measure_here
from sightline.cost.published import EFFICIENCY, PREFILL_BATCH, REPEATED, TOTAL, TOTAL_WITH_DETECTOR, published_key
from tests.conftest import REPOSITORY


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module that measures in this process, on a few small images."""
    spec = importlib.util.spec_from_file_location("paper_cost", REPOSITORY / "benchmarks" / "paper_cost.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "paper_cost", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "measure", measure_here)
    monkeypatch.setattr(module, "SIZE", (160, 128))
    return module


def test_every_published_number_is_measured(script: ModuleType) -> None:
    asked: dict[str, set[object]] = {}
    for part in script.parts({"probe_file": "probes.jsonl", "image_folder": "images"}):
        for request in part.requests:
            keys = {published_key(request.config, arm) for arm in request.arms}
            asked.setdefault(part.name.split("-")[0], set()).update(keys)
            assert request.kind != "prefill" or request.batch == PREFILL_BATCH[request.config]
    assert set(REPEATED) <= asked["s17"]
    assert set(EFFICIENCY) <= asked["prefill"]
    assert set(EFFICIENCY) <= asked["single"] | asked["s17"]
    assert {*TOTAL, *TOTAL_WITH_DETECTOR} <= asked["total"]


def test_it_runs_from_drawing_to_the_last_table(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "S17", ("full", "target:0.4"))
    monkeypatch.setattr(sys, "argv", ["paper_cost.py", "--tiny", "--minutes", "1000", "--out", str(tmp_path)])
    script.main()
    said = capsys.readouterr().out
    assert len(list(tmp_path.glob("*.json"))) == 9
    assert "left out" not in said
    assert len(CostCard.read(tmp_path / "s17-llava.json").results) == 3
    assert all(arm in said for arm in script.S17)
    assert said.count("Speed-up over first token and n further tokens:") == 3
    assert "Table 2, measured and published:" in said


def test_what_no_time_is_left_for_is_named(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "measure", lambda _: pytest.fail("there was no time"))
    monkeypatch.setattr(sys, "argv", ["paper_cost.py", "--tiny", "--minutes", "0"])
    script.main()
    assert capsys.readouterr().out.count("left out") == 9
