"""Memory that really runs out: the allocator is given less than a batch needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from sightline.arms.arm import parse_arm
from sightline.auditing.loop import encode_all
from sightline.cost.request import Request
from sightline.cost.subject import Subject
from tests.answers import score_arm

CUDA = torch.device("cuda")
PROBES = 512


@pytest.fixture
def _all_memory_afterwards() -> Iterator[None]:
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


@pytest.mark.usefixtures("_all_memory_afterwards")
def test_a_batch_that_does_not_fit_is_scored_in_parts() -> None:
    subject = Subject.of(Request("prefill", config="tiny-llava", device="cuda", dtype="float32"))
    backbone, arm = subject.backbone, parse_arm("full")
    (image,) = encode_all(backbone, [backbone.preprocess(subject.image(0))])
    images, probes = [image] * PROBES, [subject.probe(0, number) for number in range(PROBES)]
    score_arm(subject.step, arm, probes[:2], images[:2], "preserve", 10**9)  # libraries set up their workspaces
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    plenty = score_arm(subject.step, arm, probes, images, "preserve", 10**9)
    needed = torch.cuda.max_memory_reserved() - before
    torch.cuda.empty_cache()
    allowed = torch.cuda.memory_reserved() + needed // 3
    torch.cuda.set_per_process_memory_fraction(allowed / torch.cuda.get_device_properties(CUDA).total_memory)
    scarce = score_arm(subject.step, arm, probes, images, "preserve", 10**9)
    assert backbone.limits["tokens"].most < float("inf")
    for ours, other in zip(scarce, plenty, strict=True):
        assert ours.answer.loss_yes == pytest.approx(other.answer.loss_yes, abs=1e-4)
        assert (ours.anchors == other.anchors).all()
