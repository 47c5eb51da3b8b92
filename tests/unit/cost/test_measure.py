"""Measurements keep every sample, run in processes of their own that end with whoever asked, and say what they are."""

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

from sightline.backbones.language import LanguageModel
from sightline.cost import measure as measuring
from sightline.cost import measuring_process as worker
from sightline.cost.benchmarks.prefill import PrefillRequest
from sightline.cost.benchmarks.sweep import SweepRequest
from sightline.cost.benchmarks.ttft import TtftRequest
from sightline.cost.card import CostCard
from sightline.cost.machine import kind_of
from sightline.cost.measure import measure, separate
from sightline.cost.measuring_process import measure_here
from sightline.cost.request import Request
from sightline.cost.spread import Spread
from tests.launching import is_alive
from tests.refusals import Refused
from tests.warm_python import run_python, warm_children

HERE: dict[str, Any] = {"device": "cpu", "dtype": "float32", "repeats": 3, "warm_up": 1}


def here(kind: type[Request], config: str, *arms: str, **fields: Any) -> dict[str, Any]:
    """What is measured in this process, by the benchmark that the request is named after."""
    name = kind.__name__.removesuffix("Request").lower()
    return measure_here(kind(name, **{"config": config, "arms": arms, **HERE, **fields}))


def test_prefill_keeps_every_sample_and_shortens_the_prefix() -> None:
    result = here(PrefillRequest, "tiny-qwen3-vl", "full", "target:0.2", "resize:0.3", "random:16t", batch=2)
    full, pruned, smaller, drawn = points = result["points"]
    assert [point["visual_tokens"] for point in points] == [64] * 4
    assert [point["kept_tokens"] for point in points] == [64, 13, 16, 16]
    assert full["length"] - pruned["length"] == 64 - 13
    for point in points:
        assert len(point["samples_ms"]["prefill"]) == 3
        assert all(ms > 0 for ms in point["samples_ms"]["prefill"])
        assert point["memory"] is None  # the CPU allocator keeps no count, and the card says nothing it did not measure
    assert pruned["flops"]["prefill"] < full["flops"]["prefill"]
    assert (smaller["length"], smaller["flops"]) == (drawn["length"], drawn["flops"])
    assert result["ceiling_tflops"] > 0
    assert len(result["ceiling"]["before"]["samples_tflops"]) == 10
    assert result["ceiling"]["before"]["side"] == 768
    assert result["clocks"] == {"before": None, "after": None}, "no GPU figures without a GPU"


PROBES: dict[str, Any] = {"probe_file": "p.jsonl", "image_folder": "images"}


def test_what_cannot_be_measured_is_refused(refused: Refused) -> None:
    rows: list[tuple[type[Request], dict[str, Any], str]] = [
        (PrefillRequest, {"config": ""}, "either a shape with random weights or a checkpoint"),
        (PrefillRequest, {"speed": 1}, "unknown field speed"),
        (PrefillRequest, {"probe_file": "p.jsonl"}, "give --probes FILE and --images DIR"),
        (PrefillRequest, {**PROBES, "image_size": (64, 64)}, "--image-size is of a made-up image"),
        (SweepRequest, {"shard_images": 0}, "--shard-images 0: must be at least 1"),
        (TtftRequest, {"box_source": "easyocr", "detector_ms": 1.0}, "is timed here: drop --detector-ms"),
        (PrefillRequest, {"positions": "shuffled"}, "unknown position policy"),
        (TtftRequest, {"arms": ("target:0.3",), "execution": "stock"}, "cannot prune: drop target:0.3"),
        (TtftRequest, {"arms": ("fastv:0.5",), "execution": "graph"}, "which are one in a graph"),
        *(
            (kind, {"arms": ("resize:0.3",)}, "resize cannot run on Llava")
            for kind in (TtftRequest, PrefillRequest, SweepRequest)
        ),
    ]
    for kind, fields, words in rows:
        refused(words, here, kind, **{"config": "tiny-llava", **fields})


every_shape = pytest.mark.parametrize("config", ["tiny-qwen3-vl", "tiny-llava", "tiny-internvl"])
every_execution = pytest.mark.parametrize("execution", ["eager", "graph"])


@every_shape
@every_execution
def test_first_token_times_every_stage(config: str, execution: str) -> None:
    parts = ("preprocess", "vision", "signals", "select", "materialise", "prefill", "first_token")
    (point,) = here(TtftRequest, config, "target:0.3", execution=execution, decode=(1, 3))["points"]
    stages = point["samples_ms"]
    assert {*parts, "total", "decode_1", "decode_3"} == set(stages)
    assert all(len(samples) == 3 for samples in stages.values())
    for i in range(3):
        assert sum(stages[name][i] for name in parts) <= stages["total"][i]
        assert stages["decode_1"][i] < stages["decode_3"][i]


@every_execution
def test_a_smaller_image_saves_in_the_vision_tower_too(execution: str) -> None:
    arms = ("full", "target:0.3", "resize:0.3")
    full, pruned, smaller = here(TtftRequest, "tiny-qwen3-vl", *arms, execution=execution)["points"]
    assert smaller["visual_tokens"] == full["visual_tokens"] == 64
    assert smaller["kept_tokens"] == 16, "4 x 4: the largest square within 20 tokens"
    assert full["length"] - smaller["length"] == 64 - 16
    assert pruned["flops"]["vision"] == full["flops"]["vision"] > 3.9 * smaller["flops"]["vision"]


@every_shape
def test_the_models_own_forward_is_measured_beside_ours(config: str) -> None:
    results = [here(TtftRequest, config, "full", execution=execution) for execution in ("stock", "graph")]
    (stock,), (ours,) = (result["points"] for result in results)
    assert set(stock["samples_ms"]) == {"preprocess", "model", "total"}
    assert (stock["length"], stock["kept_tokens"]) == (ours["length"], ours["kept_tokens"])
    first, second = CostCard(results).records()
    assert first["than_stock"] == 1.0
    assert second["than_stock"] == pytest.approx(first["ms"] / second["ms"])


def test_batches_grow_until_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    run = LanguageModel.run

    def scarce(self: LanguageModel, batch: object, *rest: object) -> object:
        if batch.hidden.shape[0] > 4:  # type: ignore[attr-defined]
            raise MemoryError
        return run(self, batch, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(LanguageModel, "run", scarce)
    result = here(PrefillRequest, "tiny-llava", "full", grow=True)
    points = result["points"]
    assert [point["batch"] for point in points] == [1, 2, 4, 8]
    assert points[-1]["extra"] == {"out_of_memory": True}
    assert len({(point["kept_tokens"], point["length"]) for point in points}) == 1
    assert "out of memory" in CostCard([result]).markdown()


def test_a_sweep_counts_rows_compares_one_at_a_time_and_bills_smaller_images_apart() -> None:
    sizes = {"images": 3, "batch_images": 2, "one_sample_rows": 4}
    (point,) = here(SweepRequest, "tiny-llava", "full", "target:0.3", **sizes)["points"]
    assert point["extra"]["rows"] == 3 * 2 * 2
    assert len(point["samples_ms"]["one_sample"]) == 4
    rate = point["extra"]["rows"] / point["samples_ms"]["engine"][0]
    plain = 4 / sum(point["samples_ms"]["one_sample"])
    assert point["extra"]["throughput_ratio"] == pytest.approx(rate / plain)
    alone = 4 / (sum(point["samples_ms"]["one_sample"]) - sum(point["samples_ms"]["one_sample_preprocess"]))
    assert point["extra"]["ratio_to_model_alone"] == pytest.approx(rate / alone)
    assert point["flops"]["engine"] > 0

    def measured_point(*arms: str) -> dict[str, Any]:
        (measured,) = here(SweepRequest, "tiny-qwen3-vl", *arms, images=3, one_sample_rows=4)["points"]
        return dict(measured)

    both, full, smaller = (measured_point(*arms) for arms in (("full", "resize:0.3"), ("full",), ("resize:0.3",)))
    assert both["extra"]["rows"] == full["extra"]["rows"] + smaller["extra"]["rows"] == 3 * 2 * 2
    assert both["flops"]["engine"] == pytest.approx(full["flops"]["engine"] + smaller["flops"]["engine"])
    assert smaller["flops"]["engine"] < full["flops"]["engine"]


def test_a_measurement_runs_in_another_process(monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    request = PrefillRequest(kind="prefill", config="tiny-llava", arms=("target:0.2",), **{**HERE, "repeats": 2})
    result = measure(request)
    assert PrefillRequest(**result["request"]) == request
    assert len(result["points"][0]["samples_ms"]["prefill"]) == 2
    assert result["machine"]["threads"] == 1
    assert result["weights"] == "random"
    request = PrefillRequest(kind="prefill", config="tiny-llava", arms=("full", "nonsense:0.2"), **HERE)
    plain, wrong = separate(request)
    assert (plain.arms, wrong.arms) == (("full",), ("nonsense:0.2",)), "every arm has a process of its own"
    with warm_children():
        refused("unknown selector", measure, wrong)


def test_a_bare_machine_with_torch_can_measure_and_time_selectors() -> None:
    for missing, code in (
        (("pyarrow", "pandas", "typer", "yaml"), "from sightline.cost import measuring_process, measure, card"),
        (("pydantic", "typer", "transformers"),
         "from sightline.cost.selection import timed_methods; assert len(timed_methods()) > 30"),
    ):  # fmt: skip
        done = run_python(["-c", f"import sys; sys.modules.update(dict.fromkeys({missing}))\n{code}"])
        assert done.returncode == 0, done.stderr


KERNELS = {
    "nvjet_tst_192x192_64x4_1x2_h_bz_TNN": "matrix product",
    "sm90_xmma_gemm_bf16bf16_bf16f32": "matrix product",
    "pytorch_flash::flash_fwd_kernel": "attention",
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma": "attention",
    "triton_red_fused_add_mul_pow_0": "fused",
    "triton_per_fused__scaled_dot_product_cudnn_attention__to_copy_add_cat_1": "fused",
    "Memcpy DtoD (Device -> Device)": "copy",
    "vectorized_elementwise_kernel": "elementwise",
}


def test_a_method_inside_the_model_and_a_checkpoint_are_measured_too(data: Path) -> None:
    (point,) = here(TtftRequest, "tiny-llava", "fastv:0.5")["points"]
    assert point["kept_tokens"] == 32
    result = here(PrefillRequest, "", "full", "target:0.4", checkpoint=str(data / "tiny" / "llava"))
    assert [point["kept_tokens"] for point in result["points"]] == [576, 231]
    assert result["weights"] == "checkpoint"


def test_a_spread_has_the_nearest_ranks() -> None:
    spread = Spread.of([5.0, 1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0])
    assert (spread.centre, spread.low, spread.high, spread.count) == (6.0, 2.0, 10.0, 11)


def test_a_profile_sums_kernels_by_kind() -> None:
    result = here(PrefillRequest, "tiny-llava", "full", batch=2, profile=True)
    profile = result["points"][0]["extra"]["profile"]
    assert profile["kinds"]["matrix product"]["calls"] >= 3 * 7  # layers x projections
    assert profile["kinds"]["attention"]["ms"] > 0
    assert "Where the time goes" in CostCard([result]).markdown()
    assert {name: kind_of(name) for name in KERNELS} == KERNELS, "told apart by name"


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
ENDLESS = "--shape tiny-llava --random-weights --device cpu --arm full --batch 1 --execution eager --repeats 100000000"
PATIENCE = 60.0


def children(process: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def measures(process: int) -> bool:
    """Whether the process has come as far as loading its libraries."""
    return "libtorch" in Path(f"/proc/{process}/maps").read_text()


@LINUX
@pytest.mark.slow
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
        while is_alive(measured[0]):
            assert time.monotonic() < deadline, "the measuring process outlived the command"
            time.sleep(0.1)
    finally:
        asking.kill()
        asking.wait()
        for process in measured:
            if is_alive(process):
                os.kill(process, signal.SIGKILL)


WATCHES = """
import sys, time; from sightline.cost.measure import end_with_parent; sys.platform = 'elsewhere'
end_with_parent(0); print('watching', flush=True); time.sleep(600)
"""


def test_without_help_of_the_system_the_end_of_the_pipe_ends_it() -> None:
    """As on a system that cannot be asked to kill a child: the reading thread alone."""
    watching = subprocess.Popen(
        [sys.executable, "-c", WATCHES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
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


TINY = PrefillRequest(kind="prefill", config="tiny-llava")


def test_memory_that_runs_out_in_the_measuring_process_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Request) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB. And so on.")

    monkeypatch.setattr(worker, "measure_here", full)
    (tmp_path / "request.json").write_text(json.dumps(TINY.as_dict()))
    assert worker.main([str(tmp_path / "request.json"), str(tmp_path / "result.json")]) == 0
    said = json.loads((tmp_path / "result.json").read_text())["error"]
    assert said == "CUDA out of memory. Tried to allocate 9 GiB; use a smaller model, dtype, image size or batch"


def test_a_process_that_is_killed_is_one_sentence(monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    run = measuring._run
    for how, words in (
        ("SIGKILL", "killed from outside, most likely because memory ran out; use a smaller model, dtype"),
        ("SIGSEGV", "the measuring process was ended by SIGSEGV"),
    ):
        command = [sys.executable, "-c", f"import os, signal; os.kill(os.getpid(), signal.{how})"]
        monkeypatch.setattr(measuring, "_run", lambda _, command=command: run(command))
        refused(words, measure, TINY)
