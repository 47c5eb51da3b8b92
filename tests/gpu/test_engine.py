"""Audits on a GPU: one and several in a process, by the general route too."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from threading import Event, Thread

import pytest
import torch

from sightline import Budget, Probe, Run, SightlineError, audit, load_backbone
from sightline.answering.materialise import SelectStep
from sightline.arms import parse_arm
from sightline.auditing.config import read_config
from sightline.checks.doctor import examine
from sightline.core.prefix import Encoded
from sightline.cost.benchmarks.sweep import SweepRequest
from sightline.cost.measuring_process import measure_here
from sightline.cost.request import Request
from sightline.cost.subject import Subject
from sightline.device.graphs import capture
from sightline.device.work import Arriving, on_device
from sightline.probes import ProbeSet, write_probes
from tests.answers import Scored, launch_arm, score_arm
from tests.contract.cast import probe
from tests.gpu.conftest import forbidden_to_wait
from tests.unit.answering.test_launching import Wrong
from tests.unit.backbones.named import QUESTION, TARGET, photograph
from tests.unit.cost.subjects import Decision, decisions
from tests.zoo import NAMED

# On a GPU: launching an arm never waits for the device, and the answers are the CPU's.


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


@pytest.mark.parametrize("policy", ["preserve", "compact"])
@pytest.mark.parametrize("text", ARMS)
def test_launching_an_arm_does_not_wait(
    subject: Subject, images: list[Encoded], probes: list[Probe], text: str, policy: str
) -> None:
    arm = parse_arm(text)
    expected = score_arm(subject.step, arm, probes, images, policy, 1024)
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
            kind="sweep", config=config, device=device, dtype="float32", arms=arms, images=5, shard_images=2,
            batch_images=2,
        )  # fmt: skip
        subject = Subject.of(request)
        if weights is None:
            weights = subject.backbone.model.state_dict()
        subject.backbone.model.load_state_dict(weights)
        rows[device], _ = decisions(request, subject, [subject.arm(text, "eager") for text in arms], 5)
    assert len(rows["cpu"]) == len(rows["cuda"]) == 5 * 2 * len(arms)
    for ours, plain in zip(rows["cuda"], rows["cpu"], strict=True):
        assert (ours.arm, ours.probe) == (plain.arm, plain.probe)
        assert ours.kept == plain.kept
        assert ours.margin == pytest.approx(plain.margin, abs=2e-3)


@pytest.mark.parametrize("execution", ["eager", "compiled", "graph"])
def test_a_sweep_runs(config: str, execution: str) -> None:
    request = SweepRequest(
        kind="sweep", config=config, device="cuda", arms=("full", "target:0.3", "grid:0.3"), execution=execution,
        images=6, shard_images=3, batch_images=2, one_sample_rows=3,
    )  # fmt: skip
    (point,) = measure_here(request)["points"]
    assert point["extra"]["rows"] == 6 * 2 * 3
    assert point["samples_ms"]["language"][0] > 0
    assert point["samples_ms"]["vision"][0] > 0


# On a GPU: audits follow one another in one process, and a capture does not mind what other threads do meanwhile.


AUDITS = 3


def open_probes(images: Path) -> ProbeSet:
    """One about every image: enough that images are still being prepared when a step is captured."""
    asked = {
        "question": "What is written on the sign?", "label": "open", "target_text": "", "source_text": "",
        "regions": ((0.1, 0.1, 0.3, 0.2),), "roles": ("answer_value",), "answers": ("exit",), "task": "textvqa",
    }  # fmt: skip
    shown = sorted(images.rglob("*.jpg"))
    return ProbeSet(
        tuple(Probe(f"open-{each.stem}", str(each.relative_to(images)), each.stem, **asked) for each in shown)  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("execution", ["compiled", "graph"])
@pytest.mark.parametrize("name", ["qwen3vl", "llava"])
def test_open_audits_follow_one_another_in_one_process(
    data: Path, tmp_path: Path, name: str, execution: str, capsys: pytest.CaptureFixture[str]
) -> None:
    images = data / "mini_textocr"
    write_probes(tmp_path / "probes.jsonl", open_probes(images))

    def audited(number: int) -> Run:
        settings = {
            "model": str(data / "tiny" / name), "probes": str(tmp_path / "probes.jsonl"), "images": str(images),
            "arms": ["full", "target:0.3", "random:0.3"], "out": str(tmp_path / f"run-{number}"), "device": "cuda",
            "dtype": "bfloat16", "execution": execution, "shard_images": 2, "matched_controls": False,
        }  # fmt: skip
        return audit(read_config(None, settings))

    texts = [audited(number).frame().set_index(["arm", "probe_id"])["answer"] for number in range(AUDITS)]
    assert len(texts[0]) == 3 * len(open_probes(images).probes)
    for later in texts[1:]:
        assert later.equals(texts[0])
    with capsys.disabled():
        print(f"\n{name}, {execution}: {AUDITS} audits of {len(texts[0])} rows in one process, all rows alike")


def test_a_capture_goes_on_while_another_thread_asks_for_pinned_memory() -> None:
    device = torch.device("cuda")
    weight, states = torch.randn(2048, 2048, device=device), torch.ones(64, 2048, device=device)
    over, pinned = Event(), [0]

    def pin() -> None:
        held = []
        for size in count(1):  # always larger than before, so that none comes from what was freed
            if over.is_set():
                return
            held.append(torch.empty(size * 65_536, dtype=torch.uint8, pin_memory=True))
            held = held[-4:]
            pinned[0] += 1

    def call() -> torch.Tensor:
        made = states
        before = pinned[0]
        for _ in range(100):
            made = torch.tanh(made @ weight)
        while other.is_alive() and pinned[0] < before + 2:
            pass  # the thread is sure to have asked during the capture
        return made

    other = Thread(target=pin, daemon=True)
    other.start()
    try:
        replay, _ = capture(call, device)
    finally:
        over.set()
        other.join()
    expected = states
    for _ in range(100):
        expected = torch.tanh(expected @ weight)
    assert torch.equal(replay(), expected)


# On a GPU: every named architecture passes its checks there, and its answers are the CPU's.


GENERAL_ARMS = ("full", "random:0.3", "grid:0.3", "divprune:0.5", "random:0.4/tile")
GENERAL_PROBES = [
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
    for arm in GENERAL_ARMS:
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
    return {arm: score_arm(step, parse_arm(arm), GENERAL_PROBES, encoded, policy, 16384) for arm in GENERAL_ARMS}
