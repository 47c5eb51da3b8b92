"""The language model as a loop over its own layers: batched scoring, cuts between layers, prefixes to go on from.

Running the layers ourselves is what makes three things one mechanism: a prefix of any length, a cut after any layer,
and DeepStack features added at contiguous slots (an addition instead of boolean indexing, so a GPU can capture it).
The weights, norms and rotary tables are the checkpoint's own modules (a faster execution may join its projections).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice, takewhile
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from sightline.backbones.attention import (
    DENSE,
    SLOTS,
    SLOTS_OWN_KERNEL,
    TAKING,
    LayerSlots,
    attending_as,
    supported,
    usable,
    with_branch_attention,
    without_planned_kernels,
)
from sightline.backbones.batches import Batch, Cutter, padded_levels, parts_of_layer
from sightline.backbones.stages import Attended
from sightline.core.prefix import Prefix
from sightline.device.work import Arriving, on_device

KEPT_TEXTS = 256
"""Embedded texts that are kept: prompts and queries of a shard's probes."""


class Likelihood(NamedTuple):
    """How likely a prefix makes one continuation."""

    loss: float
    """Mean negative log-likelihood per scored token, in nats."""
    greedy: bool
    """Whether every scored token is the arg-max at its position."""


Layer = Callable[[Any, Tensor, tuple[Tensor, Tensor], Tensor | None], Tensor]
"""How one language layer is called: (layer, hidden, (cos, sin), mask) -> hidden."""
OfLayer = Callable[..., Any]
"""Any function of one layer."""
Compiler = Callable[[OfLayer], OfLayer]


def call_layer(
    layer: Any, hidden: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor | None, cache: Any = None
) -> Tensor:
    output: Tensor = layer(
        hidden,
        attention_mask=mask,
        position_embeddings=rotary,
        past_key_values=cache,
        use_cache=cache is not None,
    )
    return output


def keep_layer(
    layer: Any, hidden: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """As ``call_layer``, with the layer's keys and values (B, Hkv, S, d) behind its output."""
    taken: list[Tensor] = []
    output = layer(
        hidden, attention_mask=mask, position_embeddings=rotary, past_key_values=None, use_cache=False, taken=taken
    )
    return output, taken[0], taken[1]


def step_layer(
    layer: Any, hidden: Tensor, rotary: tuple[Tensor, Tensor], slots: LayerSlots
) -> tuple[Tensor, Tensor, Tensor]:
    """One new token per sequence (B, 1, D) behind what its slot holds; its keys and values behind its output."""
    taken: list[Tensor] = []
    output = layer(
        hidden,
        attention_mask=None,
        position_embeddings=rotary,
        past_key_values=None,
        use_cache=False,
        slots=slots,
        taken=taken,
    )
    return output, taken[0], taken[1]


@dataclass(frozen=True)
class KeptPrefixes:
    """Prefixes that were read, and what it takes to go on from their ends."""

    states: list[tuple[Tensor, Tensor]]
    """Per layer keys and values (B, Hkv, S, d), padded on the right; S differs between layers where something cut."""
    lengths: Tensor
    """(layers, B) int32: how many of the S are a sequence's."""
    last: Tensor
    """(B, D) output of the last layer at each sequence's end."""
    following: Tensor
    """(B,) position of the next token."""

    @property
    def longest(self) -> int:
        return max(key.shape[2] for key, _ in self.states)


@dataclass(frozen=True)
class Pending:
    """Likelihoods that the device may still be working on."""

    nll: Arriving
    """(R,) negative log-likelihood of every token that is read, prefix by prefix, continuation by continuation."""
    hit: Arriving
    """(R,) whether it is the arg-max."""
    sizes: list[list[int]]
    """Per prefix and continuation, how many of the R."""

    def read(self) -> list[tuple[Likelihood, ...]]:
        """Per prefix one likelihood per continuation; waits for the device."""
        flat = [size for sizes in self.sizes for size in sizes]
        each = (
            Likelihood(nll.mean().item(), bool(hit.all()))
            for nll, hit in zip(torch.split(self.nll.read(), flat), torch.split(self.hit.read(), flat), strict=True)
        )
        return [tuple(islice(each, len(sizes))) for sizes in self.sizes]


@dataclass(frozen=True)
class SeenInLoop:
    """What a layer that our loop ran lets see: its attention is asked once more for what it is handed."""

    model: LanguageModel
    batch: Batch
    layer: int
    layer_input: Tensor

    def input(self, b: int, length: int) -> Tensor:
        return self.layer_input[b, :length]

    def rotary(self, b: int, length: int) -> Tensor:
        return torch.stack([table[0] for table in self._tables(b, length)])

    def attends(
        self, b: int, length: int, *, bare: bool = False, following: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        attended = self._attended(*self._read(b, length, following), self._tables(b, length, bare=bare))
        return attended.query[0], attended.key[0], attended.value[0]

    def parts(self, b: int, length: int) -> Tensor:
        layer, rotary = self.model.layers[self.layer], self._tables(b, length)
        with attending_as(self.model.config, "sdpa"):  # without a mask it is causal
            noted = parts_of_layer(layer, lambda: call_layer(layer, self.input(b, length)[None], rotary, None))
        return noted[:, :, 0]

    def attention(self, b: int, length: int, first: int = 0, *, following: bool = False) -> Tensor:
        attended = self._attended(*self._read(b, length, following), self._tables(b, length))
        return attended.weights(0, length, first)

    def follow(self, b: int, length: int, token: Tensor) -> tuple[Tensor, Tensor]:
        own = token[None]
        rotary = self.model.rotary(own[None], self.batch.positions[:, b : b + 1, length - 1 : length] + 1)
        added = self._attended(self.layer, own, rotary)
        prompt = self._attended(self.layer, self.input(b, length), self._tables(b, length))
        read = torch.tensor([length], dtype=torch.int32, device=own.device)
        with attending_as(self.model.config, SLOTS):
            slots = LayerSlots(prompt.key, prompt.value, read)
            made, _, _ = step_layer(self.model.layers[self.layer], own[None], rotary, slots)
        query, keys = added.query[0], torch.cat([prompt.key[0], added.key[0]], dim=1)
        keys = keys.repeat_interleave(len(query) // len(keys), dim=0)
        return made[0, 0], (query @ keys.mT)[:, 0] * added.scale

    def normed(self, b: int, length: int) -> Tensor:
        normed: Tensor = self.model.norm(self.batch.hidden[b, :length])
        return normed

    def _tables(self, b: int, length: int, *, bare: bool = False) -> tuple[Tensor, Tensor]:
        states = self.layer_input[b : b + 1, :length]
        cos, sin = self.model.rotary(states, self.batch.positions[:, b : b + 1, :length])
        return (torch.ones_like(cos), torch.zeros_like(sin)) if bare else (cos, sin)

    def _read(self, b: int, length: int, following: bool) -> tuple[int, Tensor]:
        """This layer or the next, and its (L, D) input."""
        if following:
            return min(self.layer + 1, len(self.model.layers) - 1), self.batch.hidden[b, :length]
        return self.layer, self.input(b, length)

    def _attended(self, layer: int, states: Tensor, rotary: tuple[Tensor, Tensor]) -> Attended:
        """What a layer hands to attention for its (L, D) input; causal."""
        block, taken = self.model.layers[layer], list[Any]()
        with attending_as(self.model.config, TAKING):
            block.self_attn(
                hidden_states=block.input_layernorm(states)[None],
                position_embeddings=rotary,
                attention_mask=None,
                taken=taken,
            )
        query, key, value, scale = taken
        return Attended(query, key, value, None, scale, None, None)


class LanguageModel:
    """The decoder of a checkpoint: ``layers``, final ``norm``, rotary table and output head."""

    beside: ClassVar[bool] = False
    """Whether it reads an image beside the text, by cross-attention: then slots of the image have no positions."""

    def __init__(self, text_model: Any, lm_head: Any, axes: int) -> None:
        # A decoder that runs itself may be made of other parts.
        self.layers: Any = getattr(text_model, "layers", ())
        self.norm: Any = getattr(text_model, "norm", None)
        self.head = lm_head
        self.axes = axes
        self.plain = True
        """Whether the layers are run by our loop, which can be compiled, captured and cut between layers."""
        self.reads_ids = False
        """Whether it has to be told the ids of tokens beside their embeddings (``Prefix.ids``)."""
        self.executor: Callable[[Batch], Tensor] | None = None
        """Runs all layers of an uncut, uncached batch in another way; see ``sightline.backbones.execution``."""
        self.compile_with(None)
        self._rotary: Any = getattr(text_model, "rotary_emb", None)
        self._embedding = text_model.get_input_embeddings()
        self.config = text_model.config
        self._embedded: OrderedDict[tuple[int, ...], Tensor] = OrderedDict()

    @property
    def device(self) -> torch.device:
        return torch.device(self._embedding.weight.device)

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self._embedding.weight.dtype
        return dtype

    @property
    def head_width(self) -> int:
        """d: size of an attention head."""
        return int(getattr(self.config, "head_dim", None) or self.config.hidden_size // self.config.num_attention_heads)

    @property
    def key_heads(self) -> int:
        """Hkv: heads that have keys of their own."""
        return int(getattr(self.config, "num_key_value_heads", None) or self.config.num_attention_heads)

    def uncut(self, needs: Collection[str], layers: Iterable[int]) -> str | None:
        """Why a method that reads ``needs`` cannot cut after these layers; None where it can."""
        if "lm.parts" in needs and not all(
            hasattr(self.layers[i], "self_attn") and hasattr(self.layers[i], "mlp") for i in layers
        ):
            return "its layers are not made of an attention and a feed-forward part"
        return None

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., V) in float32 from the last layer's output (..., D)."""
        found: Tensor = self.head(self.norm(hidden)).float()
        return found

    def embed(self, ids: Sequence[int]) -> Tensor:
        """(T, D) input embeddings, not to be written to: recent ones are kept, as all arms ask for the same texts."""
        key = tuple(ids)
        if key not in self._embedded:
            self._embedded[key] = self._looked_up(on_device(key, self.device))
            if len(self._embedded) > KEPT_TEXTS:
                self._embedded.popitem(last=False)
        self._embedded.move_to_end(key)
        return self._embedded[key]

    def _looked_up(self, ids: Tensor) -> Tensor:
        found: Tensor = self._embedding(ids)
        return found

    def rotary(self, hidden: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin (B, S, d) for (A, B, S) positions."""
        if getattr(self._rotary, "rope_type", "") == "longrope":  # whose frequencies follow the longest row of a call
            alone = [self._rotary(hidden[b : b + 1], positions[0, b : b + 1]) for b in range(len(hidden))]
            return torch.cat([cos for cos, _ in alone]), torch.cat([sin for _, sin in alone])
        cos, sin = self._rotary(hidden, positions if self.axes > 1 else positions[0])
        return cos, sin

    @property
    def dense(self) -> bool:
        """Whether the attention kernel has to be shown causality as a mask."""
        return bool(self.config._attn_implementation == "eager")

    def attending(self) -> Any:
        """Context in which the layers understand the masks of ``mask_of``."""
        return nullcontext() if self.dense else with_branch_attention(self.config, self.own_kernel)

    @property
    def own_kernel(self) -> bool:
        """Whether causal prefixes attend by our kernel; see ``sightline.backbones.attention``."""
        return not self.dense and usable(self.device, self.dtype, self.head_width)

    def mask_of(self, batch: Batch) -> Tensor | None:
        """Rows of the mask that the attention kernel needs: all of them, or the branches' alone."""
        if self.dense:
            return batch.mask()
        return batch.mask(batch.shared) if batch.branches else None

    def collate(self, prefixes: Sequence[Prefix]) -> Batch:
        first = prefixes[0]
        tails = [prefix.branches for prefix in prefixes]
        branches = max(tails)
        if len(prefixes) == 1:  # nothing to pad: no copies
            levels = tuple(level[None] for level in first.deepstack)
            hidden, positions = first.embeds[None], first.positions[:, None]
            return Batch(hidden, positions, first.segments[None], levels, first.start, [first.span], branches)
        longest = max(p.embeds.shape[0] - tail for p, tail in zip(prefixes, tails, strict=True))
        shape = (len(prefixes), longest + branches)
        hidden = first.embeds.new_zeros(*shape, first.embeds.shape[1])
        positions = torch.zeros(self.axes, *shape, dtype=torch.long, device=self.device)
        segments = torch.full(shape, -1, dtype=torch.long, device=self.device)
        for b, (prefix, tail) in enumerate(zip(prefixes, tails, strict=True)):
            shared = prefix.embeds.shape[0] - tail
            for here, there in (
                (slice(0, shared), slice(0, shared)),
                (slice(longest, longest + tail), slice(shared, None)),
            ):
                hidden[b, here] = prefix.embeds[there]
                positions[:, b, here] = prefix.positions[:, there]
                segments[b, here] = prefix.segments[there]
        counts = [prefix.span for prefix in prefixes]
        return Batch(hidden, positions, segments, padded_levels(prefixes), first.start, counts, branches)

    def run(self, batch: Batch, cutter: Cutter | None = None, cache: Any = None) -> Batch:
        """All layers. The returned batch holds the last layer's output, shortened where ``cutter`` cut."""
        with self.attending():
            if cutter is None and cache is None:
                batch.hidden = self.forward(batch) if self.executor is None else self.executor(batch)
                return batch
            call = self._of_layer(call_layer) if cache is None else partial(call_layer, cache=cache)
            return self._layer_by_layer(batch, call, cutter, self.mask_of)

    def _layer_by_layer(
        self, batch: Batch, call: Layer, cutter: Cutter | None, mask_of: Callable[[Batch], Tensor | None]
    ) -> Batch:
        """All layers, with a look between them: where ``cutter`` cuts, positions and mask are made anew."""
        rotary, mask = self.rotary(batch.hidden, batch.positions), mask_of(batch)
        for index, layer in enumerate(self.layers):
            layer_input = batch.hidden
            batch.hidden = call(layer, layer_input, rotary, mask)
            self._add_features(batch.hidden, batch, index)
            if cutter is not None and cutter.wants(index):
                batch = cutter.cut(batch, index, SeenInLoop(self, batch, index, layer_input))
                rotary, mask = self.rotary(batch.hidden, batch.positions), mask_of(batch)
        return batch

    def forward(self, batch: Batch, call: Layer = call_layer) -> Tensor:
        """(B, S, D) output of the last layer; neither shapes nor branches depend on values, so it can be captured."""
        rotary, mask = self.rotary(batch.hidden, batch.positions), self.mask_of(batch)
        hidden = batch.hidden
        for index, layer in enumerate(self.layers):
            hidden = call(layer, hidden, rotary, mask)
            self._add_features(hidden, batch, index)
        return hidden

    @staticmethod
    def _add_features(hidden: Tensor, batch: Batch, index: int) -> None:
        if index < len(batch.deepstack) and batch.deepstack[index].shape[2]:
            features = batch.deepstack[index]
            hidden[:, batch.start : batch.start + features.shape[1]] += features

    @torch.inference_mode()
    def launch(self, prefixes: Sequence[Prefix], cutter: Cutter | None = None) -> Pending:
        """One forward over all prefixes and their continuations; nothing here waits for the device.

        The output head runs on the handful of positions whose logits are read, never on the whole sequence.
        """
        batch = self.run(self.collate(prefixes), cutter)
        length = batch.hidden.shape[1]
        slots: list[int] = []
        wanted: list[int] = []
        sizes: list[list[int]] = []
        for b, prefix in enumerate(prefixes):
            text = prefix.embeds.shape[0] - prefix.start - prefix.span - prefix.branches
            behind = batch.start + batch.counts[b]
            sizes.append([len(ids) for _, ids in prefix.reads])
            for offsets, ids in prefix.reads:
                slots += [
                    b * length + (behind + offset if offset < text else batch.shared + offset - text)
                    for offset in offsets
                ]
                wanted += ids
        read, targets = on_device(torch.tensor([slots, wanted], dtype=torch.long), self.device)
        logits = self.head(self.norm(batch.hidden.flatten(0, 1)[read])).float()
        nll = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
        return Pending(Arriving(nll), Arriving(logits.argmax(-1) == targets), sizes)

    @torch.inference_mode()
    def prefix_logits(self, prefix: Prefix) -> Tensor:
        """(L, V) logits over all of a branch-free prefix."""
        found: Tensor = self.head(self.norm(self.read([prefix])))[0]
        return found

    def read(self, prefixes: Sequence[Prefix], cutter: Cutter | None = None) -> Tensor:
        """(B, S, D) output of the last layer over branch-free prefixes, shortened where ``cutter`` cut."""
        return self.run(self.collate(prefixes), cutter).hidden

    def score(self, prefixes: Sequence[Prefix], cutter: Cutter | None = None) -> list[tuple[Likelihood, ...]]:
        """The likelihood of every continuation of every prefix, in one forward."""
        return self.launch(prefixes, cutter).read()

    def compile_with(self, compiler: Compiler | None, made: Mapping[OfLayer, OfLayer] | None = None) -> None:
        """What compiles functions of one layer, where the execution does, and those that it ``made`` already."""
        self._compiler, self._compiled = compiler, dict(made or {})

    def _of_layer(self, function: OfLayer) -> OfLayer:
        """A function of one layer as the execution runs it."""
        if self._compiler is None:
            return function
        if function not in self._compiled:
            self._compiled[function] = self._compiler(function)
        return self._compiled[function]

    @torch.inference_mode()
    def keep(self, prefixes: Sequence[Prefix], cutter: Cutter | None = None) -> KeptPrefixes:
        """Reads branch-free prefixes and keeps what every layer remembers of them; waits for nothing but a cutter."""
        batch = self.collate(prefixes)
        padded = batch.hidden.shape[1]
        call = self._of_layer(keep_layer)
        states: list[tuple[Tensor, Tensor]] = []

        def keeping(layer: Any, hidden: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
            output: Tensor
            output, key, value = call(layer, hidden, rotary, mask)
            states.append((key, value))
            return output

        dense = self.dense  # while attending, the layers no longer tell
        with attending_as(self.config, DENSE) if dense else self.attending():
            batch = self._layer_by_layer(batch, keeping, cutter, lambda batch: batch.mask() if dense else None)
        real = torch.tensor([prefix.embeds.shape[0] for prefix in prefixes])
        cut = torch.tensor([padded - key.shape[2] for key, _ in states])
        ends = on_device(real - 1 - (padded - batch.hidden.shape[1]), self.device)
        rows = torch.arange(len(prefixes), device=self.device)
        return KeptPrefixes(
            states,
            on_device((real[None] - cut[:, None]).int(), self.device),
            batch.hidden[rows, ends],
            torch.stack([prefix.positions[:, -1].max() for prefix in prefixes]) + 1,
        )

    def step(
        self, tokens: Tensor, positions: Tensor, slots: Sequence[LayerSlots]
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """One token (B,) each, at its position (B,), behind its slot: (B, D), and what every layer has to remember."""
        call = self._of_layer(step_layer)
        hidden = self._embedding(tokens)[:, None]
        rotary = self.rotary(hidden, positions.expand(self.axes, -1)[..., None])
        own = not self.dense and supported(self.device, self.dtype, self.head_width)
        taken = []
        with attending_as(self.config, SLOTS_OWN_KERNEL if own else SLOTS):
            for layer, slot in zip(self.layers, slots, strict=True):
                hidden, key, value = call(layer, hidden, rotary, slot)
                taken.append((key, value))
        return hidden[:, 0], taken

    def generate(
        self, prefix: Prefix, max_new_tokens: int, stop_ids: frozenset[int], cutter: Cutter | None = None
    ) -> list[int]:
        """Greedy continuation of one branch-free prefix, up to a stop token: one by one, as stock code does it.

        ``sightline.backbones.decoding`` says the same for many at once.
        """
        return list(islice(takewhile(lambda token: token not in stop_ids, self.decode(prefix, cutter)), max_new_tokens))

    def decode(self, prefix: Prefix, cutter: Cutter | None = None) -> Iterator[int]:
        """Greedy tokens, one after the other, with a key-value cache.

        After a cut, layers hold caches of different lengths; a single query token attends to all of its layer's
        cache, so no mask is needed while decoding.
        """
        from transformers import DynamicCache

        cache = DynamicCache()
        with torch.inference_mode(), without_planned_kernels():
            hidden = self.run(self.collate([prefix]), cutter, cache).hidden[:, -1:]
        position = int(prefix.positions[:, -1].max())
        while True:
            # Entered anew for every token: a suspended generator must not leave the caller in these modes.
            with torch.inference_mode():
                token = int(self.head(self.norm(hidden[0, -1])).argmax())
            yield token
            position += 1
            with torch.inference_mode(), without_planned_kernels():  # the cache is longer every time
                hidden = self.embed([token])[None]
                rotary = self.rotary(hidden, torch.full((self.axes, 1, 1), position, device=self.device))
                for layer in self.layers:
                    hidden = layer(hidden, position_embeddings=rotary, past_key_values=cache, use_cache=True)
