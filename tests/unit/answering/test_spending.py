"""A policy's passes are really run, one call per level, and all of them are billed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar
from unittest.mock import Mock

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
    return replace(parse_arm(f"policy:answer_stability:{selector}:0.3/0.5/0.7"), policy=Scripted())


@pytest.mark.parametrize("selector", ["target", "fastv"])
def test_those_not_done_are_asked_again_and_the_last_answer_counts_with_the_times_of_all(
    answerer: Answerer, probes: list[Probe], images: list[Encoded], selector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[tuple[str, list[str]]] = []
    passes: list[tuple[str, Answered]] = []
    launch: Callable[..., Any] = answerer.launch

    def keeping(arm: Arm, asked: Sequence[Probe], *rest: Any, **more: Any) -> Any:
        collect = launch(arm, asked, *rest, **more)
        if arm.policy is not None:
            return collect
        launched.append((arm.text, [probe.id for probe in asked]))

        def read() -> list[Answered]:
            found: list[Answered] = collect()
            passes.extend((probe.id, answered) for probe, answered in zip(asked, found, strict=True))
            return found

        return read

    monkeypatch.setattr(answerer, "launch", keeping)
    collect = answerer.launch(scripted(selector), probes, images, 16384)
    assert [arm for arm, _ in launched] == [f"{selector}:0.3"], "the first pass, before anything is read"
    answers = collect()
    asked = {"0.3": ["0-0", "1-0", "2-0", "3-0"], "0.5": ["1-0", "2-0", "3-0"], "0.7": ["2-0"]}
    assert launched == [(f"{selector}:{level}", names) for level, names in asked.items()]
    for probe, answered in zip(probes, answers, strict=True):
        own = [each for name, each in passes if name == probe.id]
        assert answered.values == own[-1].values
        assert (answered.trace.anchors == own[-1].trace.anchors).all()
        assert answered.language_ms == pytest.approx(sum(each.language_ms for each in own))
        assert answered.trace.select_ms >= sum(each.trace.select_ms for each in own)
        assert answered.trace.materialise_ms == pytest.approx(sum(each.trace.materialise_ms for each in own))
        assert answered.spent is not None
        assert answered.spent.kept == tuple(each.trace.k for each in own)
        assert len(answered.spent.levels) == len(own)


def test_what_was_looked_at_is_not_selected_again(
    answerer: Answerer, probes: list[Probe], images: list[Encoded], monkeypatch: pytest.MonkeyPatch
) -> None:
    many = Mock(wraps=answerer.step.many)
    monkeypatch.setattr(answerer.step, "many", many)
    arm = parse_arm("policy:evidence_saturation:target:0.3/0.5/0.7")
    answers = answerer.answer(arm, probes, images)
    assert [call.args[-1].text for call in many.call_args_list] == ["target:0.3", "target:0.5", "target:0.7"]
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
