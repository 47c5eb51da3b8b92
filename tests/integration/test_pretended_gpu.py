"""Audits on a GPU that is none: rows are those of a CPU, everything is where it belongs, and nothing is waited for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sightline.auditing.audit import audit
from sightline.backbones import images, load_backbone
from sightline.backbones.general import General
from sightline.backbones.qwen2_vl import NativeResolution
from sightline.backbones.towered import Towered
from sightline.cost import machine
from sightline.cost.benchmarks.load import LoadRequest
from sightline.cost.measuring_process import measure_here
from sightline.cost.request import Request
from sightline.cost.subject import Subject
from tests.conftest import DATA
from tests.pretend_gpu import OnGpu, on_host, pretend_gpu
from tests.unit.backbones.named import architecture, photograph

BEFORE = ["full", "target:0.3", "divprune:0.3"]
INSIDE = [*BEFORE, "fastv:0.3"]
READING = "copy_ at device/work.py"
"""The one way in which results are read: copied right behind the work that makes them, looked at later."""


def folder_of(model: str, zoo: Callable[[str], Path]) -> Path:
    return DATA / "tiny" / model if (DATA / "tiny" / model).is_dir() else zoo(model)


@pytest.mark.parametrize(("model", "how"), [
    ("qwen3vl", {"arms": INSIDE}),
    ("llava", {"arms": INSIDE}),
    ("qwen2_5_vl", {"arms": INSIDE}),
    ("qwen3vl", {"arms": BEFORE, "execution": "graph"}),
    ("internvl", {"arms": BEFORE, "execution": "graph"}),
], ids=lambda value: value if isinstance(value, str) else value.get("execution", "eager"))  # fmt: skip
def test_rows_are_those_of_a_cpu(
    config: Any, model: str, how: dict[str, Any], zoo: Callable[[str], Path], tmp_path: Path
) -> None:
    place = {"model": str(folder_of(model, zoo))}
    settings = {"limit": 4, "shard_images": 2, "batch_images": 2, "dtype": "float32"}
    made = config("llava", **settings, **how, out=tmp_path / "gpu").model_copy(update={**place, "device": "cuda"})
    with pretend_gpu() as waits:
        run = audit(made)
    rows = run.frame()
    plain = config("llava", **settings, arms=how["arms"], out=tmp_path / "cpu").model_copy(update=place)
    expected = audit(plain).frame()
    assert run.manifest["device"] == "a pretended GPU"
    assert not run.bad_images
    assert rows["kept_mask"].tolist() == expected["kept_mask"].tolist()
    assert np.allclose(rows["margin"], expected["margin"], atol=1e-4)
    asked = {line for line in waits if not line.startswith(READING)}
    if how["arms"] is BEFORE:
        assert not asked
    else:  # a method between layers looks at what it chose; a model that nobody knows is tried when it is loaded
        assert {line.split(" at ")[1].split(":")[0] for line in asked} <= {
            "core/selection_rules.py", "backbones/cuts.py", "backbones/decoder_trials.py",
        }  # fmt: skip


def test_images_that_the_model_fails_on_are_found_by_the_rehearsal_and_end_nothing(
    config: Any, zoo: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(General, "features", lambda *_: [][0])
    made = config("llava", limit=2).model_copy(update={"model": str(zoo("qwen2_5_vl")), "device": "cuda"})
    with pretend_gpu():
        run = audit(made)
    assert len(run.bad_images) == 2
    assert all("IndexError: list index out of range" in why for why in run.bad_images.values())


def test_patches_are_cut_where_the_model_lives_and_the_tower_waits_for_nothing(zoo: Callable[[str], Path]) -> None:
    pages = [photograph(112 + 28 * i, 224 - 28 * i, seed=i) for i in range(4)]
    host = architecture("qwen2_5_vl", zoo)
    expected = [host.encode([host.preprocess(page)])[0].tokens for page in pages]
    with pretend_gpu() as waits:
        backbone = load_backbone(str(zoo("qwen2_5_vl")), dtype="float32", device="cuda")
        assert isinstance(backbone, NativeResolution)
        assert backbone.knows_processor
        shown = [backbone.preprocess(page) for page in pages]
        assert {item.data.dtype for item in shown} == {torch.uint8}
        backbone.encode(shown[:1])
        waits.clear()
        found = [each.tokens for each in backbone.encode(shown)]
        assert all(isinstance(tokens, OnGpu) for tokens in found)
    assert not waits
    assert max(float((on_host(ours) - own).abs().max()) for ours, own in zip(found, expected, strict=True)) < 1e-5


def test_what_is_launched_and_captured_runs_on_the_gpu_that_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one is the usual one of a process; its own kernels would be handed pointers into the memory of this."""
    told: list[torch.device] = []
    with pretend_gpu():
        monkeypatch.setattr(torch.cuda, "set_device", told.append)
        load_backbone(str(DATA / "tiny" / "llava"), device="cuda:0")
        Subject.of(Request("sweep", config="tiny-llava", device="cuda:0"))
        load_backbone(str(DATA / "tiny" / "llava"), device="cuda")
    assert told == [torch.device("cuda:0")] * 2


@pytest.mark.parametrize("model", ["qwen3vl", "llava", "internvl", "qwen2_5_vl"])
def test_a_very_large_page_is_made_small_on_the_host(
    model: str, zoo: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for its turn in memory is what the tower is shown, not the page."""
    monkeypatch.setattr(images, "LARGE", 400 * 300)
    folder, page = folder_of(model, zoo), photograph(400, 300)
    host = load_backbone(str(folder), dtype="float32", device="cpu")
    with pretend_gpu():
        backbone = load_backbone(str(folder), dtype="float32", device="cuda")
        assert isinstance(backbone, Towered | NativeResolution)
        large, small = (backbone.preprocess(image) for image in (page, photograph(399, 300)))
        (seen,) = backbone.encode([large])
    assert (large.data.dtype, small.data.dtype) == (torch.float32, torch.uint8)
    expected = host.preprocess(page)
    assert torch.equal(large.data, expected.data)
    assert torch.allclose(on_host(seen.tokens), host.encode([expected])[0].tokens, atol=1e-5)


@pytest.mark.parametrize("execution", ["eager", "graph"])
def test_an_engine_under_load_runs(execution: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of decoding are captured for a power of two of slots each, and a capture waits for nothing."""
    monkeypatch.setitem(machine.CEILING_SIDE, "cuda", 32)
    monkeypatch.setitem(machine.READ_BYTES, "cuda", 4096)
    request = LoadRequest(
        kind="load", config="tiny-qwen3-vl", arms=("full", "target:0.3"), clients=(1, 3), answer_tokens=3, requests=4,
        slots=4, together=2, repeats=1, warm_up=1, anchor=False, execution=execution, dtype="float32",
    )  # fmt: skip
    with pretend_gpu():
        measured = measure_here(request)
    assert [point["extra"]["said_tokens"] for point in measured["points"]] == [3] * 4
