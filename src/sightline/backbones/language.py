"""The language model as a loop over its own layers: batched scoring, cuts between layers, cached generation.

Running the layers ourselves is what makes three things one mechanism: a prefix of any length, a cut after any layer,
and DeepStack features added at contiguous slots (an addition instead of boolean indexing, so a GPU can capture it).
The weights, norms and rotary tables are the checkpoint's modules, untouched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from sightline.types import Prefix


@dataclass(frozen=True)
class Answer:
    """What one forward says about one prefix."""

    loss_yes: float
    loss_no: float
    greedy_yes: bool
    greedy_no: bool


@dataclass
class Batch:
    """Right-padded prefixes. ``counts[b]`` visual tokens start at slot ``start`` in every sequence."""

    hidden: Tensor
    """(B, L, D)"""
    positions: Tensor
    """(A, B, L)"""
    segments: Tensor
    """(B, L): 0 shared, 1 yes, 2 no, -1 padding."""
    deepstack: tuple[Tensor, ...]
    """Per level (B, Kmax, D), zero behind a sequence's own count."""
    start: int
    counts: list[int]

    @property
    def mask(self) -> Tensor:
        """(B, 1, L, L) additive: causal, branches blind to each other, padding attends to itself alone."""
        segments = self.segments
        length = segments.shape[1]
        row, column = segments[:, :, None], segments[:, None, :]
        causal = torch.ones(length, length, dtype=torch.bool, device=segments.device).tril()
        allowed = causal & ((column == 0) | (column == row)) & (column >= 0)
        allowed |= torch.eye(length, dtype=torch.bool, device=segments.device)
        blocked = torch.finfo(self.hidden.dtype).min
        return torch.zeros_like(allowed, dtype=self.hidden.dtype).masked_fill_(~allowed, blocked)[:, None]


class Cutter(Protocol):
    """Prunes between layers; see ``sightline.backbones.cuts``."""

    def wants(self, layer: int) -> bool: ...

    def cut(self, batch: Batch, layer: int, layer_input: Tensor, model: LanguageModel) -> Batch: ...


class LanguageModel:
    """The decoder of a checkpoint: ``layers``, final ``norm``, rotary table and output head."""

    def __init__(self, text_model: Any, lm_head: Any, axes: int) -> None:
        self.layers = text_model.layers
        self.norm = text_model.norm
        self.head = lm_head
        self.axes = axes
        self._rotary = text_model.rotary_emb
        self._embedding = text_model.embed_tokens
        self._config = text_model.config

    @property
    def device(self) -> torch.device:
        return torch.device(self._embedding.weight.device)

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self._embedding.weight.dtype
        return dtype

    def embed(self, ids: Sequence[int]) -> Tensor:
        """(T, D) input embeddings."""
        table: Tensor = self._embedding.weight
        return table[torch.tensor(ids, dtype=torch.long, device=table.device)]

    def rotary(self, hidden: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin (B, L, d) for (A, B, L) positions."""
        cos, sin = self._rotary(hidden, positions if self.axes == 3 else positions[0])
        return cos, sin

    def collate(self, prefixes: Sequence[Prefix]) -> Batch:
        longest = max(p.embeds.shape[0] for p in prefixes)
        first = prefixes[0]
        shape = (len(prefixes), longest)
        hidden = first.embeds.new_zeros(*shape, first.embeds.shape[1])
        positions = torch.zeros(self.axes, *shape, dtype=torch.long, device=self.device)
        segments = torch.full(shape, -1, dtype=torch.long, device=self.device)
        widest = max(p.k for p in prefixes)
        deepstack = tuple(first.embeds.new_zeros(len(prefixes), widest, first.embeds.shape[1]) for _ in first.deepstack)
        for b, prefix in enumerate(prefixes):
            length = prefix.embeds.shape[0]
            hidden[b, :length] = prefix.embeds
            positions[:, b, :length] = prefix.positions
            segments[b, :length] = prefix.segments
            for level, features in zip(deepstack, prefix.deepstack, strict=True):
                level[b, : prefix.k] = features
        return Batch(hidden, positions, segments, deepstack, first.start, [p.k for p in prefixes])

    def run(self, batch: Batch, cutter: Cutter | None = None, cache: Any = None) -> Batch:
        """All layers. The returned batch holds the last layer's output, shortened where ``cutter`` cut."""
        rotary, mask = self.rotary(batch.hidden, batch.positions), batch.mask
        for index, layer in enumerate(self.layers):
            layer_input = batch.hidden
            batch.hidden = layer(
                layer_input,
                attention_mask=mask,
                position_embeddings=rotary,
                past_key_values=cache,
                use_cache=cache is not None,
            )
            if index < len(batch.deepstack):
                features = batch.deepstack[index]
                batch.hidden[:, batch.start : batch.start + features.shape[1]] += features
            if cutter is not None and cutter.wants(index):
                batch = cutter.cut(batch, index, layer_input, self)
                rotary, mask = self.rotary(batch.hidden, batch.positions), batch.mask
        return batch

    @torch.inference_mode()
    def score(self, prefixes: Sequence[Prefix], cutter: Cutter | None = None) -> list[Answer]:
        """Mean negative log-likelihood of the yes and the no continuation of every prefix, in one forward.

        The output head runs on the handful of positions whose logits are read, never on the whole sequence.
        """
        batch = self.run(self.collate(prefixes), cutter)
        rows: list[Tensor] = []
        for b, prefix in enumerate(prefixes):
            behind = batch.start + batch.counts[b]
            for offsets, _ in prefix.reads:
                rows.append(batch.hidden[b, torch.tensor(offsets, device=self.device) + behind])
        targets = [torch.tensor(ids, device=self.device) for p in prefixes for _, ids in p.reads]
        logits = self.head(self.norm(torch.cat(rows))).float()
        wanted = torch.cat(targets)
        nll = torch.nn.functional.cross_entropy(logits, wanted, reduction="none")
        hit = logits.argmax(-1) == wanted
        sizes = [len(t) for t in targets]
        losses = [part.mean().item() for part in torch.split(nll, sizes)]
        greedy = [bool(part.all()) for part in torch.split(hit, sizes)]
        return [Answer(*pair) for pair in zip(losses[::2], losses[1::2], greedy[::2], greedy[1::2], strict=True)]

    @torch.inference_mode()
    def generate(
        self, prefix: Prefix, max_new_tokens: int, stop_ids: frozenset[int], cutter: Cutter | None = None
    ) -> list[int]:
        """Greedy continuation of one branch-free prefix with a key-value cache.

        After a cut, layers hold caches of different lengths; a single query token attends to all of its layer's
        cache, so no mask is needed while decoding.
        """
        from transformers import DynamicCache

        cache = DynamicCache()
        batch = self.run(self.collate([prefix]), cutter, cache)
        hidden, position = batch.hidden[:, -1:], int(prefix.positions[:, -1].max())
        produced: list[int] = []
        while len(produced) < max_new_tokens:
            token = int(self.head(self.norm(hidden[0, -1])).argmax())
            if token in stop_ids:
                break
            produced.append(token)
            position += 1
            hidden = self.embed([token])[None]
            rotary = self.rotary(hidden, torch.full((self.axes, 1, 1), position, device=self.device))
            for layer in self.layers:
                hidden = layer(hidden, position_embeddings=rotary, past_key_values=cache, use_cache=True)
        return produced
