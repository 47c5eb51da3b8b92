"""The model's own decoder, for language layers that our loop does not run as the model does.

Sliding windows, linear attention, masks that let an image's tokens see each other: the model's own code knows them. It
is called on embeddings, without the image, with positions and token types of what was kept. It has no branches: every
continuation is a sequence of its own, so the shared part is read once for each of them.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sightline.backbones.attention import attending_as
from sightline.backbones.language import Batch, Cutter, LanguageModel, Pending, call_layer, token_places
from sightline.core.prefix import Prefix
from sightline.device.work import Arriving, on_device
from sightline.errors import SightlineError, first_line

IMAGE, TEXT, CONTINUATION = 1, 0, 2
"""Kinds of slots, from which an architecture makes its token types."""


def image_is_one(kinds: Tensor) -> Tensor:
    """The usual token types: 1 for the tokens of an image, 0 for all else."""
    return (kinds == IMAGE).long()


class OwnDecoder(LanguageModel):
    """Reads prefixes through ``body``, the model without its output head.

    Parameters
    ----------
    reason: why the layers are not run by our loop.
    first_position: what the model numbers the first token of a sequence by.
    token_types: from the (B, S) kinds of slots what the model takes as token types.
    """

    def __init__(
        self,
        body: Any,
        text_model: Any,
        lm_head: Any,
        axes: int,
        *,
        reason: str,
        first_position: int = 0,
        token_types: Callable[[Tensor], Tensor] = image_is_one,
    ) -> None:
        super().__init__(text_model, lm_head, axes)
        self.body, self.text_model, self.reason = body, text_model, reason
        self.first_position, self.token_types = first_position, token_types
        self.norm = torch.nn.Identity()  # the model's own forward ends with it
        self.plain = False
        takes = inspect.signature(body.forward).parameters
        self._types = [name for name in ("token_type_ids", "mm_token_type_ids") if name in takes]

    def launch(self, prefixes: Sequence[Prefix], cutter: Cutter | None = None) -> Pending:
        self.refuse(cutter)
        sequences = [(prefix, branch) for prefix in prefixes for branch in range(max(1, len(prefix.branch_sizes)))]
        with torch.inference_mode():
            hidden = self._read(sequences)
            slots: list[int] = []
            wanted: list[int] = []
            for row, (prefix, branch) in enumerate(sequences):
                first = sum(prefix.branch_sizes[:branch])
                text = prefix.embeds.shape[0] - prefix.start - prefix.span - prefix.branches
                offsets, ids = prefix.reads[branch]
                behind = row * hidden.shape[1] + prefix.start + prefix.span
                slots += [behind + (offset if offset < text else offset - first) for offset in offsets]
                wanted += ids
            read, targets = on_device(torch.tensor([slots, wanted], dtype=torch.long), self.device)
            logits = self.head(hidden.flatten(0, 1)[read]).float()
            nll = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
        sizes = [[len(ids) for _, ids in prefix.reads] for prefix in prefixes]
        return Pending(Arriving(nll), Arriving(logits.argmax(-1) == targets), sizes)

    def prefix_logits(self, prefix: Prefix) -> Tensor:
        with torch.inference_mode():
            found: Tensor = self.head(self._read([(prefix, 0)])[0])
        return found

    def read(self, prefixes: Sequence[Prefix], cutter: Cutter | None = None) -> Tensor:
        self.refuse(cutter)
        return self._read([(prefix, 0) for prefix in prefixes])

    def decode(self, prefix: Prefix, cutter: Cutter | None = None) -> Iterator[int]:
        self.refuse(cutter)
        for logits in self.continued(prefix):
            yield int(logits.argmax())

    def continued(self, prefix: Prefix) -> Iterator[Tensor]:
        """(V,) float32 logits of one next token after the other, the likeliest put behind a branch-free prefix."""
        position, length = int(prefix.positions[:, -1].max()), prefix.embeds.shape[0]
        with torch.inference_mode():
            output = self._call([(prefix, 0)], use_cache=True)
        while True:
            with torch.inference_mode():
                logits = self.head(output.last_hidden_state[0, -1]).float()
            yield logits
            token = int(logits.argmax())
            position, length = position + 1, length + 1
            with torch.inference_mode():
                where = torch.full((self.axes, 1, 1), position + self.first_position, device=self.device)
                output = self.body(
                    inputs_embeds=self.embed([token])[None],
                    attention_mask=torch.ones(1, length, dtype=torch.long, device=self.device),
                    position_ids=where if self.axes == 3 else where[0],
                    past_key_values=output.past_key_values,
                    use_cache=True,
                    **{name: torch.full((1, 1), self._continued, device=self.device) for name in self._types},
                )

    @property
    def _continued(self) -> int:
        return int(self.token_types(torch.tensor([[CONTINUATION]])))

    def refuse(self, cutter: Cutter | None) -> None:
        if cutter is not None:
            raise SightlineError(f"methods that cut between layers cannot run here: {self.reason}")

    def _read(self, sequences: Sequence[tuple[Prefix, int]]) -> Tensor:
        """(B, S, D) what the output head reads; one row for every prefix with one of its branches."""
        hidden: Tensor = self._call(sequences).last_hidden_state
        return hidden

    def _call(self, sequences: Sequence[tuple[Prefix, int]], use_cache: bool = False) -> Any:
        chosen = [self._slots(prefix, branch) for prefix, branch in sequences]
        longest = max(map(len, chosen))
        first = sequences[0][0]
        embeds = first.embeds.new_zeros(len(sequences), longest, first.embeds.shape[1])
        positions = torch.zeros(self.axes, len(sequences), longest, dtype=torch.long, device=self.device)
        kinds = torch.full((len(sequences), longest), CONTINUATION)
        present = torch.zeros(len(sequences), longest, dtype=torch.long)
        for b, ((prefix, _), slots) in enumerate(zip(sequences, chosen, strict=True)):
            here = on_device(slots, self.device)
            embeds[b, : len(slots)] = prefix.embeds[here]
            positions[:, b, : len(slots)] = prefix.positions[:, here] + self.first_position
            kinds[b, : prefix.prompt_length] = TEXT
            kinds[b, prefix.start + token_places(prefix)] = IMAGE
            present[b, : len(slots)] = 1
        extra: dict[str, Any] = {name: on_device(self.token_types(kinds), self.device) for name in self._types}
        given: dict[str, Any] = {
            "inputs_embeds": embeds,
            "position_ids": positions if self.axes == 3 else positions[0],
            "attention_mask": on_device(present, self.device),
            "use_cache": use_cache,
        }
        if not first.deepstack:
            return self.body(**given, **extra)
        visual = on_device(kinds == IMAGE, self.device)
        pruned = [tuple(level[on_device(token_places(p), self.device)] for level in p.deepstack) for p, _ in sequences]
        levels = [torch.cat(level) for level in zip(*pruned, strict=True)]
        return self.text_model(**given, visual_pos_masks=visual, deepstack_visual_embeds=levels)

    @staticmethod
    def _slots(prefix: Prefix, branch: int) -> list[int]:
        """Slots of a prefix that its sequence with one of the branches has."""
        shared = prefix.embeds.shape[0] - prefix.branches
        sizes = prefix.branch_sizes
        first = shared + sum(sizes[:branch])
        return [*range(shared), *range(first, first + (sizes[branch] if sizes else 0))]


# The output head as the model itself applies it: a matrix, and what some models do to its logits behind it.

HEAD_TOKENS = 5
"""Length of the sequence that both ways read."""
HEAD_TOLERANCE = 1e-3
"""Largest difference, as a share of the largest logit: far below what a cap or a scale changes."""


class AdjustedHead(nn.Module):
    """An output head and what the model does to its logits."""

    def __init__(self, head: nn.Module, adjusted: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.head, self.adjusted = head, adjusted

    def forward(self, hidden: Tensor) -> Tensor:
        return self.adjusted(self.head(hidden))


def output_head(model: Any, body: Any) -> Any:
    """What turns the last hidden states of ``body`` into the logits of ``model``, tried out on a few tokens.

    Besides the matrix alone, a scale and a cap c tanh(x / c) are known, by what the configuration calls them. A model
    that does anything else is refused, and so is one with such a setting that cannot be asked without an image.
    """
    head = model.get_output_embeddings()
    known = _adjustments(model.config.get_text_config())
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
    if _alike(found, logits):
        return head
    for adjusted in known.values():
        if _alike(adjusted(found), logits):
            return AdjustedHead(head, adjusted)
    raise SightlineError(f"{type(model).__name__}: its output head does more than multiply, cap or scale")


def _asked(model: Any, body: Any) -> tuple[Tensor, Tensor]:
    """(1, T, V) the model's logits of a few tokens, and (1, T, D) what its head reads."""
    embedding = model.get_input_embeddings()
    ids = torch.arange(HEAD_TOKENS, device=embedding.weight.device)[None]
    given = {"inputs_embeds": embedding(ids), "attention_mask": torch.ones_like(ids), "use_cache": False}
    return model(**given).logits, body(**given).last_hidden_state


def _alike(found: Tensor, logits: Tensor) -> bool:
    far = (found.float() - logits.float()).abs().max() / logits.float().abs().max().clamp_min(1e-12)
    return bool(far <= (HEAD_TOLERANCE if found.dtype == torch.float32 else 10 * HEAD_TOLERANCE))


def _adjustments(config: Any) -> dict[str, Callable[[Tensor], Tensor]]:
    """What the configuration says is done to logits, by the name of the setting."""
    cap, factor, divisor = (
        getattr(config, name, None) for name in ("final_logit_softcapping", "logit_scale", "logits_scaling")
    )
    found: dict[str, Callable[[Tensor], Tensor]] = {}
    if cap:
        found["final_logit_softcapping"] = lambda logits: torch.tanh(logits / cap) * cap
    if factor not in (None, 1.0):
        found["logit_scale"] = lambda logits: logits * factor
    if divisor not in (None, 1.0):
        found["logits_scaling"] = lambda logits: logits / divisor
    return found


# Whether our loop over a decoder's layers gives what the decoder gives: looked at, then measured on a few tokens.

PARTS = ("layers", "norm", "rotary_emb", "embed_tokens")
LAYER_TOKENS = 5
"""Length of the sequence that both read."""
LAYER_TOLERANCE = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}
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
            position_ids=positions if axes == 3 else positions[0],
            attention_mask=torch.ones(1, LAYER_TOKENS, dtype=torch.long, device=weight.device),
            use_cache=False,
        ).last_hidden_state
    language = LanguageModel(text_model, torch.nn.Identity(), axes)
    segments = torch.zeros(1, LAYER_TOKENS, dtype=torch.long, device=weight.device)
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
