"""Measurements keep every sample, run in processes of their own that end with whoever asked, and say what they are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from sightline.cost import measure as measuring
from sightline.cost import measuring_process as worker
from sightline.cost.benchmarks.prefill import PrefillRequest
from sightline.cost.benchmarks.sweep import SweepRequest
from sightline.cost.benchmarks.ttft import TtftRequest
from sightline.cost.card import CostCard
from sightline.cost.machine import PeakMemory, ceiling, clocks, kind_of
from sightline.cost.measure import measure, separate
from sightline.cost.measuring_process import measure_here
from sightline.cost.request import Request
from sightline.cost.spread import Spread
from sightline.errors import SightlineError
from tests.warm_python import run_python, warm_children

HERE: dict[str, Any] = {"device": "cpu", "dtype": "float32", "repeats": 3, "warm_up": 1}


def test_prefill_keeps_every_sample_and_shortens_the_prefix() -> None:
    request = PrefillRequest(kind="prefill", config="tiny-qwen3-vl", arms=("full", "target:0.2"), batch=2, **HERE)
    result = measure_here(request)
    full, pruned = result["points"]
    assert full["visual_tokens"] == pruned["visual_tokens"] == 64
    assert (full["kept_tokens"], pruned["kept_tokens"]) == (64, 13)
    assert full["length"] - pruned["length"] == 64 - 13
    for point in (full, pruned):
        assert len(point["samples_ms"]["prefill"]) == 3
        assert all(ms > 0 for ms in point["samples_ms"]["prefill"])
        assert point["memory"] is None  # the CPU allocator keeps no count, and the card says nothing it did not measure
    assert pruned["flops"]["prefill"] < full["flops"]["prefill"]
    assert result["ceiling_tflops"] > 0
    assert len(result["ceiling"]["before"]["samples_tflops"]) == 10


@pytest.mark.parametrize("config", ["tiny-qwen3-vl", "tiny-llava", "tiny-internvl"])
@pytest.mark.parametrize("execution", ["eager", "graph"])
def test_first_token_times_every_stage(config: str, execution: str) -> None:
    request = TtftRequest(kind="ttft", config=config, arms=("target:0.3",), execution=execution, decode=(1, 3), **HERE)
    (point,) = measure_here(request)["points"]
    stages = point["samples_ms"]
    parts = ("preprocess", "vision", "signals", "select", "materialise", "prefill", "first_token")
    assert {*parts, "total", "decode_1", "decode_3"} == set(stages)
    assert all(len(samples) == 3 for samples in stages.values())
    for i in range(3):
        assert sum(stages[name][i] for name in parts) <= stages["total"][i]
        assert stages["decode_1"][i] < stages["decode_3"][i]


@pytest.mark.parametrize("config", ["tiny-qwen3-vl", "tiny-llava", "tiny-internvl"])
def test_the_models_own_forward_is_measured_beside_ours(config: str) -> None:
    request = TtftRequest(kind="ttft", config=config, arms=("full",), execution="stock", **HERE)
    results = [measure_here(request), measure_here(request.model_copy(update={"execution": "graph"}))]
    (stock,), (ours,) = (result["points"] for result in results)
    assert set(stock["samples_ms"]) == {"preprocess", "model", "total"}
    assert (stock["length"], stock["kept_tokens"]) == (ours["length"], ours["kept_tokens"])
    first, second = CostCard(results).records()
    assert first["than_stock"] == 1.0
    assert second["than_stock"] == pytest.approx(first["ms"] / second["ms"])


def test_the_models_own_forward_cannot_prune() -> None:
    with pytest.raises(SightlineError, match=r"cannot prune: drop target:0\.3"):
        measure_here(TtftRequest(kind="ttft", config="tiny-llava", arms=("target:0.3",), execution="stock", **HERE))


def test_a_method_inside_the_model_is_measured_eagerly_only() -> None:
    request = TtftRequest(kind="ttft", config="tiny-llava", arms=("fastv:0.5",), **HERE)
    (point,) = measure_here(request)["points"]
    assert point["kept_tokens"] == 32
    with pytest.raises(SightlineError, match="fastv prunes between layers, which only eager execution does"):
        measure_here(TtftRequest(kind="ttft", config="tiny-llava", arms=("fastv:0.5",), execution="graph", **HERE))


@pytest.mark.parametrize("execution", ["eager", "graph"])
def test_a_smaller_image_saves_in_the_vision_tower_too(execution: str) -> None:
    def point(arm: str) -> dict[str, Any]:
        request = TtftRequest(kind="ttft", config="tiny-qwen3-vl", arms=(arm,), execution=execution, **HERE)
        (measured,) = measure_here(request)["points"]
        return dict(measured)

    full, pruned, smaller = (point(arm) for arm in ("full", "target:0.3", "resize:0.3"))
    assert smaller["visual_tokens"] == full["visual_tokens"] == 64
    assert smaller["kept_tokens"] == 16, "4 x 4: the largest square within 20 tokens"
    assert full["length"] - smaller["length"] == 64 - 16
    assert pruned["flops"]["vision"] == full["flops"]["vision"] > 3.9 * smaller["flops"]["vision"]


def test_prefill_over_smaller_images_is_measured_beside_pruned_ones() -> None:
    arms = ("full", "resize:0.3", "random:16t")
    full, smaller, pruned = measure_here(
        PrefillRequest(kind="prefill", config="tiny-qwen3-vl", arms=arms, batch=2, **HERE)
    )["points"]
    assert [point["kept_tokens"] for point in (full, smaller, pruned)] == [64, 16, 16]
    assert [point["visual_tokens"] for point in (full, smaller, pruned)] == [64, 64, 64]
    assert smaller["length"] == pruned["length"]
    assert smaller["flops"] == pruned["flops"]


def test_a_sweep_encodes_smaller_images_apart_and_bills_both() -> None:
    def point(*arms: str) -> dict[str, Any]:
        request = SweepRequest(kind="sweep", config="tiny-qwen3-vl", arms=arms, images=3, one_sample_rows=4, **HERE)
        (measured,) = measure_here(request)["points"]
        return dict(measured)

    both, full, smaller = point("full", "resize:0.3"), point("full"), point("resize:0.3")
    assert both["extra"]["rows"] == full["extra"]["rows"] + smaller["extra"]["rows"] == 3 * 2 * 2
    assert both["flops"]["engine"] == pytest.approx(full["flops"]["engine"] + smaller["flops"]["engine"])
    assert smaller["flops"]["engine"] < full["flops"]["engine"]


@pytest.mark.parametrize("kind", [TtftRequest, PrefillRequest, SweepRequest])
def test_a_model_that_sees_one_size_is_not_measured_at_another(kind: type[Request]) -> None:
    name = kind.__name__.removesuffix("Request").lower()
    with pytest.raises(SightlineError, match="resize cannot run on Llava"):
        measure_here(kind(name, config="tiny-llava", arms=("resize:0.3",), **HERE))


def test_batches_grow_until_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from sightline.backbones.language import LanguageModel

    run = LanguageModel.run

    def scarce(self: LanguageModel, batch: object, *rest: object) -> object:
        if batch.hidden.shape[0] > 4:  # type: ignore[attr-defined]
            raise MemoryError
        return run(self, batch, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(LanguageModel, "run", scarce)
    request = PrefillRequest(kind="prefill", config="tiny-llava", arms=("full",), grow=True, **HERE)
    points = measure_here(request)["points"]
    assert [point["batch"] for point in points] == [1, 2, 4, 8]
    assert points[-1]["extra"] == {"out_of_memory": True}
    assert len({(point["kept_tokens"], point["length"]) for point in points}) == 1
    assert "out of memory" in CostCard([measure_here(request)]).markdown()


def test_memory_that_runs_out_in_the_measuring_process_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Request) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB. And so on.")

    monkeypatch.setattr(worker, "measure_here", full)
    (tmp_path / "request.json").write_text(json.dumps(PrefillRequest(kind="prefill", config="tiny-llava").as_dict()))
    assert worker.main([str(tmp_path / "request.json"), str(tmp_path / "result.json")]) == 0
    said = json.loads((tmp_path / "result.json").read_text())["error"]
    assert said == "CUDA out of memory. Tried to allocate 9 GiB; use a smaller model, dtype, image size or batch"


def test_a_sweep_counts_rows_and_compares_with_one_sample_at_a_time() -> None:
    request = SweepRequest(
        kind="sweep",
        config="tiny-llava",
        arms=("full", "target:0.3"),
        images=3,
        batch_images=2,
        one_sample_rows=4,
        **HERE,
    )
    (point,) = measure_here(request)["points"]
    assert point["extra"]["rows"] == 3 * 2 * 2
    assert len(point["samples_ms"]["one_sample"]) == 4
    rate = point["extra"]["rows"] / point["samples_ms"]["engine"][0]
    plain = 4 / sum(point["samples_ms"]["one_sample"])
    assert point["extra"]["throughput_ratio"] == pytest.approx(rate / plain)
    alone = 4 / (sum(point["samples_ms"]["one_sample"]) - sum(point["samples_ms"]["one_sample_preprocess"]))
    assert point["extra"]["ratio_to_model_alone"] == pytest.approx(rate / alone)
    assert point["flops"]["engine"] > 0


def test_every_arm_gets_a_process_of_its_own() -> None:
    request = PrefillRequest(kind="prefill", config="tiny-llava", arms=("full", "target:0.2"), **HERE)
    assert [part.arms for part in separate(request)] == [("full",), ("target:0.2",)]


def test_a_measurement_runs_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    request = PrefillRequest(kind="prefill", config="tiny-llava", arms=("target:0.2",), **{**HERE, "repeats": 2})
    result = measure(request)
    assert PrefillRequest(**result["request"]) == request
    assert len(result["points"][0]["samples_ms"]["prefill"]) == 2
    assert result["machine"]["threads"] == 1
    assert result["weights"] == "random"
    with warm_children(), pytest.raises(SightlineError, match="unknown selector"):
        measure(PrefillRequest(kind="prefill", config="tiny-llava", arms=("nonsense:0.2",), **HERE))


def test_measuring_needs_no_tables_and_no_command_line() -> None:
    """A GPU machine may lack what the rest of the project needs to write run folders and pages."""
    code = (
        "import sys; sys.modules.update({name: None for name in ('pyarrow', 'pandas', 'typer', 'yaml')});"
        "import sightline.cost.measuring_process, sightline.cost.measure, sightline.cost.card"
    )
    done = run_python(["-c", code])
    assert done.returncode == 0, done.stderr


def test_requests_are_checked() -> None:
    with pytest.raises(SightlineError, match="either a shape with random weights or a checkpoint"):
        PrefillRequest(kind="prefill")
    with pytest.raises(SightlineError, match="unknown field speed"):
        PrefillRequest(kind="prefill", config="tiny-llava", **{"speed": 1})
    with pytest.raises(SightlineError, match="unknown position policy"):
        measure_here(PrefillRequest(kind="prefill", config="tiny-llava", positions="shuffled", device="cpu"))


def test_a_checkpoint_can_be_measured_too(data: Path) -> None:
    request = PrefillRequest(
        kind="prefill", checkpoint=str(data / "tiny" / "llava"), arms=("full", "target:0.4"), **HERE
    )
    result = measure_here(request)
    assert [point["kept_tokens"] for point in result["points"]] == [576, 231]
    assert result["weights"] == "checkpoint"


def test_no_gpu_figures_without_a_gpu() -> None:
    assert clocks(torch.device("cpu")) is None
    assert PeakMemory(torch.device("cpu")).read() is None
    assert ceiling(torch.device("cpu"), torch.float32)["side"] == 768


def test_a_spread_is_median_and_nearest_ranks() -> None:
    spread = Spread.of([5.0, 1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0])
    assert (spread.median, spread.low, spread.high, spread.count) == (6.0, 2.0, 10.0, 11)


def test_a_profile_sums_kernels_by_kind() -> None:
    request = PrefillRequest(kind="prefill", config="tiny-llava", arms=("full",), batch=2, profile=True, **HERE)
    result = measure_here(request)
    profile = result["points"][0]["extra"]["profile"]
    assert profile["kinds"]["matrix product"]["calls"] >= 3 * 7  # layers x projections
    assert profile["kinds"]["attention"]["ms"] > 0
    assert "Where the time goes" in CostCard([result]).markdown()


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("nvjet_tst_192x192_64x4_1x2_h_bz_TNN", "matrix product"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32", "matrix product"),
        ("pytorch_flash::flash_fwd_kernel", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma", "attention"),
        ("triton_red_fused_add_mul_pow_0", "fused"),
        ("triton_per_fused__scaled_dot_product_cudnn_attention__to_copy_add_cat_1", "fused"),
        ("Memcpy DtoD (Device -> Device)", "copy"),
        ("vectorized_elementwise_kernel", "elementwise"),
    ],
)
def test_kernels_are_told_apart_by_name(kernel: str, kind: str) -> None:
    assert kind_of(kernel) == kind


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
ENDLESS = "--shape tiny-llava --random-weights --device cpu --arm full --batch 1 --execution eager --repeats 100000000"
PATIENCE = 60.0


def children(process: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def running(process: int) -> bool:
    """Whether it still does anything: one that ended and waits to be collected does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def measures(process: int) -> bool:
    """Whether the process has come as far as loading its libraries."""
    return "libtorch" in Path(f"/proc/{process}/maps").read_text()


@LINUX
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=lambda how: how.name)
def test_a_measuring_process_ends_with_whoever_asked_for_it(how: signal.Signals) -> None:
    asking = subprocess.Popen(
        [sys.executable, "-m", "sightline", "bench", "prefill", *ENDLESS.split()],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    measured: list[int] = []
    try:
        deadline = time.monotonic() + PATIENCE
        while not (measured and measures(measured[0])):
            assert time.monotonic() < deadline, "no measuring process was started"
            assert asking.poll() is None, "the command ended by itself"
            time.sleep(0.1)
            measured = children(asking.pid)
        asking.send_signal(how)
        asking.wait(PATIENCE)
        while running(measured[0]):
            assert time.monotonic() < deadline, "the measuring process outlived the command"
            time.sleep(0.1)
    finally:
        asking.kill()
        asking.wait()
        for process in measured:
            if running(process):
                os.kill(process, signal.SIGKILL)


def test_without_help_of_the_system_the_end_of_the_pipe_ends_it() -> None:
    """As on a system that cannot be asked to kill a child: the reading thread alone."""
    watching = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from sightline.cost.measure import end_with_parent; sys.platform = 'elsewhere';"
            "end_with_parent(0); print('watching', flush=True); time.sleep(600)",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watching.stdin is not None
    assert watching.stdout is not None
    try:
        assert watching.stdout.readline() == "watching\n"
        time.sleep(0.5)
        assert watching.poll() is None
        watching.stdin.close()
        assert watching.wait(PATIENCE) == 1
    finally:
        watching.kill()
        watching.wait()
        watching.stdout.close()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("SIGKILL", "killed from outside, most likely because memory ran out; use a smaller model, dtype"),
        ("SIGSEGV", "the measuring process was ended by SIGSEGV"),
    ],
)
def test_a_process_that_is_killed_is_one_sentence(how: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = measuring._run
    kills_itself = f"import os, signal; os.kill(os.getpid(), signal.{how})"
    monkeypatch.setattr(measuring, "_run", lambda _: run([sys.executable, "-c", kills_itself]))
    with pytest.raises(SightlineError, match=words) as refused:
        measuring.measure(PrefillRequest(kind="prefill", config="tiny-llava"))
    assert "\n" not in str(refused.value)
