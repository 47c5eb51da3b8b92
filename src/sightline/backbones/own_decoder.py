"""The model's own decoder, for language layers that our loop does not run as the model does.

Sliding windows, linear attention, masks that let an image's tokens see each other: the model's own code knows them. It
is called on embeddings, without the image, with positions and token types of what was kept. It has no branches: every
continuation is a sequence of its own, so the shared part is read once for each of them. What cuts between layers has
it run in stages, see ``sightline.backbones.stages``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from sightline.backbones.batches import Batch, Cutter, padded_levels, token_places
from sightline.backbones.cuts import shortened
from sightline.backbones.decoder_trials import LAYER_TOKENS, LAYER_TOLERANCE, per_layer, relative_difference
from sightline.backbones.language import LanguageModel, Pending
from sightline.backbones.stages import SeenInStages, Stages
from sightline.core.prefix import Prefix
from sightline.device.work import Arriving, on_device
from sightline.errors import SightlineError, first_line

IMAGE, TEXT, CONTINUATION = 1, 0, 2
"""Kinds of slots, from which an architecture makes its token types."""
TOKEN_TYPES = ("token_type_ids", "mm_token_type_ids", "moe_mm_token_type_ids", "image_embeds_position_mask")
"""What models call the argument that tells them which tokens stand for an image."""
PER_LAYER = "per_layer_inputs"
"""What decoders call a table of every layer's own, looked up by the ids of tokens (Gemma 3n, Gemma 4 E2B and E4B)."""
LEVELS = {"visual_pos_masks": "deepstack_visual_embeds", "vision_mask": "deepstack_features"}
"""What decoders call the places of an image and what is added there behind one layer after the other, as a list; the
last by the layer that it is added before (Granite 4 Vision)."""
OF_THE_DECODER = (*LEVELS, PER_LAYER)
"""Arguments that often the decoder alone takes, not the model around it."""
OF_ATTENTION = frozenset(
    {
        "lm.attention", "lm.attention_last", "lm.query", "lm.key", "lm.value", "lm.bare_query", "lm.bare_key",
        "lm.rotary", "lm.scout",
    }
)  # fmt: skip
"""Signals that only a layer with attention weights has."""
OF_NEXT_ATTENTION = frozenset({"lm.next_attention", "lm.next_attention_last", "lm.next_query", "lm.next_key"})
OF_TABLES = frozenset({"lm.rotary", "lm.bare_query", "lm.bare_key"})
"""Signals that are made with a cosine and a sine of positions."""


def default_token_types(kinds: Tensor) -> Tensor:
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
        token_types: Callable[[Tensor], Tensor] = default_token_types,
    ) -> None:
        super().__init__(text_model, lm_head, axes)
        self.body, self.text_model, self.reason = body, text_model, reason
        self.first_position, self.token_types = first_position, token_types
        self._final_norm, self.norm = self.norm, torch.nn.Identity()  # the model's own forward ends with it
        self.plain = False
        self.reads_ids = per_layer(text_model.config)
        takes = inspect.signature(body.forward).parameters
        self._types = [name for name in TOKEN_TYPES if name in takes]
        self._of_the_decoder = [name for name in OF_THE_DECODER if name not in takes]
        self._levels = [name for name in LEVELS if name in inspect.signature(text_model.forward).parameters]
        self._whole = body
        self._changed = self._changes_embeddings()
        if self._changed and not self.reads_ids:
            self.body, self._types = text_model, []

    def launch(self, prefixes: Sequence[Prefix], cutter: Cutter | None = None) -> Pending:
        sequences = [(prefix, branch) for prefix in prefixes for branch in range(max(1, len(prefix.branch_sizes)))]
        with torch.inference_mode():
            batch = self._read(sequences, cutter)
            slots: list[int] = []
            wanted: list[int] = []
            for row, (prefix, branch) in enumerate(sequences):
                first = sum(prefix.branch_sizes[:branch])
                text = prefix.embeds.shape[0] - prefix.start - prefix.span - prefix.branches
                offsets, ids = prefix.reads[branch]
                behind = row * batch.hidden.shape[1] + prefix.start + batch.counts[row]
                slots += [behind + (offset if offset < text else offset - first) for offset in offsets]
                wanted += ids
            read, targets = on_device(torch.tensor([slots, wanted], dtype=torch.long), self.device)
            logits = self.head(batch.hidden.flatten(0, 1)[read]).float()
            nll = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
        sizes = [[len(ids) for _, ids in prefix.reads] for prefix in prefixes]
        return Pending(Arriving(nll), Arriving(logits.argmax(-1) == targets), sizes)

    def prefix_logits(self, prefix: Prefix) -> Tensor:
        with torch.inference_mode():
            found: Tensor = self.head(self._read([(prefix, 0)]).hidden[0])
        return found

    def read(self, prefixes: Sequence[Prefix], cutter: Cutter | None = None) -> Tensor:
        return self._read([(prefix, 0) for prefix in prefixes], cutter).hidden

    def decode(self, prefix: Prefix, cutter: Cutter | None = None) -> Iterator[int]:
        for logits in self.continued(prefix) if cutter is None else self.continued_past_cuts([prefix], cutter):
            yield int(logits.argmax())

    def continued(self, prefix: Prefix) -> Iterator[Tensor]:
        """(1, V) float32 logits of one next token after the other, the likeliest put behind a branch-free prefix."""
        position = int(prefix.positions[:, -1].max())
        with torch.inference_mode():
            batch, real = self._rows([(prefix, 0)])
            length = int(real)
            output = self._forward(**self._given(batch, real), use_cache=True)
            if output.past_key_values is None:  # the few that fill a cache but make none
                from transformers import DynamicCache

                cache = DynamicCache(config=self.config)
                output = self._forward(**self._given(batch, real), past_key_values=cache, use_cache=True)
        while True:
            with torch.inference_mode():
                logits = self.head(output.last_hidden_state[:, -1]).float()
            yield logits
            token = int(logits.argmax())
            position, length = position + 1, length + 1
            with torch.inference_mode():
                where = torch.full((self.axes, 1, 1), position + self.first_position, device=self.device)
                output = self._forward(
                    inputs_embeds=self.embed([token])[None],
                    attention_mask=torch.ones(1, length, dtype=torch.long, device=self.device),
                    position_ids=where if self.axes > 1 else where[0],
                    past_key_values=output.past_key_values,
                    use_cache=True,
                    **self._of_next(batch, token),
                )

    def _of_next(self, batch: Batch, token: int) -> dict[str, Any]:
        """What the model is told of a token behind the one sequence of a batch."""
        types = {name: self.token_types(torch.full((1, 1), CONTINUATION, device=self.device)) for name in self._types}
        return types | self._looked_up_per_layer(torch.tensor([[token]]) if self.reads_ids else None)

    def continued_past_cuts(self, prefixes: Sequence[Prefix], cutter: Cutter) -> Iterator[Tensor]:
        """(B, V) logits as of ``continued``, side by side, of prefixes that are cut on the way.

        The model's own cache knows one length for all layers, so prompt and answer are read anew for every token.
        """
        going = list(prefixes)
        while True:
            with torch.inference_mode():
                batch = self._read([(prefix, 0) for prefix in going], cutter)
                ends = [
                    prefix.embeds.shape[0] - 1 - prefix.span + count
                    for prefix, count in zip(going, batch.counts, strict=True)
                ]
                logits = self.head(batch.hidden[torch.arange(len(going)), ends]).float()
            yield logits
            with torch.inference_mode():
                going = [
                    replace(
                        prefix,
                        embeds=torch.cat([prefix.embeds, self.embed([int(token)])]),
                        positions=torch.cat(
                            [prefix.positions, (prefix.positions[:, -1:].max() + 1).expand(self.axes, 1)], dim=1
                        ),
                        segments=torch.cat([prefix.segments, prefix.segments.new_zeros(1)]),
                        ids=None if prefix.ids is None else torch.cat([prefix.ids, token[None].cpu()]),
                    )
                    for prefix, token in zip(going, logits.argmax(-1), strict=True)
                ]

    def _read(self, sequences: Sequence[tuple[Prefix, int]], cutter: Cutter | None = None) -> Batch:
        """(B, S, D) what the output head reads; one row for every prefix with one of its branches."""
        beyond = int(cutter is not None and cutter.follows)
        batch, real = self._rows(sequences, beyond)
        if cutter is None:
            batch.hidden = self._forward(**self._given(batch, real)).last_hidden_state
            return batch
        firsts = [row for row, (_, branch) in enumerate(sequences) if branch == 0]
        prefix_of = torch.tensor([branch == 0 for _, branch in sequences]).long().cumsum(0) - 1
        stages = Stages(self.layers, self.config, self._forward)
        state: Tensor | None = None
        for layer in (layer for layer in range(len(self.layers)) if cutter.wants(layer)):
            stages.run(layer, state, **self._given(batch, real, added=stages.done))
            batch.hidden = stages.state
            width = batch.hidden.shape[1]
            seen = SeenInStages(stages, layer, firsts, self._final_norm)
            choice = cutter.choose(rows_of(batch, torch.tensor(firsts)), layer, seen)
            if choice is not None:
                chosen, end = choice.rows(prefix_of), batch.start + batch.counts[0]
                batch = shortened(batch, chosen, layer)
                stages.shorten(chosen.left, batch.start, end)
            real, state = real - (width - batch.hidden.shape[1]), batch.hidden
        given = self._given(batch, real, added=stages.done)
        read: Tensor = stages.run(len(self.layers) - 1, state, **given).last_hidden_state
        batch.hidden = read[:, : read.shape[1] - beyond]
        return batch

    def _rows(self, sequences: Sequence[tuple[Prefix, int]], beyond: int = 0) -> tuple[Batch, Tensor]:
        """Prefixes with one of their branches each, side by side, kinds of slots for segments; their (B,) lengths.

        ``beyond``: so many empty slots behind each, for a token that stands behind the prompt.
        """
        chosen = [self._slots(prefix, branch) for prefix, branch in sequences]
        longest = max(map(len, chosen)) + beyond
        first = sequences[0][0]
        embeds = first.embeds.new_zeros(len(sequences), longest, first.embeds.shape[1])
        positions = torch.zeros(self.axes, len(sequences), longest, dtype=torch.long, device=self.device)
        kinds = torch.full((len(sequences), longest), CONTINUATION)
        ids = torch.zeros_like(kinds) if self.reads_ids else None
        for b, ((prefix, _), slots) in enumerate(zip(sequences, chosen, strict=True)):
            here = on_device(slots, self.device)
            embeds[b, : len(slots)] = prefix.embeds[here]
            positions[:, b, : len(slots)] = prefix.positions[:, here] + self.first_position
            positions[:, b, len(slots) : len(slots) + beyond] = positions[:, b, len(slots) - 1 : len(slots)] + 1
            kinds[b, : prefix.prompt_length] = TEXT
            kinds[b, prefix.start + token_places(prefix)] = IMAGE
            if ids is not None and prefix.ids is not None:
                ids[b, : len(slots)] = prefix.ids[slots]
        levels = padded_levels([prefix for prefix, _ in sequences])
        counts = [prefix.span for prefix, _ in sequences]
        batch = Batch(embeds, positions, on_device(kinds, self.device), levels, first.start, counts)
        if ids is not None:
            batch.ids, batch.embeds = on_device(ids, self.device), embeds
        return batch, torch.tensor([len(slots) + beyond for slots in chosen])

    def _given(self, batch: Batch, real: Tensor, added: int = 0) -> dict[str, Any]:
        """What the model's own forward takes; DeepStack features of the first ``added`` layers are in already."""
        kinds, positions = batch.segments, batch.positions
        present = torch.arange(kinds.shape[1]) < real[:, None]
        given: dict[str, Any] = {
            "inputs_embeds": batch.hidden if batch.embeds is None else batch.embeds,
            "position_ids": positions if self.axes > 1 else positions[0],
            "attention_mask": on_device(present.long(), self.device),
            **self._looked_up_per_layer(batch.ids),
        }
        if not batch.deepstack:
            return given | {name: self.token_types(kinds) for name in self._types}
        # To separators nothing is added that is not theirs: their levels are zeros, or features without a source.
        slots, counts = torch.arange(kinds.shape[1]), torch.tensor(batch.counts)[:, None]
        spans = on_device((slots >= batch.start) & (slots < batch.start + counts), self.device)
        within = [spans[:, batch.start : batch.start + level.shape[1]] for level in batch.deepstack]
        levels = [level[where] for level, where in zip(batch.deepstack[added:], within[added:], strict=True)]
        if "vision_mask" in self._levels:
            before = {layer: level for layer, level in enumerate(levels, added + 1) if level.shape[1]}
            return given | {"vision_mask": spans[..., None], "deepstack_features": before}
        nothing = [batch.hidden.new_zeros(sum(batch.counts), batch.hidden.shape[2])] * min(added, len(batch.deepstack))
        return given | {"visual_pos_masks": spans, "deepstack_visual_embeds": [*nothing, *levels]}

    def _forward(self, *, use_cache: bool = False, **given: Any) -> Any:
        """The model without its output head, or the decoder alone where only that takes what there is to say."""
        if not any(name in given for name in self._of_the_decoder):
            return self.body(**given, use_cache=use_cache)
        return self.text_model(**{k: v for k, v in given.items() if k not in self._types}, use_cache=use_cache)

    def _looked_up(self, ids: Tensor) -> Tensor:
        return self._told(ids[None])["inputs_embeds"][0] if self._changed else super()._looked_up(ids)

    def _changes_embeddings(self) -> bool:
        """Whether the model does something to embeddings of text before its decoder is handed them.

        Then it would do so to an image's tokens as well, were it given them: these are for the decoder alone.
        """
        ids = torch.arange(LAYER_TOKENS, device=self.device)
        try:
            with torch.inference_mode():
                heard = self._told(ids[None])["inputs_embeds"][0]
        except Exception:  # whatever it wants to know beside ids; then it is given embeddings as they are
            return False
        return self.reads_ids or not torch.equal(heard, self._embedding(ids))

    def _looked_up_per_layer(self, ids: Tensor | None) -> dict[str, Tensor]:
        return {} if ids is None else {PER_LAYER: self._told(on_device(ids, self.device))[PER_LAYER]}

    def _told(self, ids: Tensor) -> dict[str, Tensor]:
        """What the model itself hands its decoder for (B, S) ids: placeholders of an image by a rule of its own."""

        def hear(module: Any, given: Any, named: dict[str, Any]) -> None:
            raise _HeardError(named)

        hook = self.text_model.register_forward_pre_hook(hear, with_kwargs=True)
        try:
            self._whole(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False)
        except _HeardError as heard:
            return heard.named
        finally:
            hook.remove()
        raise SightlineError("its decoder is not what its own forward calls")

    @staticmethod
    def _slots(prefix: Prefix, branch: int) -> list[int]:
        """Slots of a prefix that its sequence with one of the branches has."""
        shared = prefix.embeds.shape[0] - prefix.branches
        sizes = prefix.branch_sizes
        first = shared + sum(sizes[:branch])
        return [*range(shared), *range(first, first + (sizes[branch] if sizes else 0))]

    def uncut(self, needs: Collection[str], layers: Iterable[int]) -> str | None:
        """Why a method that reads ``needs`` cannot cut after these layers; None where it can. Tried on a few tokens."""
        if "lm.scout" in needs and self.reads_ids:
            return "its layers look tokens up by their ids, and a token of a method's own has none"
        layers = list(layers)
        if "lm.normed" in needs and self._final_norm is None:
            return "its decoder has no final norm"
        if (reason := super().uncut(needs, layers)) is not None:
            return reason
        try:
            with torch.inference_mode():
                for layer in layers:
                    difference = self._in_parts(layer, bool(OF_TABLES.intersection(needs)))
                    if not difference <= LAYER_TOLERANCE.get(self.dtype, 3e-2):
                        return f"its decoder run in two parts, up to layer {layer} and on, gives something else"
                    next_one = min(layer + 1, len(self.layers) - 1)
                    for read, names in ((layer, OF_ATTENTION), (next_one, OF_NEXT_ATTENTION)):
                        if names.intersection(needs) and read not in self._attending:
                            those = ", ".join(map(str, sorted(self._attending))) or "none"
                            return f"its layer {read} has no attention weights (layers that have: {those})"
        except SightlineError as error:
            return str(error)
        except Exception as error:  # whatever keeps a decoder of somebody else from being run in parts
            return f"its decoder cannot be run in parts ({type(error).__name__}: {first_line(error)[:80]})"
        return None

    def _in_parts(self, layer: int, rotary: bool) -> float:
        """How far a few tokens read in two parts are from the same read at once; ``rotary``: tables are needed too."""
        batch, real = self._few_tokens()
        given = self._given(batch, real)
        stages = Stages(self.layers, self.config, self._forward)
        stages.run(layer, None, **given)
        if stages.state.dim() != 3:
            raise SightlineError("its layers hand on several states of every token")
        if rotary:
            stages.calls[layer].tables  # noqa: B018
        found = stages.run(len(self.layers) - 1, stages.state, **given).last_hidden_state
        return relative_difference(found, self._forward(**given).last_hidden_state)

    @cached_property
    def _attending(self) -> frozenset[int]:
        """Layers that have attention weights."""
        stages = Stages(self.layers, self.config, self._forward)
        batch, real = self._few_tokens()
        stages.run(len(self.layers) - 1, None, **self._given(batch, real))
        found = set()
        for layer in range(len(self.layers)):
            with suppress(SightlineError):
                stages.attended(layer)
                found.add(layer)
        return frozenset(found)

    def _few_tokens(self) -> tuple[Batch, Tensor]:
        ids = torch.arange(LAYER_TOKENS, device=self.device)
        embeds = self.embed([token % self._embedding.num_embeddings for token in range(LAYER_TOKENS)])[None]
        kinds = torch.full((1, LAYER_TOKENS), TEXT, device=self.device)
        positions = (ids + self.first_position).expand(self.axes, 1, -1)
        batch = Batch(embeds, positions, kinds, (), 0, [0])
        if self.reads_ids:
            batch.ids, batch.embeds = ids[None], embeds
        return batch, torch.tensor([LAYER_TOKENS])


class _HeardError(Exception):
    """What a decoder was to be called with: heard, and nothing more is wanted."""

    def __init__(self, named: dict[str, Any]) -> None:
        super().__init__()
        self.named = named


def rows_of(batch: Batch, rows: Tensor) -> Batch:
    """Some rows of a batch."""
    return Batch(
        batch.hidden[rows], batch.positions[:, rows], batch.segments[rows], (), batch.start,
        [batch.counts[row] for row in rows.tolist()],
    )  # fmt: skip
