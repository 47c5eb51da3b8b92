"""The cost card: ratios under equal conditions only, every sample on disk, conditions in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sightline.cost.benchmarks.prefill import PrefillRequest
from sightline.cost.card import CostCard
from sightline.cost.request import Measurement
from sightline.errors import SightlineError

GIB = 2**30


def result(execution: str, arm: str, samples: list[float], incremental: int = GIB, batch: int = 32) -> dict[str, Any]:
    """What a GPU worker would hand back."""
    request = PrefillRequest("prefill", config="qwen3-vl-8b", arms=(arm,), execution=execution, batch=batch)
    memory = {
        "allocated_peak": 20 * GIB, "reserved_peak": 22 * GIB,
        "allocated_incremental": incremental, "reserved_incremental": 2 * incremental,
    }  # fmt: skip
    point = Measurement(arm, batch, 784, 157, 202, {"prefill": samples}, {"prefill": 4e14}, memory, [1500.0])
    clock = {"clocks.sm": 1980.0}
    return {
        "request": request.as_dict(), "machine": {
            "device": "cuda", "name": "NVIDIA H200", "threads": 8, "torch": "2", "transformers": "5", "python": "3.12",
        },
        "dtype": "bfloat16", "kernels": {"attention": "sdpa", "execution": execution, "scaled_dot_product": {}},
        "note": "", "positions": "preserve", "box_source": "annotation", "weights": "random", "picture": [896, 896],
        "inside_timer": {"prefill": "all language layers"}, "ceiling_tflops": 800.0,
        "ceiling": {"before": {"side": 8192}}, "clocks": {"before": clock, "after": clock},
        "points": [point.as_dict()],
    }  # fmt: skip


@pytest.fixture
def card() -> CostCard:
    return CostCard(
        [
            result("eager", "full", [800.0, 820.0, 810.0], 4 * GIB),
            result("eager", "target:0.2", [200.0, 210.0, 205.0]),
            result("compiled", "full", [700.0], 4 * GIB),
            result("compiled", "target:0.2", [140.0]),
        ]
    )


def test_a_ratio_never_mixes_kernels(card: CostCard) -> None:
    records = {(r["execution"], r["arm"]): r for r in card.records()}
    assert records["eager", "target:0.2"]["speedup"] == pytest.approx(810 / 205)
    assert records["compiled", "target:0.2"]["speedup"] == pytest.approx(5.0)
    assert records["eager", "full"]["speedup"] == 1.0
    assert records["eager", "target:0.2"]["memory_saved"] == pytest.approx(0.75)


def test_no_ratio_without_a_full_prefix_under_the_same_conditions() -> None:
    alone = CostCard([result("eager", "full", [800.0]), result("compiled", "target:0.2", [140.0])])
    assert "speedup" not in alone.records()[1]
    other_batch = CostCard([result("eager", "full", [800.0], batch=16), result("eager", "target:0.2", [140.0])])
    assert "speedup" not in other_batch.records()[1]


def test_throughput_and_fraction_of_the_ceiling(card: CostCard) -> None:
    compiled = card.records()[3]
    assert compiled["samples_per_s"] == pytest.approx(32 / 0.140)
    assert compiled["of_ceiling"] == pytest.approx(4e14 / 0.140 / 800e12)


def test_the_text_names_the_conditions(card: CostCard) -> None:
    text = card.markdown()
    for words in ("NVIDIA H200", "bfloat16", "random weights", "preserve", "annotation", "1980", "all language layers"):
        assert words in text
    assert "| eager | target:0.2 | 32 | 202 | 205 | 200.00..210.00 |" in text


def test_every_sample_survives_a_round_trip(card: CostCard, tmp_path: Path) -> None:
    card.write(tmp_path / "cards" / "qwen.json")
    read = CostCard.read(tmp_path / "cards" / "qwen.json")
    assert read == card
    assert (tmp_path / "cards" / "qwen.md").read_text(encoding="utf-8") == card.markdown()
    assert read.results[0]["points"][0]["samples_ms"]["prefill"] == [800.0, 820.0, 810.0]


def test_a_data_frame_for_reports(card: CostCard) -> None:
    frame = card.frame()
    assert list(frame["arm"]) == ["full", "target:0.2", "full", "target:0.2"]
    assert frame["incremental_gib"].tolist() == [4.0, 1.0, 4.0, 1.0]


def test_bad_cards_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SightlineError, match="at least one measurement"):
        CostCard([])
    (tmp_path / "x.json").write_text("{", encoding="utf-8")
    with pytest.raises(SightlineError, match="cannot read cost card"):
        CostCard.read(tmp_path / "x.json")
    (tmp_path / "y.json").write_text(json.dumps({"format": 0}), encoding="utf-8")
    with pytest.raises(SightlineError, match="not a cost card of format 1"):
        CostCard.read(tmp_path / "y.json")
