"""A tower prepared for one picture size gives what the backbone gives, signals included."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sightline.cost.clip import RandomClip
from sightline.cost.request import Request
from sightline.cost.subject import Subject
from sightline.cost.tower import Tower
from sightline.cost.worker import measure_here

NEEDS = {
    "tiny-qwen3-vl": frozenset({"vision.key@-1", "vision.received@1"}),
    "tiny-llava": frozenset({"vision.hidden@-2", "vision.cls_attention@-2"}),
    "tiny-internvl": frozenset[str](),
}


@pytest.mark.parametrize("config", sorted(NEEDS))
@pytest.mark.parametrize("execution", ["eager", "compiled", "graph"])
@pytest.mark.parametrize("raw", [False, True], ids=["values", "bytes"])
@torch.inference_mode()
def test_tokens_and_signals_equal_the_backbones(config: str, execution: str, raw: bool) -> None:
    """``raw``: the picture's bytes reach the tower, as they do on a GPU."""
    subject = Subject.of(Request("ttft", config=config, device="cpu", dtype="float32"))
    backbone, needs = subject.backbone, NEEDS[config]
    ready = [backbone.preprocess(subject.picture(i)) for i in range(2)]
    pixels = [replace(p, data=backbone.picture_bytes(subject.picture(i))) if raw else p for i, p in enumerate(ready)]
    tower = Tower(backbone, pixels[0], execution, needs)
    for index, item in enumerate(pixels):
        (expected,) = backbone.encode([ready[index]], needs)
        for ours in (tower(pixels)[index], tower([item])[0]):
            assert torch.allclose(ours.tokens, expected.tokens, atol=1e-6)
            assert len(ours.deepstack) == len(expected.deepstack)
            assert set(ours.captured) == set(expected.captured)
            for name in needs:
                assert torch.allclose(
                    backbone.vision_signal(name, ours), backbone.vision_signal(name, expected), atol=1e-6
                )


def test_a_question_is_encoded_anew_for_every_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    clip = RandomClip(32, torch.device("cpu"))
    calls = []
    features = clip.model.get_text_features
    monkeypatch.setattr(clip.model, "get_text_features", lambda **inputs: calls.append(1) or features(**inputs))
    assert clip.text("where is the exit").shape == (1, 768)
    clip.text("where is the exit")
    assert len(calls) == 2


def test_signals_are_billed_to_the_selector_that_needs_them() -> None:
    request = Request(
        "ttft", config="tiny-llava", arms=("anchorprune:0.4",), execution="graph", device="cpu", repeats=2, warm_up=1
    )
    (point,) = measure_here(request)["points"]
    assert point["kept_tokens"] == 26
    assert all(ms > 0 for ms in point["samples_ms"]["signals"])
