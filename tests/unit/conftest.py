import shutil
from pathlib import Path

import pytest
import torch
from benchmarks.large_runs import Plan, write_large_run

from sightline.answering.materialise import materialise
from sightline.answering.scorers.yes_no import YesNo
from sightline.backbones.base import Backbone
from sightline.core.prefix import Prefix
from sightline.core.selection import Selection
from sightline.cost.request import Request
from sightline.cost.subject import Subject
from tests.unit.report.fake_open_run import make_open_run
from tests.unit.report.fake_run import make_run

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


# Run folders that no test changes: whoever wants one with other arms, answers or damage makes it, or takes a copy.

PLAN = Plan(rows=600, arms=("full", "target:0.3", "grid:0.3"), probes_per_image=5, images_per_shard=6)
"""200 probes on 40 images in 7 shards."""


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8 arms over 20 images."""
    return make_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Full and Target over 3 images."""
    return make_run(tmp_path_factory.mktemp("small_runs") / "run", images=3, arms=("full", "target:0.3"))


@pytest.fixture
def small_copy(small_run: Path, tmp_path: Path) -> Path:
    """A copy of it to be changed."""
    return Path(shutil.copytree(small_run, tmp_path / "run"))


@pytest.fixture(scope="session")
def open_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10 arms over two open questions on each of 18 pages."""
    return make_open_run(tmp_path_factory.mktemp("open_runs") / "run")


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of several shards."""
    return write_large_run(tmp_path_factory.mktemp("large_runs") / "finished", PLAN)


@pytest.fixture
def run_copy(finished: Path, tmp_path: Path) -> Path:
    """A copy of it to be changed."""
    return Path(shutil.copytree(finished, tmp_path / "run"))
