"""The engine decides, row by row, what the plain path decides: one image, one probe, one eager float32 forward."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sightline.answering.select_step import all_needs
from sightline.backbones.execution import use_execution
from sightline.cost.benchmarks.sweep import Decision, SweepRequest, run_engine
from sightline.cost.subject import Subject
from tests.answers import score_arm

ARMS = {
    "qwen3vl": ("full", "target:0.2", "grid:0.3", "random:0.3", "tome:0.4", "fastv:0.5"),
    "llava": ("full", "target:0.4", "visionzip:0.3", "divprune:0.3", "fastv:0.5"),
    "internvl": ("full", "target:0.5", "grid:0.3", "soft_evidence:0.5", "pyramiddrop:0.5"),
}
IMAGES = 3


@pytest.mark.parametrize("mode", ["eager", "compiled", "graph"])
@pytest.mark.parametrize("model", sorted(ARMS))
def test_every_row_decides_as_the_plain_path(data: Path, model: str, mode: str) -> None:
    request = SweepRequest(
        "sweep",
        checkpoint=str(data / "tiny" / model),
        device="cpu",
        dtype="float32",
        arms=ARMS[model],
        image_size=(320, 256),
        text_tokens=20,
        batch_images=2,
        batch_tokens=4096,
    )
    subject = Subject.of(request)
    arms = [subject.arm(text, "eager") for text in request.arms]
    plain = {}
    for image in range(IMAGES):
        (encoded,) = subject.backbone.encode([subject.backbone.preprocess(subject.image(image))], all_needs(arms))
        for number in range(request.probes):
            probe = subject.probe(image, number)
            for arm in arms:
                (result,) = score_arm(subject.step, arm, [probe], [encoded], subject.policy, 0)
                margin = result.answer.loss_no - result.answer.loss_yes
                plain[arm.text, probe.id] = Decision(arm.text, probe.id, margin, result.anchors.tobytes())
    torch._dynamo.reset()
    use_execution(subject.backbone.language, mode, backend="eager")
    rows, flops = run_engine(request, subject, arms, range(IMAGES))
    assert len(rows) == len(plain) == IMAGES * request.probes * len(arms)
    assert flops > 0
    for row in rows:
        expected = plain[row.arm, row.probe]
        assert row.yes == expected.yes
        assert row.kept == expected.kept
        assert row.margin == pytest.approx(expected.margin, abs=1e-4)
