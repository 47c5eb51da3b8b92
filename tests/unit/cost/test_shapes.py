"""Models of published shapes with random weights, what does not fit, and one continuation per forward over them."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from sightline.answering.scorers.yes_no import YesNo
from sightline.arms.arm import parse_arm
from sightline.backbones.base import processor_inputs
from sightline.cost import shapes
from sightline.cost.benchmarks.prefill import PrefillRequest
from sightline.cost.benchmarks.sweep import SweepRequest, evenly, time_one_sample
from sightline.cost.machine import attention_sequences, language_flops, vision_flops
from sightline.cost.measuring_process import measure_here
from sightline.cost.one_sample import ANSWERS, OneAnswer, one_loss
from sightline.cost.request import Request
from sightline.cost.shapes import SHAPES, architecture_of, host_memory, random_backbone, shape_named, weight_bytes
from sightline.cost.subject import Subject
from tests.answers import score_arm
from tests.refusals import Refused
from tests.towered import towered

TINY = ("tiny-qwen3-vl", "tiny-llava", "tiny-internvl")
BILLIONS = {"qwen3-vl-8b": 8.767, "llava-1.5-7b": 7.063, "internvl3.5-8b": 8.528}


def test_published_parameter_counts() -> None:
    for name, billions in BILLIONS.items():
        shape = SHAPES[name]
        config = transformers.AutoConfig.for_model(shape.kind, **shape.config)
        with torch.device("meta"):
            model = getattr(transformers, architecture_of(shape).model_class)._from_config(config, dtype=torch.bfloat16)
        assert sum(p.numel() for p in model.parameters()) / 1e9 == pytest.approx(billions, abs=5e-4)
        assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


@pytest.fixture(scope="module", params=TINY)
def subject(request: pytest.FixtureRequest) -> Subject:
    return Subject.of(Request("prefill", config=request.param, device="cpu", dtype="float32"))


def test_a_prompt_has_the_wanted_tokens_and_random_weights_are_finite_and_not_constant(subject: Subject) -> None:
    prompt = YesNo().prompt(subject.backbone, subject.probe(0))
    assert len(prompt.head) + len(prompt.tail) == 45
    yes, no = prompt.continuations
    assert yes != no
    assert len(prompt.spans["target"]) == 1
    (encoded,) = subject.backbone.encode([subject.backbone.preprocess(subject.image(0))])
    assert torch.isfinite(encoded.tokens).all()
    assert encoded.tokens.std() > 0
    prefix = subject.over(subject.arm("full", "eager"), [encoded]).prefix(0)
    hidden = subject.backbone.language.run(subject.backbone.language.collate([prefix])).hidden
    assert torch.isfinite(hidden).all()
    ours = towered(subject.backbone).tower_inputs([subject.backbone.preprocess(subject.image(0))])
    assert torch.equal(processor_inputs(subject.backbone, subject.image(0))["pixel_values"], ours)


def test_estimated_operations_match_a_count_of_the_calls(subject: Subject) -> None:
    """With eager attention every product is visible to torch's counter, both triangles of a causal one included."""
    from torch.utils.flop_counter import FlopCounterMode

    name = next(name for name in TINY if SHAPES[name].kind == subject.backbone.model.config.model_type)
    subject = Subject.of(Request("prefill", config=name, device="cpu", dtype="float32", attention="eager"))
    backbone, language = subject.backbone, subject.backbone.language
    pixels = backbone.preprocess(subject.image(0))
    with FlopCounterMode(display=False) as vision:
        (encoded,) = backbone.encode([pixels])
    prefix = subject.over(subject.arm("full", "eager"), [encoded]).prefix(0)
    batch = language.collate([prefix])
    with FlopCounterMode(display=False) as counted:
        language.run(batch)
    length = prefix.embeds.shape[0]
    width = backbone.model.config.text_config.num_attention_heads * language.layers[0].self_attn.head_dim
    future = 2.0 * width * length * (length - 1) * len(language.layers)
    # The rotary table and the patch embedding are left out of the estimates.
    assert language_flops(backbone, length) + future == pytest.approx(counted.get_total_flops(), rel=1e-3)
    estimate = vision_flops(backbone, attention_sequences(backbone, pixels), encoded.n)
    assert estimate < vision.get_total_flops()
    tower = backbone.model.config.vision_config
    edge = tower.patch_size if isinstance(tower.patch_size, int) else tower.patch_size[0]
    values = 3 * edge * edge * getattr(tower, "temporal_patch_size", 1)
    patches = 2.0 * values * int(tower.hidden_size) * math.prod(pixels.grid)
    assert estimate == pytest.approx(vision.get_total_flops() - patches, rel=0.02)


CPU = torch.device("cpu")


def test_a_model_that_does_not_fit_is_refused_unmade(monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    monkeypatch.setattr(shapes, "host_memory", lambda: 20 * 2**30)
    request = PrefillRequest(kind="prefill", config="llava-1.5-7b", device="cpu")
    refused("llava-1.5-7b needs 26.3 GiB for its weights alone", measure_here, request)
    made = random_backbone("tiny-llava", device=CPU, dtype=torch.float32).model
    counted = sum(each.numel() * 4 for each in made.parameters())
    assert weight_bytes("tiny-llava", torch.float32) == counted
    assert weight_bytes("tiny-llava", torch.bfloat16) == counted // 2
    monkeypatch.setattr(shapes, "host_memory", lambda: counted)
    random_backbone("tiny-llava", device=CPU, dtype=torch.float32)
    monkeypatch.setattr(shapes, "host_memory", lambda: counted - 1)
    refused("tiny-llava needs 0.0 GiB", random_backbone, "tiny-llava", device=CPU, dtype=torch.float32)
    refused("unknown shape 'gpt'; choose one of qwen3-vl-8b", shape_named, "gpt")


def test_available_is_what_the_system_says_or_what_a_container_leaves(tmp_path: Path) -> None:
    assert host_memory(tmp_path) is None
    group = tmp_path / "sys" / "fs" / "cgroup"
    for folder in (tmp_path / "proc", group / "memory"):
        folder.mkdir(parents=True)
    (tmp_path / "proc" / "meminfo").write_text("MemTotal:       100 kB\nMemFree: 10 kB\nMemAvailable:    50 kB\n")
    assert host_memory(tmp_path) == 50 * 1024
    (group / "memory.current").write_text("1024\n")
    for most, left in (("max\n", 50 * 1024), ("4096\n", 3072)):
        (group / "memory.max").write_text(most)
        assert host_memory(tmp_path) == left
    for name, text in (("limit_in_bytes", "2048"), ("usage_in_bytes", "4096")):
        (group / "memory" / f"memory.{name}").write_text(text)
    assert host_memory(tmp_path) == 0


# One continuation per forward, as a plain script does it, and the same losses as both in one forward.


def test_one_continuation_has_the_loss_of_both_together(subject: Subject) -> None:
    probe, pixels = subject.probe(0), subject.backbone.preprocess(subject.image(0))
    values = towered(subject.backbone).tower_inputs([pixels])
    for arm in map(parse_arm, ("full", "target:0.3", "fastv:0.5")):
        (encoded,) = subject.backbone.encode([pixels], arm.selector.needs)
        (together,) = score_arm(subject.step, arm, [probe], [encoded], subject.policy, 0)
        alone = [one_loss(subject, arm, probe, pixels, values, f" {word}") for word in ("yes", "no")]
        assert alone == pytest.approx([together.answer.loss_yes, together.answer.loss_no], abs=1e-5)
        assert alone[0] != pytest.approx(alone[1], abs=1e-5)


def test_the_sequence_is_the_prompt_and_one_answer(subject: Subject) -> None:
    probe = subject.probe(0)
    arm, prompt = parse_arm("target:0.3"), YesNo().prompt(subject.backbone, probe)
    (encoded,) = subject.backbone.encode([subject.backbone.preprocess(subject.image(0))])
    prefix = subject.answering(OneAnswer(" no")).over(arm, [probe], [encoded]).prefix(0)
    k = arm.budget.resolve(encoded.n)
    assert prefix.embeds.shape[0] == len(prompt.head) + k + len(prompt.shared) + len(prompt.continuations[1]) - 1
    assert prefix.prompt_length == len(prompt.head) + k + len(prompt.tail)
    assert prefix.full_length == len(prompt.head) + encoded.n + len(prompt.tail)
    assert int(prefix.segments.max()) == 0
    assert len(prefix.reads) == 1


def test_one_continuation_about_a_smaller_image_is_the_models_own_at_fewer_pixels() -> None:
    subject = Subject.of(SweepRequest(kind="sweep", config="tiny-qwen3-vl", device="cpu", dtype="float32"))
    arm, probe, image = parse_arm("resize:0.3"), subject.probe(0), subject.image(0)
    pixels = subject.backbone.preprocess(image, budget=arm.image_budget)
    values = processor_inputs(subject.backbone.under(pixels.options), image)["pixel_values"]
    (encoded,) = subject.backbone.encode([pixels])
    (together,) = score_arm(subject.step, arm, [probe], [encoded], subject.policy, 0)
    assert one_loss(subject, arm, probe, pixels, values, " yes") == pytest.approx(together.answer.loss_yes, abs=1e-5)


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
    warmed: list[str] = []
    monkeypatch.setattr("sightline.cost.one_sample.one_loss", lambda _, arm, *rest: warmed.append(arm.text))
    samples = time_one_sample(request, subject, [parse_arm(text) for text in arms])
    assert warmed == [text for text in arms for _ in ANSWERS] * 2
    assert len(samples["one_sample"]) == 3


def test_shards_are_few_and_even() -> None:
    for count, sizes in ((100, [50, 50]), (3, [3]), (131, [43, 44, 44])):
        shards = list(evenly(range(count), 64))
        assert [len(shard) for shard in shards] == sizes
        assert [i for shard in shards for i in shard] == list(range(count))
