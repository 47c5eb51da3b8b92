"""A policy's passes are really run, one call per level, and all of them are billed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from sightline import Budget, Probe
from sightline.answering.answerer import Answered, Answerer
from sightline.answering.scorers.yes_no import YesNo
from sightline.arms.arm import Arm, parse_arm
from sightline.core.prefix import Encoded
from sightline.core.row import Column
from sightline.cost.subject import Subject
from sightline.policies import LevelAnswer, Noticed, Policy, Sight
from tests.refusals import Refused


class Laconic(YesNo):
    """Yes or no, and nothing about how surely."""

    columns: ClassVar[tuple[Column, ...]] = ()


@dataclass(frozen=True)
class Scripted(Policy):
    """Runs as many levels as the script says for each probe."""

    passes: tuple[int, ...] = (1, 2, 3, 2)

    name: ClassVar[str] = "scripted"

    def look(self, sight: Sight) -> Noticed:
        return {"wanted": self.passes[int(sight.probe_id.partition("-")[0])]}

    def decide(self, levels: Sequence[Budget], noticed: Noticed, passes: Sequence[LevelAnswer]) -> Budget | None:
        return None if len(passes) == noticed["wanted"] else levels[len(passes)]


@pytest.fixture
def answerer(subject: Subject) -> Answerer:
    subject.backbone.language.executor = None
    return Answerer(subject.backbone, YesNo())


def scripted(selector: str = "target") -> Arm:
    arm = parse_arm(f"policy:answer_stability:{selector}:0.3/0.5/0.7")
    return replace(arm, policy=Scripted())


def counted(answerer: Answerer, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """Every fixed arm that is launched, with its probes, as they come."""
    launched: list[tuple[str, list[str]]] = []
    launch: Callable[..., Any] = answerer.launch

    def noting(arm: Arm, probes: Sequence[Probe], *rest: Any, **more: Any) -> Any:
        if arm.policy is None:
            launched.append((arm.text, [probe.id for probe in probes]))
        return launch(arm, probes, *rest, **more)

    monkeypatch.setattr(answerer, "launch", noting)
    return launched


def test_those_not_done_are_asked_again_and_the_first_pass_reads_nothing(
    answerer: Answerer, probes: list[Probe], images: list[Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    launched = counted(answerer, monkeypatch)
    collect = answerer.launch(scripted(), probes, images, 16384)
    assert [arm for arm, _ in launched] == ["target:0.3"], "the first pass, before anything is read"
    answers = collect()
    assert launched == [
        ("target:0.3", ["0-0", "1-0", "2-0", "3-0"]),
        ("target:0.5", ["1-0", "2-0", "3-0"]),
        ("target:0.7", ["2-0"]),
    ]
    runs = [answered.spent.levels for answered in answers if answered.spent is not None]
    assert [len(levels) for levels in runs] == [1, 2, 3, 2]


@pytest.mark.parametrize("selector", ["target", "fastv"])
def test_answer_and_mask_are_those_of_the_last_level_and_times_those_of_all(
    answerer: Answerer, probes: list[Probe], images: list[Encoded], selector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[tuple[str, Answered]] = []
    launch: Callable[..., Any] = answerer.launch

    def keeping(arm: Arm, asked: Sequence[Probe], *rest: Any, **more: Any) -> Any:
        collect = launch(arm, asked, *rest, **more)

        def read() -> list[Answered]:
            found: list[Answered] = collect()
            passes.extend((probe.id, answered) for probe, answered in zip(asked, found, strict=True))
            return found

        return read if arm.policy is None else collect

    monkeypatch.setattr(answerer, "launch", keeping)
    answers = answerer.answer(scripted(selector), probes, images)
    for probe, answered in zip(probes, answers, strict=True):
        own = [each for name, each in passes if name == probe.id]
        assert answered.values == own[-1].values
        assert (answered.trace.anchors == own[-1].trace.anchors).all()
        assert answered.language_ms == pytest.approx(sum(each.language_ms for each in own))
        assert answered.trace.select_ms >= sum(each.trace.select_ms for each in own)
        assert answered.trace.materialise_ms == pytest.approx(sum(each.trace.materialise_ms for each in own))
        assert answered.spent is not None
        assert answered.spent.kept == tuple(each.trace.k for each in own)


def test_what_was_looked_at_is_not_selected_again(
    answerer: Answerer, probes: list[Probe], images: list[Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    selected: list[str] = []
    many: Callable[..., Any] = answerer.step.many

    def noting(encoded: Any, prompts: Any, asked: Any, arm: Arm) -> Any:
        selected.append(arm.text)
        return many(encoded, prompts, asked, arm)

    monkeypatch.setattr(answerer.step, "many", noting)
    arm = parse_arm("policy:evidence_saturation:target:0.3/0.5/0.7")
    answers = answerer.answer(arm, probes, images)
    assert selected == ["target:0.3", "target:0.5", "target:0.7"]
    monkeypatch.undo()
    for answered, probe, image in zip(answers, probes, images, strict=True):
        assert answered.spent is not None
        (alone,) = answerer.answer(arm.at(answered.spent.levels[-1]), [probe], [image])
        assert (answered.trace.anchors == alone.trace.anchors).all()
        assert answered.values["margin"] == pytest.approx(alone.values["margin"], abs=1e-4)
        assert answered.trace.select_ms > 0.0


def test_a_policy_has_no_one_prefix_and_needs_a_scorer_that_says_how_sure_it_is(
    answerer: Answerer, probes: list[Probe], images: list[Encoded], refused: Refused, subject: Subject
) -> None:
    refused("name a fixed budget, for example target:0.7", answerer.over, scripted(), probes, images)
    arm = parse_arm("policy:confidence_fallback:target:0.3/0.7:threshold=1")
    refused("margin or answer_loss", Answerer(subject.backbone, Laconic()).answer, arm, probes, images)
