"""Random-weight models have the published shapes, prompts the wanted length, and what does not fit is refused."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import transformers

from sightline.answering.scorers.yes_no import YesNo
from sightline.backbones.images import Pixels
from sightline.cost import shapes
from sightline.cost.benchmarks.prefill import PrefillRequest
from sightline.cost.machine import attention_sequences, language_flops, vision_flops
from sightline.cost.measuring_process import measure_here
from sightline.cost.request import Request
from sightline.cost.shapes import SHAPES, architecture_of, host_memory, random_backbone, shape_named, weight_bytes
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


CPU = torch.device("cpu")


def test_a_model_that_does_not_fit_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "host_memory", lambda: 20 * 2**30)
    request = PrefillRequest(kind="prefill", config="llava-1.5-7b", device="cpu")
    with pytest.raises(SightlineError) as refused:
        measure_here(request)
    assert str(refused.value) == (
        "llava-1.5-7b needs 26.3 GiB for its weights alone, and this machine has 20.0 GiB available; "
        "use a smaller shape or dtype, or a GPU"
    )


def test_weights_are_counted_as_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = random_backbone("tiny-llava", device=CPU, dtype=torch.float32).model
    counted = sum(each.numel() * 4 for each in made.parameters())
    assert weight_bytes("tiny-llava", torch.float32) == counted
    assert weight_bytes("tiny-llava", torch.bfloat16) == counted // 2
    monkeypatch.setattr(shapes, "host_memory", lambda: counted)
    random_backbone("tiny-llava", device=CPU, dtype=torch.float32)
    monkeypatch.setattr(shapes, "host_memory", lambda: counted - 1)
    with pytest.raises(SightlineError, match=r"tiny-llava needs 0\.0 GiB"):
        random_backbone("tiny-llava", device=CPU, dtype=torch.float32)


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_available_is_what_the_system_says_or_what_a_container_leaves(tmp_path: Path) -> None:
    assert host_memory(tmp_path) is None
    write(tmp_path, proc__meminfo="MemTotal:       100 kB\nMemFree: 10 kB\nMemAvailable:    50 kB\n")
    assert host_memory(tmp_path) == 50 * 1024
    group = {"sys__fs__cgroup__memory.max": "max\n", "sys__fs__cgroup__memory.current": "1024\n"}
    write(tmp_path, **group)
    assert host_memory(tmp_path) == 50 * 1024
    write(tmp_path, **{**group, "sys__fs__cgroup__memory.max": "4096\n"})
    assert host_memory(tmp_path) == 3072
    former = {"limit_in_bytes": "2048", "usage_in_bytes": "4096"}
    write(tmp_path, **{f"sys__fs__cgroup__memory__memory.{name}": text for name, text in former.items()})
    assert host_memory(tmp_path) == 0
