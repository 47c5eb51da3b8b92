"""On a GPU: launching an arm never waits for the device, and the answers are the CPU's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from sightline.arms.arm import parse_arm
from sightline.core.prefix import Encoded
from sightline.core.probe import Probe
from sightline.core.selection import Budget
from sightline.cost.benchmarks.sweep import Decision, SweepRequest, run_engine
from sightline.cost.measuring_process import measure_here
from sightline.cost.request import Request
from sightline.cost.subject import Subject
from sightline.device.transfer import Arriving, on_device
from sightline.errors import SightlineError
from tests.answers import launch_arm, score_arm
from tests.unit.answering.test_launching import Wrong

TINY = ("tiny-qwen3-vl", "tiny-llava", "tiny-internvl")
ARMS = ("full", "target:0.3", "grid:0.3", "random:0.3", "target_grid:0.3", "soft_evidence:0.3", "shuffled:0.3")
PROBES = 6


@pytest.fixture(scope="module", params=TINY)
def config(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def subject(config: str) -> Subject:
    return Subject.of(Request("sweep", config=config, device="cuda", dtype="float32"))


@pytest.fixture(scope="module")
def images(subject: Subject) -> list[Encoded]:
    return [subject.backbone.encode([subject.backbone.preprocess(subject.image(i))])[0] for i in range(PROBES)]


@pytest.fixture(scope="module")
def probes(subject: Subject) -> list[Probe]:
    return [subject.probe(i) for i in range(PROBES)]


@contextmanager
def forbidden_to_wait() -> Iterator[None]:
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("policy", ["preserve", "compact"])
@pytest.mark.parametrize("text", ARMS)
def test_launching_an_arm_does_not_wait(
    subject: Subject, images: list[Encoded], probes: list[Probe], text: str, policy: str
) -> None:
    arm = parse_arm(text)
    expected = score_arm(subject.step, arm, probes, images, policy, 1024)  # type: ignore[arg-type]
    with forbidden_to_wait():
        collect = launch_arm(subject.step, arm, probes, images, policy, 1024)  # type: ignore[arg-type]
    for ours, plain in zip(collect(), expected, strict=True):
        assert ours.anchors.tobytes() == plain.anchors.tobytes()
        assert ours.answer.loss_yes == pytest.approx(plain.answer.loss_yes, abs=1e-4)
        assert min(ours.select_ms, ours.materialise_ms, ours.language_ms) >= 0.0


def test_a_copy_on_its_way_is_not_held_up_by_later_work(subject: Subject) -> None:
    early = torch.arange(1000, device="cuda")
    copy = Arriving(early * 2)
    late = torch.randn(4096, 4096, device="cuda")
    done = torch.cuda.Event()
    for _ in range(200):
        late = late @ late / 4096
    done.record()
    assert torch.equal(copy.read(), torch.arange(1000) * 2)
    assert not done.query(), "reading waited for work that was queued later"
    done.synchronize()


def test_values_arrive_whole(subject: Subject) -> None:
    for size in (3, 100_000):
        values = torch.arange(size)
        assert torch.equal(on_device(values, subject.device).cpu(), values)


@pytest.mark.parametrize(
    ("anchors", "message"), [((0, 1, 10**6), "wrong chose token 1000000"), ((1, 1, 2), "wrong chose a token twice")]
)
def test_a_wrong_selection_is_caught_and_the_device_lives_on(
    subject: Subject, images: list[Encoded], probes: list[Probe], anchors: tuple[int, ...], message: str
) -> None:
    arm = replace(parse_arm("grid:3t"), selector=Wrong(anchors), budget=Budget.tokens(3))
    for policy in ("preserve", "compact"):
        collect = launch_arm(subject.step, arm, probes, images, policy, 1024)
        with pytest.raises(SightlineError, match=message):
            collect()
    torch.cuda.synchronize()
    assert len(score_arm(subject.step, parse_arm("full"), probes, images, "preserve", 1024)) == PROBES


def test_the_engine_decides_as_on_a_cpu(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same random weights on both devices: the CPU's are copied over."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # the patch embedding is a convolution
    arms = ("full", "target:0.3", "grid:0.3", "random:0.3", "protected:0.4", "fastv:0.5")
    rows: dict[str, list[Decision]] = {}
    weights = None
    for device in ("cpu", "cuda"):
        request = SweepRequest(
            "sweep", config=config, device=device, dtype="float32", arms=arms, images=5, shard_images=2, batch_images=2
        )
        subject = Subject.of(request)
        if weights is None:
            weights = subject.backbone.model.state_dict()
        subject.backbone.model.load_state_dict(weights)
        rows[device], _ = run_engine(request, subject, [subject.arm(text, "eager") for text in arms], range(5))
    assert len(rows["cpu"]) == len(rows["cuda"]) == 5 * 2 * len(arms)
    for ours, plain in zip(rows["cuda"], rows["cpu"], strict=True):
        assert (ours.arm, ours.probe) == (plain.arm, plain.probe)
        assert ours.kept == plain.kept
        assert ours.margin == pytest.approx(plain.margin, abs=2e-3)


@pytest.mark.parametrize("execution", ["eager", "compiled", "graph"])
def test_a_sweep_runs(config: str, execution: str) -> None:
    request = SweepRequest(
        "sweep", config=config, device="cuda", arms=("full", "target:0.3", "grid:0.3"), execution=execution,
        images=6, shard_images=3, batch_images=2, one_sample_rows=3,
    )  # fmt: skip
    (point,) = measure_here(request)["points"]
    assert point["extra"]["rows"] == 6 * 2 * 3
    assert point["samples_ms"]["language"][0] > 0
    assert point["samples_ms"]["vision"][0] > 0
