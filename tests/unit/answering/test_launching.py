"""Launching an arm reads nothing back; what was deferred is checked when it is read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from sightline import Budget, Probe, Selection, Selector, TokenView
from sightline.answering.materialise import SelectStep
from sightline.arms.arm import Arm, parse_arm
from sightline.backbones.execution import use_execution
from sightline.backbones.language import Pending
from sightline.core.prefix import Encoded
from sightline.core.selection_rules import KeptTokens
from sightline.cost.benchmarks.sweep import SweepRequest
from sightline.cost.subject import Subject
from sightline.device.work import Arriving, on_device
from tests.answers import Scored, launch_arm, score_arm
from tests.refusals import Refused
from tests.unit.answering.conftest import image_of
from tests.unit.cost.subjects import Decision, decisions


@pytest.fixture
def queueing(subject: Subject) -> SelectStep:
    """The select step as it works on a GPU: alike probes in one call, values checked when they are read."""
    step = SelectStep(subject.backbone)
    assert not step.queues
    step.queues = True
    return step


@dataclass(frozen=True)
class Wrong(Selector):
    """Returns the anchors it was given, whatever was asked for."""

    anchors: tuple[int, ...]

    name: ClassVar[str] = "wrong"

    def select(self, view: TokenView, k: int) -> Selection:
        return Selection(torch.tensor(self.anchors, device=view.tokens.device))


def wrong_arm(*anchors: int) -> Arm:
    return replace(parse_arm("grid:3t"), selector=Wrong(anchors), budget=Budget.tokens(3))


def facts(scored: Sequence[Scored]) -> list[Any]:
    return [(s.answer, s.anchors.tobytes(), s.lineage.tobytes(), s.merges, s.k, s.sequence_pruned) for s in scored]


def test_a_wrong_selection_is_caught_when_it_is_read(
    subject: Subject, queueing: SelectStep, images: list[Encoded], probes: list[Probe], refused: Refused
) -> None:
    for anchors, message in [
        ((1, 1, 2), "wrong chose a token twice"),
        ((-1, 1, 2), "wrong returned a token without a source but no mix"),
    ]:
        arm = wrong_arm(*anchors)
        refused(message, launch_arm(queueing, arm, probes, images))
        refused(message, launch_arm, subject.step, arm, probes, images)  # on a CPU at once
        refused(message, queueing, images[0], subject.prompt, probes[0], arm)  # whoever asks for one gets it checked
    kept = KeptTokens([4, 4], [Selection(torch.tensor([0, 3])), Selection(torch.tensor([0, 4]))])
    refused("wrong chose token 4 of 4", kept.read, "wrong")
    refused("wrong returned 2 tokens where the budget is 3", launch_arm, queueing, wrong_arm(0, 1), probes, images)


def test_launching_reads_no_answer(
    subject: Subject, images: list[Encoded], probes: list[Probe], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    answers, arrive = Pending.read, Arriving.read
    monkeypatch.setattr(Pending, "read", lambda self: (read.append("answers"), answers(self))[1])
    monkeypatch.setattr(Arriving, "read", lambda self: (read.append("copy"), arrive(self))[1])
    collect = launch_arm(subject.step, parse_arm("target:0.3"), probes, images)
    assert read == []
    assert len(collect()) == len(probes)
    assert "answers" in read


@pytest.mark.parametrize("text", ["full", "target:0.3", "grid:0.3", "random:0.3", "protected:0.4", "divprune:0.3"])
def test_selecting_together_changes_no_row(
    subject: Subject, queueing: SelectStep, images: list[Encoded], probes: list[Probe], text: str
) -> None:
    arm = parse_arm(text)
    alone = score_arm(subject.step, arm, probes, images, "compact")
    together = score_arm(queueing, arm, probes, images, "compact")
    assert facts(together) == facts(alone)
    if arm.selector.batches:
        assert len({scored.select_ms for scored in together}) == 1, "equal shares of one call"


def test_images_of_different_sizes_are_not_selected_together(
    subject: Subject, queueing: SelectStep, probes: list[Probe], monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone, sizes = subject.backbone, [(128, 64), (128, 64), (64, 192)]
    pixels = [backbone.preprocess(subject.image(i).resize(size)) for i, size in enumerate(sizes)]
    images = [backbone.encode([item])[0] for item in pixels]
    arm, counts = parse_arm("divprune:0.5"), list[int]()
    select_many = cast(Any, type(arm.selector)).select_many

    def counted(self: Any, views: Sequence[TokenView], k: int) -> list[Selection]:
        counts.append(len(views))
        return select_many(self, views, k)

    monkeypatch.setattr(type(arm.selector), "select_many", counted)
    together = score_arm(queueing, arm, probes[:3], images)
    alike = {image.layout for image in images}
    assert sorted(counts) == ([3] if len(alike) == 1 else [1, 2])
    assert [scored.k for scored in together] == [arm.budget.resolve(image.n) for image in images]


def test_merged_tokens_bring_their_lineage() -> None:
    mix = torch.tensor([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    kept = KeptTokens([4, 3], [Selection(torch.tensor([0, 3]), mix), Selection(torch.tensor([1]))])
    (anchors, lineage, shares), (plain, same, whole) = kept.read("made-up")
    assert anchors.tolist() == [True, False, False, True]
    assert lineage.tolist() == [True, True, False, True]
    assert shares is not None
    assert shares.tolist() == [0.5, 0.5, 0.0, 1.0]
    assert plain.tolist() == same.tolist() == [False, True, False]
    assert whole is None, "what is only deleted is kept whole"


def test_values_for_the_device_are_whole_numbers_or_tensors() -> None:
    cpu, cells = torch.device("cpu"), torch.rand(3, 4, dtype=torch.float64)
    assert on_device([3, 1], cpu).dtype == torch.long
    assert on_device([], cpu).shape == (0,)
    assert on_device(cells, cpu) is cells


ARMS = {
    "qwen3vl": ("full", "target:0.2", "grid:0.3", "random:0.3", "tome:0.4", "fastv:0.5"),
    "llava": ("full", "target:0.4", "visionzip:0.3", "divprune:0.3", "fastv:0.5"),
    "internvl": ("full", "target:0.5", "grid:0.3", "soft_evidence:0.5", "pyramiddrop:0.5"),
}
IMAGES = 3


@pytest.mark.parametrize("mode", ["eager", "compiled", "graph"])
@pytest.mark.parametrize("model", sorted(ARMS))
def test_every_row_decides_as_the_plain_path(data: Path, model: str, mode: str) -> None:
    sizes: dict[str, Any] = {"image_size": (320, 256), "text_tokens": 20, "batch_images": 2, "batch_tokens": 4096}
    sizes |= {"device": "cpu", "dtype": "float32"}
    request = SweepRequest(kind="sweep", checkpoint=str(data / "tiny" / model), arms=ARMS[model], **sizes)
    subject = Subject.of(request)
    arms = [subject.arm(text, "eager") for text in request.arms]
    plain = {}
    for image in range(IMAGES):
        encoded = image_of(subject, image, arms)
        for number in range(request.probes):
            probe = subject.probe(image, number)
            for arm in arms:
                (result,) = score_arm(subject.step, arm, [probe], [encoded], subject.policy, batch_tokens=0)
                margin = result.answer.loss_no - result.answer.loss_yes
                plain[arm.text, probe.id] = Decision(arm.text, probe.id, margin, result.anchors.tobytes())
    torch._dynamo.reset()
    counter: Any = CompileCounter()
    use_execution(subject.backbone.language, mode, backend=counter, dynamic=True)
    rows, flops = decisions(request, subject, arms, IMAGES)
    assert len(rows) == len(plain) == IMAGES * request.probes * len(arms)
    assert flops > 0
    assert mode != "compiled" or counter.frame_count == 1, "one code serves whole prefixes and those that are cut"
    for row in rows:
        expected = plain[row.arm, row.probe]
        assert row.yes == expected.yes
        assert row.kept == expected.kept
        assert row.margin == pytest.approx(expected.margin, abs=1e-4)
