"""Cost at the published shapes, in bfloat16 with random weights. Thresholds are the project's targets on one H200."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sightline.cost.benchmarks.load import LoadRequest
from sightline.cost.benchmarks.prefill import PrefillRequest
from sightline.cost.benchmarks.repeated import RepeatedRequest
from sightline.cost.benchmarks.sweep import Sweep, SweepRequest
from sightline.cost.benchmarks.ttft import TtftRequest
from sightline.cost.card import CostCard
from sightline.cost.measure import measure, separate
from tests.unit.cost.subjects import write_probe_file

Show = Callable[[CostCard], None]
H200 = torch.cuda.is_available() and "H200" in torch.cuda.get_device_name()
needs_h200 = pytest.mark.skipif(not H200, reason="the targets are stated for an H200")


def by_arm(card: CostCard, execution: str) -> dict[str, dict[str, Any]]:
    return {record["arm"]: record for record in card.records() if record["execution"] == execution}


def test_repeated_timing_of_a_tiny_shape_times_every_stage(show: Show, tmp_path: Path) -> None:
    arms = ("full", "target:0.4", "anchorprune:0.4")
    request = RepeatedRequest(
        kind="repeated", config="tiny-llava", device="cuda", dtype="float16", arms=arms, probes_per_process=6, drop=2,
        **write_probe_file(tmp_path),
    )  # fmt: skip
    card = CostCard([measure(request)])
    show(card)
    assert [record["arm"] for record in card.records()] == list(arms)
    assert all(min(samples) > 0 for point in card.results[0]["points"] for samples in point["samples_ms"].values())


def test_prefill_of_a_tiny_shape_measures_memory_and_clock(show: Show) -> None:
    card = CostCard(
        [
            measure(
                PrefillRequest(kind="prefill", config="tiny-llava", device="cuda", arms=("full", "target:0.2"), batch=8)
            )
        ]
    )
    show(card)
    full, pruned = card.records()
    assert 0 < pruned["incremental_gib"] < full["incremental_gib"]
    assert full["reserved_peak_gib"] >= full["allocated_peak_gib"]
    assert card.results[0]["ceiling_tflops"] > 1


def test_a_tiny_shape_under_load_steps_by_captured_powers_of_two(show: Show) -> None:
    request = LoadRequest(
        kind="load", config="tiny-llava", device="cuda", arms=("full", "target:0.3"), clients=(1, 3, 8),
        arrivals=(0.5,), answer_tokens=8, slots=8, execution="compiled", requests=16,
    )  # fmt: skip
    card = CostCard([measure(request)])
    show(card)
    lines = [line for line in card.lines() if line.get("clients")]
    assert all(line["said_tokens"] == 8 and line["decode_ms"] > 0 and line["tower_ms"] > 0 for line in lines)
    assert all(line["transformers_per_s"] > 0 for line in lines if line["clients"] == 8)
    assert next(iter(card.results[0]["points"]))["extra"]["stages"]["powers"]


@pytest.fixture(scope="module")
def batch_prefill() -> CostCard:
    """Every arm in a process of its own."""
    arms = ("full", "target:0.2")
    request = PrefillRequest(kind="prefill", config="qwen3-vl-8b", arms=arms, batch=32, execution="compiled")
    return CostCard([measure(part) for part in separate(request)])


@needs_h200
def test_batch_prefill_runs_near_the_ceiling(show: Show, batch_prefill: CostCard) -> None:
    show(batch_prefill)
    records = by_arm(batch_prefill, "compiled")
    assert records["full"]["of_ceiling"] >= 0.70
    assert records["target:0.2"]["of_ceiling"] >= 0.70
    assert records["target:0.2"]["memory_saved"] >= 0.76


@needs_h200
@pytest.mark.xfail(
    reason="measured 4.0: the operations differ by 4.16 only, and both prefixes run equally near the ceiling"
)
def test_batch_prefill_gains_more_than_four_times(batch_prefill: CostCard) -> None:
    assert by_arm(batch_prefill, "compiled")["target:0.2"]["speedup"] >= 4.2


SINGLE = [
    ("qwen3-vl-8b", "target:0.2", 1.6),
    ("llava-1.5-7b", "target:0.4", 1.6),
    pytest.param(
        "internvl3.5-8b",
        "target:0.5",
        1.7,
        marks=pytest.mark.xfail(reason="measured 1.66: thirteen tiles of vision are a third of the pruned time"),
    ),
]


@needs_h200
@pytest.mark.parametrize(("config", "arm", "least"), SINGLE)
def test_a_single_image_gains_when_captured(show: Show, config: str, arm: str, least: float) -> None:
    card = CostCard([measure(TtftRequest(kind="ttft", config=config, arms=("full", arm), execution="graph"))])
    show(card)
    assert by_arm(card, "graph")[arm]["speedup"] >= least


@needs_h200
@pytest.mark.parametrize("config", ["qwen3-vl-8b", "llava-1.5-7b", "internvl3.5-8b"])
def test_captured_beats_the_models_own_forward(show: Show, config: str) -> None:
    card = CostCard([measure(TtftRequest(kind="ttft", config=config, execution=mode)) for mode in ("stock", "graph")])
    show(card)
    assert by_arm(card, "graph")["full:1.0"]["than_stock"] >= 2.0


@needs_h200
def test_selection_does_not_eat_the_gain(show: Show) -> None:
    arms = ("full", "target:0.4", "coin:0.4", "scope:0.4", "anchorprune:0.4")
    card = CostCard([measure(TtftRequest(kind="ttft", config="llava-1.5-7b", arms=arms, execution="graph"))])
    show(card)
    assert all(record["speedup"] > 1.0 for arm, record in by_arm(card, "graph").items() if arm != "full")


@needs_h200
def test_the_sweep_beats_one_sample_at_a_time(show: Show) -> None:
    request = SweepRequest(
        kind="sweep", config="qwen3-vl-8b", arms=Sweep.arms, execution="compiled", images=100, probes=2
    )
    card = CostCard([measure(request)])
    show(card)
    (record,) = card.records()
    assert record["throughput_ratio"] >= 20  # both from the image in memory on
    assert record["of_ceiling"] >= 0.55
