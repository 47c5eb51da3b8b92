"""The model's own decoder, for language layers that our loop does not run as the model does.

Sliding windows, linear attention, masks that let an image's tokens see each other: the model's own code knows them. It
is called on embeddings, without the image, with positions and token types of what was kept. It has no branches: every
continuation is a sequence of its own, so the shared part is read once for each of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from sightline.backbones.language import Cutter, LanguageModel, Pending
from sightline.core.prefix import Prefix
from sightline.device.transfer import Arriving, on_device
from sightline.errors import SightlineError

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
            kinds[b, prefix.start + _places(prefix)] = IMAGE
            present[b, : len(slots)] = 1
        extra: dict[str, Any] = {name: on_device(self.token_types(kinds), self.device) for name in self._types}
        if not first.deepstack:
            return self.body(
                inputs_embeds=embeds,
                position_ids=positions if self.axes == 3 else positions[0],
                attention_mask=on_device(present, self.device),
                use_cache=use_cache,
                **extra,
            )
        visual = on_device(kinds == IMAGE, self.device)
        pruned = [tuple(level[on_device(_places(p), self.device)] for level in p.deepstack) for p, _ in sequences]
        return self.text_model(
            inputs_embeds=embeds,
            position_ids=positions if self.axes == 3 else positions[0],
            attention_mask=on_device(present, self.device),
            use_cache=use_cache,
            visual_pos_masks=visual,
            deepstack_visual_embeds=[torch.cat(level) for level in zip(*pruned, strict=True)],
        )

    @staticmethod
    def _slots(prefix: Prefix, branch: int) -> list[int]:
        """Slots of a prefix that its sequence with one of the branches has."""
        shared = prefix.embeds.shape[0] - prefix.branches
        sizes = prefix.branch_sizes
        first = shared + sum(sizes[:branch])
        return [*range(shared), *range(first, first + (sizes[branch] if sizes else 0))]


def _places(prefix: Prefix) -> Tensor:
    return torch.arange(prefix.k) if prefix.places is None else prefix.places
