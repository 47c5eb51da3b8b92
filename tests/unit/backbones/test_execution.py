"""Every way of running language layers and vision tower gives the eager, densely masked answers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from sightline.backbones import execution
from sightline.backbones import language as language_module
from sightline.backbones.attention import branch_attention, library_causal, library_masked
from sightline.backbones.base import Backbone
from sightline.backbones.execution import (
    Captured,
    CapturedVision,
    Execution,
    Mode,
    in_bucket,
    use_execution,
    use_vision_execution,
)
from sightline.backbones.language import Likelihood
from sightline.core.prefix import Encoded, Prefix
from sightline.cost.benchmarks.ttft import TtftRequest
from sightline.cost.measuring_process import measure_here
from sightline.cost.request import Request
from sightline.cost.subject import RandomClip, Subject
from tests.refusals import Refused
from tests.towered import towered

# Every way of running the language layers gives the eager, densely masked answers.


CLOSE = 1e-5


def losses(answers: Sequence[tuple[Likelihood, ...]]) -> torch.Tensor:
    return torch.tensor([[each.loss for each in answer] for answer in answers])


def test_masking_only_the_branches_equals_masking_everything(backbone: Backbone, prefixes: list[Prefix]) -> None:
    """With the model's eager attention, which is shown the whole (S, S) mask."""
    language = backbone.language
    assert [prefix.branches for prefix in prefixes] == [int((prefix.segments > 0).sum()) for prefix in prefixes]
    assert min(prefix.branches for prefix in prefixes) > 0
    batch = language.collate(prefixes)
    mask = language.mask_of(batch)
    assert mask is not None
    assert mask.shape == (len(prefixes), 1, batch.branches, batch.shared + batch.branches)
    assert batch.branches == max(prefix.branches for prefix in prefixes)
    ours = losses(language.score(prefixes))
    assert language.config._attn_implementation == "sdpa", "the model's own is back after scoring"
    language.config._attn_implementation = "eager"
    try:
        assert language.dense
        assert (ours - losses(language.score(prefixes))).abs().max() < CLOSE
    finally:
        language.config._attn_implementation = "sdpa"


def test_grouped_heads_and_branches_against_plain_softmax() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 4, 9, 8), torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 8)
    allowed = torch.ones(9, 9).tril().bool().expand(2, 1, 9, 9).clone()
    allowed[:, :, 8, 7] = False  # the last two rows are branches that do not see each other
    bias = torch.zeros(2, 1, 9, 9).masked_fill(~allowed, torch.finfo(torch.float32).min)
    ours, _ = branch_attention(None, query, key, value, bias[:, :, 7:], scaling=0.3)
    keys, values = key.repeat_interleave(2, dim=1), value.repeat_interleave(2, dim=1)
    expected = torch.softmax(query @ keys.transpose(-1, -2) * 0.3 + bias, dim=-1) @ values
    assert torch.allclose(ours, expected.transpose(1, 2), atol=1e-6)


@pytest.mark.parametrize("mode", ["compiled", "graph"])
def test_a_mode_changes_no_answer_and_is_set_up_once_for_a_shape(
    backbone: Backbone, prefixes: list[Prefix], mode: str, refused: Refused
) -> None:
    language = backbone.language
    expected, said = losses(language.score(prefixes)), language.generate(prefixes[1], 4, frozenset())
    torch._dynamo.reset()
    counter: Any = CompileCounter()
    used = use_execution(language, mode, backend=counter)
    for _ in range(3):
        assert (losses(language.score(prefixes)) - expected).abs().max() < CLOSE
    assert len(used.setup_ms) == 1
    assert counter.frame_count == (mode == "compiled"), "layers share one compiled function"
    assert used.compiled() == ("compiled graphs: 1, of which 0 were found on disk" if mode == "compiled" else "")
    alone = losses([language.score([prefix])[0] for prefix in prefixes])
    assert (alone - expected).abs().max() < CLOSE
    assert language.generate(prefixes[1], 4, frozenset()) == said
    assert len(said) == 4
    refused("unknown execution 'fast'; choose one of eager, compiled, graph", use_execution, language, "fast")


@pytest.mark.parametrize("mode", ["eager", "compiled", "graph"])
def test_the_own_kernel_is_what_attends_and_changes_no_answer(
    backbone: Backbone, prefixes: list[Prefix], mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is used, that is on a GPU; here the library stands in for it, at first truly, then giving nothing."""
    expected = losses(backbone.language.score(prefixes))
    monkeypatch.setattr(type(backbone.language), "own_kernel", True)
    for factor, same in ((1.0, True), (0.0, False)):

        def causal(*given: Any, factor: float = factor) -> torch.Tensor:
            return library_causal(*given) * factor

        def masked(*given: Any, factor: float = factor) -> torch.Tensor:
            return library_masked(*given) * factor

        monkeypatch.setattr("sightline.backbones.attention.causal_attention", causal)
        monkeypatch.setattr("sightline.backbones.attention.masked_attention", masked)
        torch._dynamo.reset()
        counter: Any = CompileCounter()
        use_execution(backbone.language, mode, backend=counter, dynamic=True)
        for _ in range(2):
            assert ((losses(backbone.language.score(prefixes)) - expected).abs().max() < CLOSE) == same
        assert counter.frame_count == (mode == "compiled")  # once, and not again for the second batch


def test_one_code_serves_batches_of_any_size(backbone: Backbone, prefixes: list[Prefix]) -> None:
    """Sixteen prefixes are as many as a head has entries, which must not tie the one to the other."""
    torch._dynamo.reset()
    counter: Any = CompileCounter()
    used = use_execution(backbone.language, "compiled", backend=counter, dynamic=True)
    for many in (prefixes * 4, prefixes, prefixes[1:], prefixes[:2] * 3):
        backbone.language.score(many)
    assert counter.frame_count == 1
    assert len(used.setup_ms) == 1


def test_kernels_that_are_new_to_the_process_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton says so to whoever asked; here a stand-in does, which has the name of its hook alone."""
    runtime = SimpleNamespace(jit_post_compile_hook=None)
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(knobs=SimpleNamespace(runtime=runtime), __spec__=True))
    execution._kernels.cache_clear()
    try:
        before = Execution("compiled", before=execution.compiled_so_far())
        assert not runtime.jit_post_compile_hook(key="", repr="residual[num_warps=4](n: i32)", already_compiled=False)
        runtime.jit_post_compile_hook(key="", repr="residual[num_warps=4](n: i64)", already_compiled=False)
        assert before.compiled() == "kernels compiled or loaded: 2"
    finally:
        execution._kernels.cache_clear()


def test_prefixes_of_alike_length_share_a_bucket_and_see_nothing_of_each_other(
    backbone: Backbone, prefixes: list[Prefix]
) -> None:
    language = backbone.language
    fresh = losses([language.score([prefix])[0] for prefix in prefixes])
    language.executor = captured = Captured(language, lambda *_: torch.empty(0), bucket=4096)
    for order in (range(4), range(3, -1, -1)):  # the first prefix is the longest
        for i in order:
            assert (losses(language.score([prefixes[i]])) - fresh[i]).abs().max() < CLOSE
    language.executor = None
    assert len(captured.execution.setup_ms) == 1
    assert "no CUDA graphs" in captured.execution.note
    batch = language.collate(prefixes)
    wide = in_bucket(batch, batch.shared + 5)  # padded between the shared part and the branches
    assert wide.shared == batch.shared + 5
    assert torch.equal(wide.hidden[:, : batch.shared], batch.hidden[:, : batch.shared])
    assert torch.equal(wide.hidden[:, wide.shared :], batch.hidden[:, batch.shared :])
    assert (wide.segments[:, batch.shared : wide.shared] == -1).all()
    assert all(level.shape[1] == wide.shared - batch.start for level in wide.deepstack)


def test_a_measured_length_is_worked_out_once_per_shape(
    backbone: Backbone, prefixes: list[Prefix], monkeypatch: pytest.MonkeyPatch
) -> None:
    language = backbone.language
    asked: list[tuple[int, int, int]] = []

    def longer(_: object, batch: int, shared: int, branches: int) -> int:
        asked.append((batch, shared, branches))
        return shared + 3

    monkeypatch.setattr(execution, "fastest_length", longer)
    expected = losses(language.score(prefixes))
    language.executor = Captured(language, lambda *_: torch.empty(0), bucket=None)
    for _ in range(2):
        assert (losses(language.score(prefixes)) - expected).abs().max() < CLOSE
    language.executor = None
    batch = language.collate(prefixes)
    assert asked == [(len(prefixes), batch.shared, batch.branches)]


def test_a_single_prefix_is_collated_without_a_copy(backbone: Backbone, prefixes: list[Prefix]) -> None:
    alone = backbone.language.collate(prefixes[1:2])
    assert alone.hidden.data_ptr() == prefixes[1].embeds.data_ptr()
    both = backbone.language.collate(prefixes[1:3])
    assert torch.equal(alone.hidden[0, : alone.shared], both.hidden[0, : alone.shared])
    assert torch.equal(alone.segments[0, alone.shared :], both.segments[0, both.shared :])
    assert alone.counts == both.counts[:1]


def test_recent_texts_are_embedded_once_and_old_ones_forgotten(
    backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    language = backbone.language
    monkeypatch.setattr(language_module, "KEPT_TEXTS", 2)
    language._embedded.clear()
    first = language.embed([3, 4])
    assert language.embed((3, 4)) is first
    language.embed([5])
    language.embed([6])
    assert len(language._embedded) == 2
    again = language.embed([3, 4])
    assert again is not first
    assert torch.equal(again, first)


# Every way of running the vision tower gives the model's own features, and the states that signals are read from.


NEEDS = {
    "tiny-qwen3-vl": frozenset({"vision.key@-1", "vision.received@1", "image.pixels"}),
    "tiny-llava": frozenset({"vision.hidden@-2", "vision.cls_attention@-2", "image.pixels"}),
    "tiny-internvl": frozenset({"image.pixels"}),
}


Seeing = tuple[Subject, frozenset[str]]


@pytest.fixture(params=sorted(NEEDS))
def seeing(request: pytest.FixtureRequest) -> Seeing:
    """A model, and signals to ask its tower for."""
    return Subject.of(Request("ttft", config=request.param, device="cpu", dtype="float32")), NEEDS[request.param]


def same(backbone: Backbone, ours: Encoded, expected: Encoded, needs: frozenset[str]) -> None:
    assert torch.allclose(ours.tokens, expected.tokens, atol=1e-6)
    for level, other in zip(ours.deepstack, expected.deepstack, strict=True):
        assert torch.allclose(level, other, atol=1e-6)
    assert set(ours.captured) == set(expected.captured)
    for name in needs:
        assert torch.allclose(backbone.vision_signal(name, ours), backbone.vision_signal(name, expected), atol=1e-6)


@torch.inference_mode()
def test_the_loop_over_blocks_gives_the_models_own_features(seeing: Seeing) -> None:
    one, _ = seeing
    backbone = one.backbone
    pixels = backbone.preprocess(one.image(0))
    (ours,) = backbone.encode([pixels])
    model, inputs = backbone.model.model, towered(backbone).tower_inputs([pixels])
    extra = {"image_grid_thw": torch.tensor([pixels.grid])} if backbone.axes == 3 else {}
    theirs = model.get_image_features(inputs, return_dict=True, **extra)
    assert torch.equal(ours.tokens, torch.cat([part.flatten(0, -2) for part in theirs.pooler_output]))
    for level, other in zip(ours.deepstack, getattr(theirs, "deepstack_features", ()), strict=True):
        assert torch.equal(level, other if isinstance(other, torch.Tensor) else torch.cat(other))


@pytest.mark.parametrize("mode", ["compiled", "graph"])
@torch.inference_mode()
def test_compiled_blocks_give_the_same_tokens_and_signals(seeing: Seeing, mode: Mode) -> None:
    one, needs = seeing
    backbone = one.backbone
    pixels = [backbone.preprocess(one.image(i)) for i in range(2)]
    expected = [backbone.encode([item], needs)[0] for item in pixels]
    execution = Execution(mode)
    use_vision_execution(backbone, execution, backend="eager", dynamic=False)
    for _ in range(2):
        for ours, plain in zip(backbone.encode(pixels, needs), expected, strict=True):
            same(backbone, ours, plain, needs)
    assert len(execution.setup_ms) == 1
    use_vision_execution(backbone, Execution("eager"))
    (again,) = backbone.encode(pixels[:1], needs)
    assert torch.equal(again.tokens, expected[0].tokens)


@torch.inference_mode()
def test_a_captured_tower_replays_for_every_image_as_values_or_as_bytes(seeing: Seeing) -> None:
    """On a GPU the image's bytes reach the tower."""
    one, needs = seeing
    backbone, tower = one.backbone, towered(one.backbone)
    ready = [backbone.preprocess(one.image(i)) for i in range(2)]
    raw = [replace(pixels, data=tower.image_bytes(one.image(i))) for i, pixels in enumerate(ready)]
    for pixels in (ready, raw):
        see = CapturedVision(tower, pixels[0], needs)
        for index in (0, 1, 0):
            (expected,) = backbone.encode([ready[index]], needs)
            same(backbone, see(pixels[index]), expected, needs)


def test_a_question_is_encoded_anew_and_signals_are_billed_to_the_selector_that_needs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clip = RandomClip(32, torch.device("cpu"))
    calls = []
    features = clip.model.get_text_features
    monkeypatch.setattr(clip.model, "get_text_features", lambda **inputs: calls.append(1) or features(**inputs))
    for _ in range(2):
        assert clip.text("where is the exit").shape == (1, 64), "of a tiny shape"
    assert len(calls) == 2
    request = TtftRequest(
        kind="ttft", config="tiny-llava", arms=("anchorprune:0.4",), execution="graph", device="cpu", repeats=2,
        warm_up=1,
    )  # fmt: skip
    (point,) = measure_here(request)["points"]
    assert point["kept_tokens"] == 26
    assert all(ms > 0 for ms in point["samples_ms"]["signals"])
