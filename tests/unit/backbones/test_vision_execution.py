"""Every way of running the vision tower gives the model's own features, and the states that signals are read from."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from sightline.backbones.base import Backbone
from sightline.backbones.execution import CapturedVision, Execution, Mode, use_vision_execution
from sightline.backbones.towered import call_block
from sightline.core.prefix import Encoded
from sightline.cost.benchmarks.ttft import TtftRequest
from sightline.cost.measuring_process import measure_here
from sightline.cost.request import Request
from sightline.cost.subject import RandomClip, Subject
from tests.towered import towered

NEEDS = {
    "tiny-qwen3-vl": frozenset({"vision.key@-1", "vision.received@1", "image.pixels"}),
    "tiny-llava": frozenset({"vision.hidden@-2", "vision.cls_attention@-2", "image.pixels"}),
    "tiny-internvl": frozenset({"image.pixels"}),
}


@pytest.fixture(params=sorted(NEEDS))
def one(request: pytest.FixtureRequest) -> Subject:
    return Subject.of(Request("ttft", config=request.param, device="cpu", dtype="float32"))


def of(subject: Subject) -> str:
    kind = str(subject.backbone.model.config.model_type)
    return next(name for name in NEEDS if kind.startswith(name.removeprefix("tiny-").split("-")[0]))


def same(backbone: Backbone, ours: Encoded, expected: Encoded, needs: frozenset[str]) -> None:
    assert torch.allclose(ours.tokens, expected.tokens, atol=1e-6)
    assert len(ours.deepstack) == len(expected.deepstack)
    for level, other in zip(ours.deepstack, expected.deepstack, strict=True):
        assert torch.allclose(level, other, atol=1e-6)
    assert set(ours.captured) == set(expected.captured)
    for name in needs:
        assert torch.allclose(backbone.vision_signal(name, ours), backbone.vision_signal(name, expected), atol=1e-6)


@torch.inference_mode()
def test_the_loop_over_blocks_gives_the_models_own_features(one: Subject) -> None:
    backbone = one.backbone
    pixels = backbone.preprocess(one.image(0))
    (ours,) = backbone.encode([pixels])
    model, inputs = backbone.model.model, towered(backbone).tower_inputs([pixels])
    extra = {"image_grid_thw": torch.tensor([pixels.grid])} if backbone.axes == 3 else {}
    theirs = model.get_image_features(inputs, return_dict=True, **extra)
    assert torch.equal(ours.tokens, torch.cat([part.flatten(0, -2) for part in theirs.pooler_output]))
    for level, other in zip(ours.deepstack, getattr(theirs, "deepstack_features", ()), strict=True):
        assert torch.equal(level, other if isinstance(other, torch.Tensor) else torch.cat(other))


@pytest.mark.parametrize("mode", ["compiled", "graph"])
@torch.inference_mode()
def test_compiled_blocks_give_the_same_tokens_and_signals(one: Subject, mode: Mode) -> None:
    backbone, needs = one.backbone, NEEDS[of(one)]
    pixels = [backbone.preprocess(one.image(i)) for i in range(2)]
    expected = [backbone.encode([item], needs)[0] for item in pixels]
    execution = Execution(mode)
    use_vision_execution(backbone, execution, backend="eager", dynamic=False)
    for _ in range(2):
        for ours, plain in zip(backbone.encode(pixels, needs), expected, strict=True):
            same(backbone, ours, plain, needs)
    assert len(execution.setup_ms) == 1
    use_vision_execution(backbone, Execution("eager"))
    (again,) = backbone.encode(pixels[:1], needs)
    assert torch.equal(again.tokens, expected[0].tokens)


@torch.inference_mode()
def test_all_blocks_share_one_compiled_function_without_breaks(one: Subject) -> None:
    backbone, pixels = one.backbone, one.backbone.preprocess(one.image(0))
    counter = CompileCounter()
    torch._dynamo.reset()
    use_vision_execution(backbone, Execution("compiled"), dynamic=False)
    towered(backbone).call_block = torch.compile(call_block, backend=counter, dynamic=False, fullgraph=True)
    backbone.encode([pixels])
    assert counter.frame_count == 1


@pytest.mark.parametrize("raw", [False, True], ids=["values", "bytes"])
@torch.inference_mode()
def test_a_captured_tower_replays_for_every_image(one: Subject, raw: bool) -> None:
    """``raw``: the image's bytes reach the tower, as they do on a GPU."""
    backbone, needs = one.backbone, NEEDS[of(one)]
    ready = [backbone.preprocess(one.image(i)) for i in range(2)]
    pixels = [replace(p, data=towered(backbone).image_bytes(one.image(i))) if raw else p for i, p in enumerate(ready)]
    see = CapturedVision(towered(backbone), pixels[0], needs)
    for index in (0, 1, 0):
        (expected,) = backbone.encode([ready[index]], needs)
        same(backbone, see(pixels[index]), expected, needs)


def test_a_question_is_encoded_anew_for_every_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    clip = RandomClip(32, torch.device("cpu"))
    calls = []
    features = clip.model.get_text_features
    monkeypatch.setattr(clip.model, "get_text_features", lambda **inputs: calls.append(1) or features(**inputs))
    assert clip.text("where is the exit").shape == (1, 768)
    clip.text("where is the exit")
    assert len(calls) == 2


def test_signals_are_billed_to_the_selector_that_needs_them() -> None:
    request = TtftRequest(
        "ttft", config="tiny-llava", arms=("anchorprune:0.4",), execution="graph", device="cpu", repeats=2, warm_up=1
    )
    (point,) = measure_here(request)["points"]
    assert point["kept_tokens"] == 26
    assert all(ms > 0 for ms in point["samples_ms"]["signals"])
