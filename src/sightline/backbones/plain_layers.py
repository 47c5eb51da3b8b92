"""Whether our loop over a decoder's layers gives what the decoder gives: looked at, then measured on a few tokens."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from sightline.backbones.attention import attending_as
from sightline.backbones.language import Batch, LanguageModel, call_layer

PARTS = ("layers", "norm", "rotary_emb", "embed_tokens")
TOKENS = 5
"""Length of the sequence that both read."""
TOLERANCE = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Largest difference of one layer's output, as a share of its largest value: a few roundings of the precision."""
UNDERSTOOD = frozenset(
    {"attention_mask", "scaling", "dropout", "is_causal", "position_ids", "position_embeddings", "use_cache"}
)
"""What attention may be told; told anything else, a layer attends in a way of its own (a window, a cap, a sink)."""
LISTENING = "sightline_listening"


def unlike_the_loop(body: Any, text_model: Any, axes: int) -> str | None:
    """None where our loop runs the layers as the model does, else the reason in words."""
    config = text_model.config
    missing = [part for part in PARTS if not hasattr(text_model, part)]
    if missing:
        return f"its decoder has no {missing[0]}"
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"]) - {"full_attention"}
    if kinds:
        return f"it has layers of type {', '.join(sorted(kinds))}"
    if "token_type_ids" in inspect.signature(body.forward).parameters:
        return "its mask depends on token types: tokens of an image see each other"
    if not all(hasattr(layer, "self_attn") and hasattr(layer, "input_layernorm") for layer in text_model.layers):
        return "not every layer is attention behind a norm"
    if any("position_embeddings" not in inspect.signature(layer.forward).parameters for layer in text_model.layers):
        return "its layers make their own positions"
    try:
        with torch.inference_mode():
            told, difference = _measured(text_model, axes)
    except Exception as error:  # whatever keeps the loop from running is a reason not to
        said = str(error).strip().splitlines() or [""]
        return f"our loop cannot run its layers ({type(error).__name__}: {said[0][:80]})"
    if told:
        return f"its layers attend with {', '.join(sorted(told))}"
    allowed = TOLERANCE.get(text_model.dtype, 3e-2)
    if not difference <= allowed:
        return f"our loop over its layers gives something else (by {difference:.1e} of the largest value)"
    return None


def _measured(text_model: Any, axes: int) -> tuple[set[str], float]:
    """What attention was told that we do not understand, and how far the loop is from the decoder.

    Every layer is called on what the decoder gave it, and what it gave must be what the layer before made: rounding
    does not pile up over layers, so a deep decoder in half precision is judged as strictly as a shallow one.
    """
    weight = text_model.embed_tokens.weight
    ids = torch.arange(TOKENS, device=weight.device) % weight.shape[0]
    embedded = text_model.embed_tokens(ids)[None]
    positions = torch.arange(TOKENS, device=weight.device).expand(axes, 1, -1)
    calls: list[tuple[Tensor, Tensor]] = []
    with _watching(text_model.layers, calls):
        expected = text_model(
            inputs_embeds=embedded,
            position_ids=positions if axes == 3 else positions[0],
            attention_mask=torch.ones(1, TOKENS, dtype=torch.long, device=weight.device),
            use_cache=False,
        ).last_hidden_state
    language = LanguageModel(text_model, torch.nn.Identity(), axes)
    segments = torch.zeros(1, TOKENS, dtype=torch.long, device=weight.device)
    batch = Batch(embedded, positions, segments, (), 0, [0])
    told: set[str] = set()
    before, apart = embedded, list[float]()
    with _listening(text_model.config, told):
        rotary, mask = language.rotary(embedded, positions), batch.mask()
        for layer, (given, made) in zip(text_model.layers, calls, strict=True):
            apart += [_apart(before, given), _apart(call_layer(layer, given, rotary, mask), made)]
            before = made
    apart.append(_apart(language.norm(before), expected))
    return told, max(apart)


def _apart(found: Tensor, expected: Tensor) -> float:
    """Largest difference, as a share of the largest value; infinite where it is no number."""
    share = float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-12))
    return math.inf if math.isnan(share) else share


@contextmanager
def _watching(layers: Any, calls: list[tuple[Tensor, Tensor]]) -> Iterator[None]:
    """While open, what every layer is given and what it makes of it is noted."""

    def note(layer: Any, given: Any, named: Any, made: Any) -> None:
        calls.append((given[0] if given else named["hidden_states"], made))

    hooks = [layer.register_forward_hook(note, with_kwargs=True) for layer in layers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _listening(config: Any, told: set[str]) -> Iterator[None]:
    """While open, layers attend step by step, and what they tell attention is noted."""
    from transformers import AttentionInterface

    from sightline.backbones.attention import dense_attention

    def listen(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **how: Any) -> Any:
        told.update(name for name, given in how.items() if given is not None and name not in UNDERSTOOD)
        return dense_attention(module, query, key, value, attention_mask, how.get("scaling"))

    AttentionInterface.register(LISTENING, listen)
    with attending_as(config, LISTENING):
        yield
