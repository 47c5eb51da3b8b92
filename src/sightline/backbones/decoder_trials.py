"""Trials of a decoder on a few tokens: what its output head does, whether our loop over its layers gives the same."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sightline.backbones.attention import attending_as, dense_attention
from sightline.backbones.batches import Batch
from sightline.backbones.language import LanguageModel, call_layer
from sightline.errors import SightlineError, first_line

LAYER_TOKENS = 5
"""Length of the sequence that a decoder is tried on."""
LAYER_TOLERANCE = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Largest difference of one layer's output, as a share of its largest value: a few roundings of the precision."""


def per_layer(config: Any) -> bool:
    """Whether every layer of a decoder reads a table of its own by the ids of tokens."""
    return bool(getattr(config, "hidden_size_per_layer_input", 0))


# The output head as the model itself applies it: a matrix, and what some models do to its logits behind it.

HEAD_TOKENS = 5
"""Length of the sequence that both ways read."""
HEAD_TOLERANCE = 1e-3
"""Largest difference, as a share of the largest logit: far below what a cap or a scale changes."""
CAP = "final_logit_softcapping"
SCALES = {"logit_scale": 1, "output_multiplier": 1, "logits_scaling": -1, "logits_mup_width_multiplier": -1}
"""Settings that logits are multiplied (1) or divided (-1) by."""


class AdjustedHead(nn.Module):
    """An output head and what the model does to its logits."""

    def __init__(self, head: nn.Module, adjusted: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.head, self.adjusted = head, adjusted

    def forward(self, hidden: Tensor) -> Tensor:
        return self.adjusted(self.head(hidden))


def output_head(model: Any, body: Any) -> Any:
    """What turns the last hidden states of ``body`` into the logits of ``model``, tried out on a few tokens.

    Besides the matrix alone, a scale, a cap c tanh(x / c) and both are known, by what the configuration calls them. A
    model that does anything else is refused, and so is one with such a setting that cannot be asked without an image.
    """
    head = model.get_output_embeddings()
    config = model.config.get_text_config()
    known = {name: getattr(config, name) for name in (CAP, *SCALES) if getattr(config, name, None) not in (None, 1.0)}
    try:
        with torch.inference_mode():
            logits, hidden = _asked(model, body)
            found = head(hidden)
    except Exception as error:  # whatever a model of somebody else needs beside embeddings
        if known:
            raise SightlineError(
                f"{type(model).__name__} changes its logits ({', '.join(known)}) and cannot be asked how: "
                f"{type(error).__name__}"
            ) from error
        return head
    factor = math.prod(known[name] ** power for name, power in SCALES.items() if name in known)
    ways: list[Callable[[Tensor], Tensor] | None] = [None]
    if factor != 1:
        ways.append(lambda logits: logits * factor)
    if CAP in known:  # it shows little where logits are small: what fits best is taken, not what fits
        ways.append(lambda logits: torch.tanh(logits / known[CAP]) * known[CAP])
        ways.append(lambda logits: torch.tanh(logits * factor / known[CAP]) * known[CAP])
    far = [relative_difference((found if way is None else way(found)).float(), logits.float()) for way in ways]
    if min(far) > (HEAD_TOLERANCE if found.dtype == torch.float32 else 10 * HEAD_TOLERANCE):
        raise SightlineError(f"{type(model).__name__}: its output head does more than multiply, cap or scale")
    best = ways[far.index(min(far))]
    return head if best is None else AdjustedHead(head, best)


def _asked(model: Any, body: Any) -> tuple[Tensor, Tensor]:
    """(1, T, V) the model's logits of a few tokens, and (1, T, D) what its head reads."""
    embedding = model.get_input_embeddings()
    ids = torch.arange(HEAD_TOKENS, device=embedding.weight.device)[None]
    read = {"input_ids": ids} if per_layer(model.config.get_text_config()) else {"inputs_embeds": embedding(ids)}
    given = {**read, "attention_mask": torch.ones_like(ids), "use_cache": False}
    return model(**given).logits, body(**given).last_hidden_state


# Whether our loop over a decoder's layers gives what the decoder gives: looked at, then measured on a few tokens.

PARTS = ("layers", "norm", "rotary_emb", "embed_tokens")
UNDERSTOOD = frozenset(
    {"attention_mask", "scaling", "dropout", "is_causal", "position_ids", "position_embeddings", "use_cache"}
)
"""What attention may be told; told anything else, a layer attends in a way of its own (a window, a cap, a sink)."""
LISTENING = "sightline_listening"


def loop_mismatch(body: Any, text_model: Any, axes: int) -> str | None:
    """None where our loop runs the layers as the model does, else the reason in words."""
    config = text_model.config
    missing = [part for part in PARTS if not hasattr(text_model, part)]
    if missing:
        return f"its decoder has no {missing[0]}"
    if per_layer(config):
        return "its layers read the ids of tokens once more (per-layer embeddings)"
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"]) - {"full_attention"}
    if kinds:
        return f"it has layers of type {', '.join(sorted(kinds))}"
    if "token_type_ids" in inspect.signature(body.forward).parameters:
        return "its mask depends on token types: tokens of an image see each other"
    if "moe_mm_token_type_ids" in inspect.signature(body.forward).parameters:
        return "its experts are told which tokens stand for an image"
    if not all(hasattr(layer, "self_attn") and hasattr(layer, "input_layernorm") for layer in text_model.layers):
        return "not every layer is attention behind a norm"
    if any("position_embeddings" not in inspect.signature(layer.forward).parameters for layer in text_model.layers):
        return "its layers make their own positions"
    try:
        with torch.inference_mode():
            told, difference = _measured(text_model, axes)
    except Exception as error:  # whatever keeps the loop from running is a reason not to
        return f"our loop cannot run its layers ({type(error).__name__}: {first_line(error)[:80]})"
    if told:
        return f"its layers attend with {', '.join(sorted(told))}"
    allowed = LAYER_TOLERANCE.get(text_model.dtype, 3e-2)
    if not difference <= allowed:
        return f"our loop over its layers gives something else (by {difference:.1e} of the largest value)"
    return None


def _measured(text_model: Any, axes: int) -> tuple[set[str], float]:
    """What attention was told that we do not understand, and how far the loop is from the decoder.

    Every layer is called on what the decoder gave it, and what it gave must be what the layer before made: rounding
    does not pile up over layers, so a deep decoder in half precision is judged as strictly as a shallow one.
    """
    weight = text_model.embed_tokens.weight
    ids = torch.arange(LAYER_TOKENS, device=weight.device) % weight.shape[0]
    embedded = text_model.embed_tokens(ids)[None]
    positions = torch.arange(LAYER_TOKENS, device=weight.device).expand(axes, 1, -1)
    calls: list[tuple[Tensor, Tensor]] = []
    with _watching(text_model.layers, calls):
        expected = text_model(
            inputs_embeds=embedded,
            position_ids=positions if axes > 1 else positions[0],
            attention_mask=torch.ones(1, LAYER_TOKENS, dtype=torch.long, device=weight.device),
            use_cache=False,
        ).last_hidden_state
    language = LanguageModel(text_model, torch.nn.Identity(), axes)
    segments = torch.zeros(1, LAYER_TOKENS, dtype=torch.long, device=weight.device)
    batch = Batch(embedded, positions, segments, (), 0, [0])
    told: set[str] = set()
    before, found = embedded, list[float]()
    with _listening(text_model.config, told):
        rotary, mask = language.rotary(embedded, positions), batch.mask()
        for layer, (given, made) in zip(text_model.layers, calls, strict=True):
            found += [
                relative_difference(before, given),
                relative_difference(call_layer(layer, given, rotary, mask), made),
            ]
            before = made
    found.append(relative_difference(language.norm(before), expected))
    return told, max(found)


def relative_difference(found: Tensor, expected: Tensor) -> float:
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

    def listen(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **how: Any) -> Any:
        told.update(name for name, given in how.items() if given is not None and name not in UNDERSTOOD)
        return dense_attention(module, query, key, value, attention_mask, how.get("scaling"))

    AttentionInterface.register(LISTENING, listen)
    with attending_as(config, LISTENING):
        yield
