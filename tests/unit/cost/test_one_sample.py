"""One continuation per forward, as a plain script does it, and the same losses as both in one forward."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sightline.answering.scorers.yes_no import YesNo
from sightline.arms.arm import parse_arm
from sightline.backbones.base import processor_inputs
from sightline.cost.benchmarks.sweep import SweepRequest, evenly, time_one_sample
from sightline.cost.one_sample import ANSWERS, OneAnswer, one_loss
from sightline.cost.subject import Subject
from sightline.errors import SightlineError
from tests.answers import score_arm
from tests.towered import towered

ARMS = ("full", "target:0.3", "fastv:0.5")


@pytest.fixture(scope="module", params=["tiny-qwen3-vl", "tiny-llava", "tiny-internvl"])
def subject(request: pytest.FixtureRequest) -> Subject:
    return Subject.of(SweepRequest(kind="sweep", config=request.param, device="cpu", dtype="float32"))


@pytest.mark.parametrize("text", ARMS)
def test_one_continuation_has_the_loss_of_both_together(subject: Subject, text: str) -> None:
    arm, probe = parse_arm(text), subject.probe(0)
    pixels = subject.backbone.preprocess(subject.image(0))
    values = towered(subject.backbone).tower_inputs([pixels])
    (encoded,) = subject.backbone.encode([pixels], arm.selector.needs)
    (together,) = score_arm(subject.step, arm, [probe], [encoded], subject.policy, 0)
    assert one_loss(subject, arm, probe, pixels, values, " yes") == pytest.approx(together.answer.loss_yes, abs=1e-5)
    assert one_loss(subject, arm, probe, pixels, values, " no") == pytest.approx(together.answer.loss_no, abs=1e-5)
    assert together.answer.loss_yes != pytest.approx(together.answer.loss_no, abs=1e-5)


def test_one_continuation_about_a_smaller_image_is_the_models_own_at_fewer_pixels() -> None:
    subject = Subject.of(SweepRequest(kind="sweep", config="tiny-qwen3-vl", device="cpu", dtype="float32"))
    arm, probe, image = parse_arm("resize:0.3"), subject.probe(0), subject.image(0)
    pixels = subject.backbone.preprocess(image, budget=arm.image_budget)
    values = processor_inputs(subject.backbone.under(pixels.options), image)["pixel_values"]
    (encoded,) = subject.backbone.encode([pixels])
    (together,) = score_arm(subject.step, arm, [probe], [encoded], subject.policy, 0)
    assert one_loss(subject, arm, probe, pixels, values, " yes") == pytest.approx(together.answer.loss_yes, abs=1e-5)


def test_the_sequence_is_the_prompt_and_one_answer(subject: Subject) -> None:
    arm, prompt = parse_arm("target:0.3"), YesNo().prompt(subject.backbone, subject.probe(0))
    (encoded,) = subject.backbone.encode([subject.backbone.preprocess(subject.image(0))])
    prefix = subject.answering(OneAnswer(" no")).over(arm, [subject.probe(0)], [encoded]).prefix(0)
    k = arm.budget.resolve(encoded.n)
    assert prefix.embeds.shape[0] == len(prompt.head) + k + len(prompt.shared) + len(prompt.continuations[1]) - 1
    assert prefix.prompt_length == len(prompt.head) + k + len(prompt.tail)
    assert prefix.full_length == len(prompt.head) + encoded.n + len(prompt.tail)
    assert int(prefix.segments.max()) == 0
    assert len(prefix.reads) == 1


def test_every_row_takes_two_forwards_of_one_sequence(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    request = SweepRequest(kind="sweep", config="tiny-llava", arms=("full", "target:0.3"), one_sample_rows=4, warm_up=0)
    model = subject.backbone.model.model
    forward, features = model.language_model.forward, model.get_image_features
    forwards: list[int] = []
    encoded: list[int] = []

    def counted(*, inputs_embeds: Any, **others: Any) -> Any:
        forwards.append(len(inputs_embeds))
        return forward(inputs_embeds=inputs_embeds, **others)

    def seen(*values: Any, **others: Any) -> Any:
        encoded.append(1)
        return features(*values, **others)

    monkeypatch.setattr(model.language_model, "forward", counted)
    monkeypatch.setattr(model, "get_image_features", seen)
    samples = time_one_sample(request, subject, [parse_arm(text) for text in request.arms])
    assert forwards == encoded == [1] * 8
    whole, part = samples["one_sample"], samples["one_sample_preprocess"]
    assert len(whole) == len(part) == 4
    assert all(0 < less < more for less, more in zip(part, whole, strict=True))


def test_all_arms_are_warmed_up(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    arms = ("full", "target:0.3", "grid:0.3")
    request = SweepRequest(kind="sweep", config="tiny-llava", arms=arms, one_sample_rows=2, warm_up=1)
    seen: list[str] = []
    monkeypatch.setattr("sightline.cost.one_sample.one_loss", lambda _, arm, *rest: seen.append(arm.text))
    samples = time_one_sample(request, subject, [parse_arm(text) for text in arms])
    assert seen == [text for text in arms for _ in ANSWERS] * 2
    assert len(samples["one_sample"]) == 3


def test_the_processors_values_are_those_of_the_audit(subject: Subject) -> None:
    image = subject.image(0)
    ours = towered(subject.backbone).tower_inputs([subject.backbone.preprocess(image)])
    assert torch.equal(processor_inputs(subject.backbone, image)["pixel_values"], ours)


def test_shards_are_few_and_even() -> None:
    request = SweepRequest(kind="sweep", config="tiny-llava", shard_images=64)
    assert [len(shard) for shard in evenly(range(100), request.shard_images)] == [50, 50]
    assert [len(shard) for shard in evenly(range(3), request.shard_images)] == [3]
    assert [i for shard in evenly(range(131), request.shard_images) for i in shard] == list(range(131))
    with pytest.raises(SightlineError, match="--shard-images 0: must be at least 1"):
        SweepRequest(kind="sweep", config="tiny-llava", shard_images=0)
