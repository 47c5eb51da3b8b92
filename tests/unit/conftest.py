import pytest
import torch

from sightline.answering.materialise import materialise
from sightline.answering.scorers.yes_no import YesNo
from sightline.backbones.base import Backbone
from sightline.core.prefix import Prefix
from sightline.core.selection import Selection
from sightline.cost.request import Request
from sightline.cost.subject import Subject

TINY = ("tiny-qwen3-vl", "tiny-llava", "tiny-internvl")


@pytest.fixture(scope="session", params=TINY)
def subject(request: pytest.FixtureRequest) -> Subject:
    return Subject.of(Request("prefill", config=request.param, device="cpu", dtype="float32"))


@pytest.fixture
def backbone(subject: Subject) -> Backbone:
    subject.backbone.language.executor = None
    return subject.backbone


@pytest.fixture(autouse=True)
def _memory_for_all(request: pytest.FixtureRequest) -> None:
    """What one test found too large is none of the next one's business."""
    if "subject" in request.fixturenames:
        for limit in request.getfixturevalue("subject").backbone.limits.values():
            limit.most = float("inf")


@pytest.fixture(scope="session")
def prefixes(subject: Subject) -> list[Prefix]:
    """Prefixes of different lengths, with branches: every, every second, third and fifth visual token."""
    (encoded,) = subject.backbone.encode([subject.backbone.preprocess(subject.image(0))])
    prompt = YesNo().prompt(subject.backbone, subject.probe(0))
    return [
        materialise(subject.backbone, encoded, prompt, Selection(torch.arange(0, encoded.n, step)), "preserve")
        for step in (1, 2, 3, 5)
    ]


@pytest.fixture
def plain_percentiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Percentiles however few images differ: for tests that spell out which draws an interval is made from."""
    for name in ("FEW_DIFFER", "MANY_DIFFER"):
        monkeypatch.setattr(f"sightline.statistics.intervals.{name}", 0)
