"""Cuts between the layers of any decoder, held against the plain way: no token leaves, masks hide those that were cut.

The plain way is the unmodified model, image in, logits out, whose layers behind a cut are handed other masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from sightline.backbones import Backbone
from sightline.backbones.base import model_logits
from sightline.backbones.cuts import LayerCuts
from sightline.backbones.general import without_head
from sightline.backbones.own_decoder import OwnDecoder
from sightline.core.prefix import Prefix
from sightline.core.selection import LayerSelector, LayerState, Selection
from sightline.selectors.vtw import VTW
from tests.unit.backbones.named import QUESTION, architecture, photograph, prefix_of

OWN = (
    "llama4", "muse_glimmer", "step3p7", "gemma4_unified", "cohere2_vision", "granite4_vision",
    "gemma3", "aya_vision", "exaone4_5", "gemma4", "gemma4_e2b", "paligemma", "cohere_compass", "qwen3_5",
)  # fmt: skip
LOOP = (
    "mistral3", "qwen2_5_vl", "glm4v", "deepseek_vl", "got_ocr2", "minimax_m3_vl", "kimi_k25", "perception_lm",
    "fast_vlm", "phi4_multimodal",
)  # fmt: skip
UNCUT = ("gemma3n", "lfm2_vl")
"""Cannot be cut between layers, or not at those of these tests; pruned all the same."""
OTHERWISE = ("qwen3_5", "llama4", "muse_glimmer", "step3p7")
"""Layers without weights, without a cosine and a sine, with a gate behind attention."""
AFTER = (0, 2)
TOLERANCE = 2e-5


@dataclass(frozen=True)
class Spread(LayerSelector):
    """Tokens spread evenly over those that are left, at two layers; what it was shown is kept."""

    seen: list[LayerState]
    name: ClassVar[str] = "spread"
    needs: ClassVar[frozenset[str]] = frozenset({"lm.input", "lm.normed"})

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {AFTER[0]: 2 * n // 3, AFTER[1]: k}

    def cut(self, state: LayerState, k: int) -> Selection:
        self.seen.append(state)
        return Selection(torch.arange(k) * len(state.image) // k)


@dataclass(frozen=True)
class Attentive(Spread):
    """Also reads what the layer attends with."""

    needs: ClassVar[frozenset[str]] = frozenset({
        "lm.input", "lm.normed", "lm.attention", "lm.attention_last", "lm.key", "lm.value", "lm.bare_key", "lm.parts",
        "lm.next_attention", "lm.next_attention_last", "lm.next_query", "lm.next_key",
    })  # fmt: skip


@dataclass(frozen=True)
class Followed(Spread):
    """A word of its own is taken through the layers behind the prompt."""

    word: Tensor | None = None
    needs: ClassVar[frozenset[str]] = frozenset({"lm.scout"})

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {**dict.fromkeys(range(AFTER[1]), n), AFTER[1]: k}

    def scout(self, layer: int, like: Tensor) -> Tensor:
        assert self.word is not None
        return self.word if layer == 0 else torch.zeros_like(self.word)


class Stage:
    """A checkpoint that has read one image; attention takes masks as they are."""

    def __init__(self, name: str, zoo: Callable[[str], Path]) -> None:
        self.backbone: Backbone = architecture(name, zoo, attention="eager")
        self.language = self.backbone.language
        self.image = photograph()
        (self.encoded,) = self.backbone.encode([self.backbone.preprocess(self.image)], frozenset())
        self.n, self.decoder = self.encoded.n, without_head(self.backbone.model.get_decoder())
        self.prompt = self.backbone.prompt(QUESTION, "EXIT")
        self.prefix: Prefix = prefix_of(self.backbone, self.encoded, self.prompt, torch.arange(self.encoded.n))

    def cuts(self, selector: LayerSelector) -> LayerCuts:
        schedule = selector.schedule(self.n, self.n // 3, len(self.decoder.layers))
        return LayerCuts(selector, schedule, [self.prefix], [self.encoded.layout], [""])

    def logits(self, cutter: LayerCuts | None, prefix: Prefix | None = None) -> Tensor:
        """(T, V) of the text behind the image."""
        with torch.inference_mode():
            hidden = self.language.read([prefix or self.prefix], cutter)[0, -len(self.prompt.shared) :]
            found: Tensor = self.language.head(self.language.norm(hidden))
        return found

    def plainly(self, kept: dict[int, Tensor]) -> Tensor:
        """The same with the tokens ``kept`` past each layer; all others are hidden behind it."""
        ids, head = (*self.prompt.head, *self.prompt.shared), len(self.prompt.head)
        with hidden_behind(self.decoder, self.prefix, kept), torch.inference_mode():
            return model_logits(self.backbone, self.image, ids, head)[-len(self.prompt.shared) :]


@contextmanager
def hidden_behind(decoder: Any, prefix: Prefix, kept: dict[int, Tensor]) -> Iterator[None]:
    """While open, layers behind a cut do not see what it took; a window counts the slots that are left."""
    places = prefix.start + (torch.arange(prefix.k) if prefix.places is None else prefix.places)
    image = torch.zeros(prefix.prompt_length, dtype=torch.bool)
    image[places] = True
    kinds = getattr(decoder.config, "layer_types", None) or ["full_attention"] * len(decoder.layers)
    window = getattr(decoder.config, "sliding_window", None) or prefix.prompt_length
    chunk = getattr(decoder.config, "attention_chunk_size", None) or prefix.prompt_length
    slots = torch.arange(prefix.prompt_length)

    def left_at(layer: int) -> Tensor:
        stays = ~image
        done = [tokens for after, tokens in kept.items() if after < layer]
        stays[places[done[-1]] if done else places] = True
        return stays

    def hide(layer: int, own: Callable[..., Tensor]) -> Callable[..., Tensor]:
        stays = left_at(layer)

        def masked(hidden: Tensor, *given: Any, **named: Any) -> Tensor:
            mask = named["attention_mask"]
            rank = stays.cumsum(0)
            seen = mask[0, 0] == 0 if mask.dtype != torch.bool else mask[0, 0]
            if kinds[layer] == "sliding_attention":
                causal = slots <= slots[:, None]
                beyond = seen & ~(causal & (slots[:, None] - slots < window))  # tokens that see each other both ways
                seen = (causal & (rank[:, None] - rank < window)) | beyond
            if kinds[layer] == "chunked_attention":
                seen = (slots <= slots[:, None]) & ((rank[:, None] - 1) // chunk == (rank - 1) // chunk)
            seen = (seen & stays) | torch.eye(len(seen), dtype=torch.bool)
            blocked = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
            return own(hidden, *given, **{**named, "attention_mask": blocked[None, None]})

        def taken_out(hidden: Tensor, *given: Any, **named: Any) -> Tensor:
            """A recurrence has no mask: it is run on what is left."""
            whole = hidden.clone()
            whole[:, stays] = own(hidden[:, stays], *given, **{**named, "attention_mask": None})
            return whole

        return taken_out if kinds[layer] in ("linear_attention", "conv") else masked

    for layer, module in enumerate(decoder.layers):
        module.forward = hide(layer, module.forward)
    try:
        yield
    finally:
        for module in decoder.layers:
            del module.forward


@pytest.fixture(scope="module")
def stage(zoo: Callable[[str], Path]) -> Callable[[str], Stage]:
    return cache(lambda name: Stage(name, zoo))


@pytest.mark.parametrize("name", [*OWN, *LOOP, *UNCUT])
def test_a_shortened_prefix_says_what_masks_say(stage: Callable[[str], Stage], name: str) -> None:
    here = stage(name)
    kept = torch.arange(here.n // 3) * here.n // (here.n // 3)
    found = here.logits(None, prefix_of(here.backbone, here.encoded, here.prompt, kept))
    assert (found - here.plainly({-1: kept})).abs().max() < TOLERANCE
    assert (found - here.logits(None)).abs().max() > 100 * TOLERANCE, "the rest is missed"


@pytest.mark.parametrize("name", [*OWN, *LOOP])
def test_a_cut_decoder_says_what_masks_say(stage: Callable[[str], Stage], name: str) -> None:
    here = stage(name)
    assert isinstance(here.language, OwnDecoder) == (name in OWN)
    everything, whole = dict.fromkeys(AFTER, torch.arange(here.n)), here.logits(None)
    assert (whole - here.plainly(everything)).abs().max() < TOLERANCE, "nothing cut: the model itself"
    selector = Spread([])
    cutter = here.cuts(selector)
    found = here.logits(cutter)
    first = torch.arange(2 * here.n // 3) * here.n // (2 * here.n // 3)
    expected = here.plainly({AFTER[0]: first, AFTER[1]: cutter.anchors[0]})
    assert (found - expected).abs().max() < TOLERANCE
    assert (found - whole).abs().max() > 100 * TOLERANCE, "the cut is felt"
    assert [len(state.image) for state in selector.seen] == [here.n, 2 * here.n // 3]


@pytest.mark.parametrize("name", [*OWN, *LOOP])
def test_a_cut_may_leave_nothing(stage: Callable[[str], Stage], name: str) -> None:
    here = stage(name)
    cutter = here.cuts(VTW())
    expected = here.plainly({max(cutter.schedule): torch.arange(0)})
    assert (here.logits(cutter) - expected).abs().max() < TOLERANCE
    assert [len(cutter.anchors[0]), *cutter.counts.values()] == [0, 0]
    assert len(here.language.generate(here.prefix, 2, frozenset(), here.cuts(VTW()))) == 2


@pytest.mark.parametrize("name", ["gemma3", "qwen3_5", *LOOP])
def test_cuts_go_on_from_what_was_selected_before(stage: Callable[[str], Stage], name: str) -> None:
    """The plain way hides from every layer what was not selected, and from later ones what was cut."""
    here = stage(name)
    first = torch.arange(here.n // 2) * 2
    prefix = prefix_of(here.backbone, here.encoded, here.prompt, first)
    selector = Spread([])
    schedule = selector.schedule(len(first), len(first) // 3, len(here.decoder.layers))
    cutter = LayerCuts(
        selector, schedule, [prefix], [here.encoded.layout], [""], selections=[Selection(first)], layers=len(schedule)
    )
    with torch.inference_mode():
        hidden = here.language.read([prefix], cutter)[0, -len(here.prompt.shared) :]
        found = here.language.head(here.language.norm(hidden))
    (before, after), second = selector.seen, cutter.anchors[0]
    assert torch.equal(before.source, first)
    assert set(second.tolist()) < set(after.source.tolist()) < set(first.tolist())
    expected = here.plainly({-1: first, AFTER[0]: after.source, AFTER[1]: second})
    assert (found - expected).abs().max() < TOLERANCE
    assert torch.equal(cutter.parts[0], torch.eye(here.n, dtype=torch.bool)[second])


@pytest.mark.parametrize("name", [name for name in OWN if name not in OTHERWISE])
def test_what_a_layer_attends_with_makes_its_output(stage: Callable[[str], Stage], name: str) -> None:
    """Weights times values, through the layer's own output projection, are what its attention gave."""
    here = stage(name)
    selector = Attentive([])
    attention = here.decoder.layers[0].self_attn
    made = list[Tensor]()
    hook = attention.o_proj.register_forward_pre_hook(lambda module, given: made.append(given[0]))
    here.logits(here.cuts(selector))
    hook.remove()
    state = selector.seen[0]
    weights, values = state.signals["lm.attention"], state.signals["lm.value"]
    attended = weights @ values.repeat_interleave(len(weights) // len(values), dim=0)
    length = len(state.hidden)
    assert torch.allclose(attended.transpose(0, 1).flatten(1), made[0][0, :length], atol=1e-5)
    assert torch.allclose(state.signals["lm.attention_last"], weights[:, -1])
    read, given = state.signals["lm.parts"][0]
    with torch.inference_mode():
        assert torch.allclose(attention.o_proj(attended.transpose(0, 1).flatten(1)), given, atol=1e-5)
        made_of = attention.v_proj(read).view(length, len(values), -1).transpose(0, 1)
    assert torch.allclose(made_of, values, atol=1e-5) or name.startswith("gemma4"), "which norms its values"
    assert state.signals["lm.parts"].shape == (2, 2, *state.hidden.shape)
    ahead, keys = state.signals["lm.next_attention"], state.signals["lm.next_key"]
    assert torch.allclose(ahead[:, -1], state.signals["lm.next_attention_last"], atol=1e-6)
    assert keys.shape[0] * (len(ahead) // len(keys)) == len(state.signals["lm.next_query"])
    scaled = name in ("paligemma", "granite4_vision")
    assert torch.equal(state.signals["lm.input"], here.prefix.embeds[:length]) or scaled
    assert not torch.equal(state.signals["lm.bare_key"], state.signals["lm.key"])


@pytest.mark.parametrize("name", [*OWN, *LOOP, *UNCUT, "inkling_mm_model", "pp_chart2table", "video_llava"])
def test_answers_are_those_of_the_unmodified_model(stage: Callable[[str], Stage], name: str) -> None:
    """Token by token: its own forward over image, question and the answer so far."""
    here, head = stage(name), len(stage(name).prompt.head)
    ids = [*here.prompt.head, *here.prompt.shared]
    for token in here.language.generate(here.prefix, 4, frozenset()):
        assert token == int(model_logits(here.backbone, here.image, tuple(ids), head)[-1].argmax())
        ids.append(token)


@pytest.mark.parametrize("name", ["gemma3", "gemma4_e2b", "qwen3_5"])
def test_answers_go_on_behind_a_cut(stage: Callable[[str], Stage], name: str) -> None:
    """The first token is what reading the prompt through the same cuts gives; the choice is made once."""
    here, selector = stage(name), Spread([])
    said = here.language.generate(here.prefix, 3, frozenset(), here.cuts(selector))
    assert len(said) == 3
    assert len(selector.seen) == len(AFTER)
    assert said[0] == int(here.logits(here.cuts(Spread([])))[-1].argmax())


@pytest.mark.parametrize("name", [name for name in (*OWN, *LOOP) if name not in ("gemma4_e2b", "qwen3_5")])
def test_a_token_of_a_methods_own_is_read_as_a_word_there_would_be(stage: Callable[[str], Stage], name: str) -> None:
    here, prefix = stage(name), stage(name).prefix
    behind = prefix.positions[:, -1:].max() + 1 + torch.zeros_like(prefix.positions[:, -1:])
    longer = replace(
        prefix,
        embeds=torch.cat([prefix.embeds, here.language.embed([7])]),
        positions=torch.cat([prefix.positions, behind], dim=1),
        segments=torch.cat([prefix.segments, prefix.segments[-1:]]),
    )
    read, made = list[Tensor](), list[Tensor]()
    hooks = [
        here.decoder.layers[0].register_forward_pre_hook(
            lambda module, given, named: read.append((given[0] if given else named["hidden_states"])[0, -1]),
            with_kwargs=True,
        ),
        here.decoder.layers[AFTER[1]].register_forward_hook(
            lambda module, given, out: made.append((out[0] if isinstance(out, tuple) else out)[0, -1])
        ),
    ]
    with torch.inference_mode():
        here.language.read([longer])
    for hook in hooks:
        hook.remove()
    selector = Followed([], word=read[0])
    cutter = here.cuts(selector)
    found = here.logits(cutter)
    assert (cutter._scouts[0][0] - made[0]).abs().max() < TOLERANCE
    assert selector.seen[0].signals["lm.scout"].shape[1] == prefix.prompt_length + 1
    kinds = getattr(here.decoder.config, "layer_types", None) or ["full_attention"] * len(here.decoder.layers)
    if kinds[AFTER[1]] == "full_attention" and name not in OTHERWISE:
        attentive = Attentive([])
        schedule = Followed([]).schedule(here.n, here.n // 3, len(here.decoder.layers))
        asked = replace(longer, prompt_length=longer.prompt_length + 1)
        with torch.inference_mode():
            here.language.read([asked], LayerCuts(attentive, schedule, [asked], [here.encoded.layout], [""]))
        weights = attentive.seen[-1].signals["lm.attention_last"]
        assert torch.allclose(selector.seen[0].signals["lm.scout"].softmax(dim=-1), weights, atol=1e-5)
    other = here.logits(here.cuts(Followed([], word=-read[0])))
    assert (found - other).abs().max() < TOLERANCE, "no other token sees it"


@pytest.mark.parametrize("name", ["gemma3", "paligemma", "qwen2_5_vl"])
def test_tokens_of_a_methods_own_are_read_alike_alone_and_in_a_batch(stage: Callable[[str], Stage], name: str) -> None:
    here = stage(name)
    longer = here.backbone.prompt("What does the sign say, and where does it stand?", "EXIT")
    prefixes = [here.prefix, prefix_of(here.backbone, here.encoded, longer, torch.arange(here.n))]
    selector = Followed([], word=here.language.embed([7])[0])
    schedule = selector.schedule(here.n, here.n // 3, len(here.decoder.layers))

    def followed(group: list[Prefix]) -> list[tuple[Tensor, Tensor]]:
        cutter = LayerCuts(selector, schedule, group, [here.encoded.layout] * len(group), [""] * len(group))
        with torch.inference_mode():
            here.language.read(group, cutter)
        return [cutter._scouts[b] for b in range(len(group))]

    together, alone = followed(prefixes), [followed([prefix])[0] for prefix in prefixes]
    for pair in zip(together, alone, strict=True):
        for batched, single in zip(*pair, strict=True):
            assert torch.allclose(batched, single, atol=1e-4)
    assert not torch.allclose(alone[0][0], alone[1][0], atol=1e-4), "it sees its own prompt"


def test_a_decoder_or_a_layer_that_cannot_be_cut_says_why(stage: Callable[[str], Stage]) -> None:
    by_id = "its layers look tokens up by their ids, and a token of a method's own has none"
    weightless = "its layer 0 has no attention weights (layers that have: 3)"
    rows: list[tuple[str, set[str], list[int], str | None]] = [
        ("gemma4_e2b", {"lm.scout"}, [0], by_id),
        ("qwen3_5", {"lm.hidden"}, [0, 1, 2], None),
        ("qwen3_5", {"lm.attention_last"}, [3], None),
        ("qwen3_5", {"lm.next_attention_last"}, [2], None),
        ("qwen3_5", {"lm.attention_last"}, [0], weightless),
        ("glm5_next", set(), [0], "its layers hand on several states of every token"),
        ("qwen4_exp", {"lm.normed"}, [0], "its decoder has no final norm"),
    ]
    for name, needs, layers, reason in rows:
        assert stage(name).language.uncut(needs, layers) == reason
