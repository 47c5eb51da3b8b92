"""Random-weight models have the published shapes, and the stand-in tokenizer makes prompts of the wanted length."""

from __future__ import annotations

import math

import pytest
import torch
import transformers

from sightline.answering.scorers.yes_no import YesNo
from sightline.backbones.images import Pixels
from sightline.cost.machine import attention_sequences, language_flops, vision_flops
from sightline.cost.request import Request
from sightline.cost.shapes import SHAPES, architecture_of, shape_named
from sightline.cost.subject import Subject
from sightline.errors import SightlineError

TINY = ("tiny-qwen3-vl", "tiny-llava", "tiny-internvl")
BILLIONS = {"qwen3-vl-8b": 8.767, "llava-1.5-7b": 7.063, "internvl3.5-8b": 8.528}


@pytest.mark.parametrize("name", sorted(BILLIONS))
def test_published_parameter_counts(name: str) -> None:
    shape = SHAPES[name]
    config = transformers.AutoConfig.for_model(shape.kind, **shape.config)
    with torch.device("meta"):
        model = getattr(transformers, architecture_of(shape).model_class)._from_config(config, dtype=torch.bfloat16)
    assert sum(p.numel() for p in model.parameters()) / 1e9 == pytest.approx(BILLIONS[name], abs=5e-4)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


def test_an_unknown_shape_is_refused_by_name() -> None:
    with pytest.raises(SightlineError, match="unknown shape 'gpt'; choose one of qwen3-vl-8b"):
        shape_named("gpt")


@pytest.fixture(scope="module", params=TINY)
def subject(request: pytest.FixtureRequest) -> Subject:
    return Subject.of(Request("prefill", config=request.param, device="cpu", dtype="float32"))


def test_a_prompt_has_the_wanted_text_tokens_and_two_branches(subject: Subject) -> None:
    prompt = YesNo().prompt(subject.backbone, subject.probe(0))
    assert len(prompt.head) + len(prompt.tail) == 45
    yes, no = prompt.continuations
    assert yes != no
    assert len(prompt.spans["target"]) == 1


def test_random_weights_are_finite_and_not_constant(subject: Subject) -> None:
    (encoded,) = subject.backbone.encode([subject.backbone.preprocess(subject.image(0))])
    assert torch.isfinite(encoded.tokens).all()
    assert encoded.tokens.std() > 0
    prefix = subject.over(subject.arm("full", "eager"), [encoded]).prefix(0)
    hidden = subject.backbone.language.run(subject.backbone.language.collate([prefix])).hidden
    assert torch.isfinite(hidden).all()


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
    assert estimate == pytest.approx(vision.get_total_flops() - patch_embedding(subject, pixels), rel=0.02)


def patch_embedding(subject: Subject, pixels: Pixels) -> float:
    """Products of the convolution that turns patches into vectors."""
    vision = subject.backbone.model.config.vision_config
    edge = vision.patch_size if isinstance(vision.patch_size, int) else vision.patch_size[0]
    values = 3 * edge * edge * getattr(vision, "temporal_patch_size", 1)
    return 2.0 * values * int(vision.hidden_size) * math.prod(pixels.grid)
