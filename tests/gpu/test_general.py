"""On a GPU: every named architecture passes its checks there, and its answers are the CPU's."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

from sightline.answering.select_step import SelectStep
from sightline.arms.arm import parse_arm
from sightline.backbones import load_backbone
from sightline.checks.doctor import examine
from tests.answers import Scored, score_arm
from tests.contract.cast import probe
from tests.unit.backbones.named import QUESTION, TARGET, photograph
from tests.zoo import NAMED

ARMS = ("full", "random:0.3", "grid:0.3", "divprune:0.5", "random:0.4/tile")
PROBES = [
    probe("one", QUESTION, TARGET, ((0.2, 0.2, 0.4, 0.3), (0.6, 0.5, 0.8, 0.7))),
    probe("two", QUESTION, TARGET, ()),
]


@pytest.fixture(autouse=True)
def _whole_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions in float32 proper: by default cuDNN rounds their factors to ten bits."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("model", NAMED)
def test_every_check_passes(zoo: Callable[[str], Path], model: str, dtype: str) -> None:
    examination = examine(str(zoo(model)), device="cuda", dtype=dtype)
    assert [check for check in examination.checks if not check.passed] == []


@pytest.mark.parametrize("policy", ["preserve", "compact"])
@pytest.mark.parametrize("model", NAMED)
def test_answers_are_the_cpus(zoo: Callable[[str], Path], model: str, policy: str) -> None:
    on_cpu, on_gpu = (answers(str(zoo(model)), device, policy) for device in ("cpu", "cuda"))
    for arm in ARMS:
        for ours, plain in zip(on_gpu[arm], on_cpu[arm], strict=True):
            assert ours.anchors.tobytes() == plain.anchors.tobytes(), arm
            assert ours.answer.loss_yes == pytest.approx(plain.answer.loss_yes, abs=1e-3), arm
            assert ours.answer.loss_no == pytest.approx(plain.answer.loss_no, abs=1e-3), arm


@cache
def answers(folder: str, device: str, policy: str) -> dict[str, list[Scored]]:
    """By arm, over two images of different sizes."""
    backbone = load_backbone(folder, dtype="float32", device=device)
    images = [backbone.preprocess(image) for image in (photograph(200, 130), photograph(90, 140, seed=4))]
    encoded = [backbone.encode([one])[0] for one in images]
    step = SelectStep(backbone)
    return {arm: score_arm(step, parse_arm(arm), PROBES, encoded, policy, 16384) for arm in ARMS}  # type: ignore[arg-type]
