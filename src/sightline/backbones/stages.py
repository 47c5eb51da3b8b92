"""The model's own forward, some of its layers at a time: what makes cuts between layers of any decoder possible.

Masks, windows, rotary tables and whatever else a decoder prepares belong to a length. So nothing is prepared here: the
model's own forward is called once for each stretch of layers between two cuts, on the sequence that is left by then.
Layers of earlier stretches hand on the state they ended with, layers of later ones what they are given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from sightline.backbones.attention import attending_as
from sightline.backbones.batches import cut_span, parts_of_layer
from sightline.errors import SightlineError

HEARING = "sightline_hearing"
HIDDEN = "hidden_states"
SHARED = "shared_kv_states"
"""What layers are handed to leave keys and values in for later ones, where those have none of their own."""


@dataclass(frozen=True)
class LayerCall:
    """What the model's own forward handed to one of its layers."""

    given: tuple[Any, ...]
    named: dict[str, Any]

    @property
    def hidden(self) -> Tensor:
        """(B, S, D)"""
        found: Tensor = self.given[0] if self.given else self.named[HIDDEN]
        return found

    @property
    def tables(self) -> tuple[Tensor, Tensor]:
        """(B, S, d) cosine and sine of positions; refused where a layer is handed something else."""
        tables = self.named.get("position_embeddings")
        if not isinstance(tables, tuple) or len(tables) != 2:
            raise SightlineError("its rotary tables are not a cosine and a sine")
        return tables

    def standing(self, row: int, slot: int, token: Tensor) -> LayerCall:
        """The same call with another (D,) token at a slot of one sequence."""
        hidden = self.hidden.clone()
        hidden[row, slot] = token
        if self.given:
            return replace(self, given=(hidden, *self.given[1:]))
        return replace(self, named={**self.named, HIDDEN: hidden})

    def unrotated(self) -> LayerCall:
        """The same call at positions that turn nothing."""
        cos, sin = self.tables
        return replace(self, named={**self.named, "position_embeddings": (torch.ones_like(cos), torch.zeros_like(sin))})


@dataclass(frozen=True)
class Attended:
    """What one layer attends with: queries (B, H, S, d), keys and values (B, Hkv, S, d), rotated, and how."""

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    """As the kernel takes it: additive or bool, broadcast to (B, H, S, S); None: causal."""
    scale: float
    cap: float | None
    """Scores become c tanh(score / c)."""
    sinks: Tensor | None
    """(H,) a score that takes part in every softmax and in no sum."""

    def products(self, b: int, length: int, first: int = 0) -> Tensor:
        """(H, length - first, length) scores of a sequence's tokens from ``first`` on, masked nowhere, in float32."""
        query, key = self.query[b, :, first:length].float(), self.key[b, :, :length].float()
        scores = query @ key.repeat_interleave(query.shape[0] // key.shape[0], dim=0).transpose(-1, -2) * self.scale
        return torch.tanh(scores / self.cap) * self.cap if self.cap else scores

    def weights(self, b: int, length: int, first: int = 0) -> Tensor:
        """(H, length - first, length) attention of a sequence's tokens from ``first`` on, in float32."""
        scores = self.products(b, length, first)
        if self.mask is None:
            slots = torch.arange(length, device=scores.device)
            scores = scores.masked_fill(slots > slots[first:, None], float("-inf"))
        else:
            mask = self.mask[min(b, len(self.mask) - 1), :, first:length, :length]
            hidden = mask.dtype == torch.bool
            scores = scores.masked_fill(~mask, float("-inf")) if hidden else scores + mask.float()
        if self.sinks is None:
            return torch.softmax(scores, dim=-1)
        sinks = self.sinks.float()[:, None, None].expand(-1, scores.shape[1], 1)
        return torch.softmax(torch.cat([scores, sinks], dim=-1), dim=-1)[..., :-1]


@dataclass
class Stages:
    """One reading of some sequences by the model's own forward, stretch after stretch of ``layers``."""

    layers: Sequence[Any]
    config: Any
    forward: Callable[..., Any]
    calls: list[LayerCall] = field(default_factory=list)
    """Of the last stretch: what every layer was handed, whether it ran or not."""
    ended: Tensor | None = None
    """(B, S, D) what the last layer that ran made."""
    done: int = 0
    """Layers that ran."""
    shared: dict[Any, tuple[Tensor, ...]] = field(default_factory=dict)
    """Keys and values (B, Hkv, S, d) that layers which ran left for later ones."""
    _others: int = 0
    """Beside the state a layer returns so many things."""

    def run(self, until: int, state: Tensor | None, **given: Any) -> Any:
        """The forward up to and with layer ``until``; ``state`` (B, S, D) is what earlier stretches left."""
        self.calls = []
        with self._stretch(self.done, until, state):
            output = self.forward(**given)
        self.done = until + 1
        self.shared = dict(self.calls[0].named.get(SHARED) or {})
        return output

    def shorten(self, left: Tensor, start: int, end: int) -> None:
        """What later layers have from earlier ones is cut as the span ``start`` to ``end`` was, to (B, m) slots."""
        for name, pair in self.shared.items():
            self.shared[name] = tuple(cut_span(each, left, start, end, slots=2) for each in pair)

    @property
    def state(self) -> Tensor:
        """(B, S, D) what the stretch left, with what the decoder itself adds between layers."""
        if self.done < len(self.layers):
            return self.calls[self.done].hidden
        assert self.ended is not None
        return self.ended

    @contextmanager
    def _stretch(self, first: int, last: int, state: Tensor | None) -> Iterator[None]:
        def hands_on(index: int, own: Callable[..., Any]) -> Callable[..., Any]:
            def forward(*given: Any, **named: Any) -> Any:
                self.calls.append(LayerCall(given, named))
                if index == 0 and self.shared:
                    named[SHARED].update(self.shared)
                if first <= index <= last:
                    made = own(*given, **named)
                    self._others = len(made) - 1 if isinstance(made, tuple) else 0
                    self.ended = made[0] if isinstance(made, tuple) else made
                    return made
                passed = self.calls[-1].hidden if state is None or index > last else state
                return (passed, *[None] * self._others) if self._others else passed

            return forward

        for index, layer in enumerate(self.layers):
            layer.forward = hands_on(index, layer.forward)
        try:
            yield
        finally:
            for layer in self.layers:
                del layer.forward

    def attended(self, layer: int, call: LayerCall | None = None) -> Attended:
        """What a layer attends with, on what it was handed (or another call): it is run once more, and listened to."""
        heard: list[Attended] = []
        with listening(self.config, heard):
            self.made(layer, call or self.calls[layer])
        if not heard:
            raise SightlineError(f"layer {layer} has no attention weights")
        return heard[0]

    def made(self, layer: int, call: LayerCall) -> Tensor:
        """(B, S, D) what a layer makes of a call once more, by itself."""
        alone = {SHARED: dict(call.named[SHARED])} if SHARED in call.named else {}
        made = self.layers[layer](*call.given, **{**call.named, **alone, "past_key_values": None})
        found: Tensor = made[0] if isinstance(made, tuple) else made
        return found


@contextmanager
def listening(config: Any, heard: list[Attended]) -> Iterator[None]:
    """While open, layers attend to nothing, and what they would attend with is noted."""
    from transformers import AttentionInterface

    caps = config._attn_implementation == "eager"  # other kernels leave the cap of scores out

    def hear(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any, **how: Any) -> Any:
        scale = how.get("scaling") or query.shape[-1] ** -0.5
        cap = how.get("softcap") if caps else None
        heard.append(Attended(query, key, value, attention_mask, scale, cap, how.get("s_aux")))
        return value.new_zeros(query.shape[0], query.shape[2], query.shape[1], value.shape[3]), None

    AttentionInterface.register(HEARING, hear)
    with attending_as(config, HEARING):
        yield


@dataclass(frozen=True)
class SeenInStages:
    """What a layer that the model's own forward ran lets see; sequence b is row ``rows[b]``."""

    stages: Stages
    layer: int
    rows: list[int]
    norm: Any

    def input(self, b: int, length: int) -> Tensor:
        return self.stages.calls[self.layer].hidden[self.rows[b], :length]

    def rotary(self, b: int, length: int) -> Tensor:
        cos, sin = self.stages.calls[self.layer].tables
        return torch.stack([table[min(self.rows[b], len(table) - 1), :length] for table in (cos, sin)])

    def attends(
        self, b: int, length: int, *, bare: bool = False, following: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        read = self._read(following)
        attended = self.stages.attended(read, self.stages.calls[read].unrotated() if bare else None)
        query, key, value = (
            states[self.rows[b], :, :length] for states in (attended.query, attended.key, attended.value)
        )
        return query, key, value

    def attention(self, b: int, length: int, first: int = 0, *, following: bool = False) -> Tensor:
        return self.stages.attended(self._read(following)).weights(self.rows[b], length, first)

    def parts(self, b: int, length: int) -> Tensor:
        layer, call = self.stages.layers[self.layer], self.stages.calls[self.layer]
        noted = parts_of_layer(layer, lambda: layer(*call.given, **{**call.named, "past_key_values": None}))
        return noted[:, :, self.rows[b], :length]

    def _read(self, following: bool) -> int:
        return min(self.layer + 1, len(self.stages.layers) - 1) if following else self.layer

    def follow(self, b: int, length: int, token: Tensor) -> tuple[Tensor, Tensor]:
        row, layer = self.rows[b], self.layer
        call = self.stages.calls[layer].standing(row, length, token)
        made = self.stages.made(layer, call)[row, length]
        return made, self.stages.attended(layer, call).products(row, length + 1, length)[:, 0]

    def normed(self, b: int, length: int) -> Tensor:
        normed: Tensor = self.norm(self.stages.state[self.rows[b], :length])
        return normed
