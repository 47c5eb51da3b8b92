"""Really shortens the prefix: tokens, DeepStack levels and positions pruned by one plan, every count checked."""

from __future__ import annotations

import torch
from torch import Tensor

from sightline.backbones.base import Backbone
from sightline.core.prefix import Encoded, PositionPolicy, Prefix, Prompt
from sightline.core.selection import Selection
from sightline.core.span import KeptSpan, Separators
from sightline.device.transfer import on_device
from sightline.errors import SightlineError


def visual_tokens(backbone: Backbone, encoded: Encoded, selection: Selection) -> tuple[Tensor, tuple[Tensor, ...]]:
    """(K, D) tokens and DeepStack levels after deletion or merging.

    A merge multiplies by ``mix``: on projected tokens and every DeepStack level alike, or on vision hidden states
    that are projected afterwards.
    """
    device = encoded.tokens.device
    if selection.mix is None:
        anchors = on_device(selection.anchors, device)
        if device.type == "cuda":  # checked when results are read; until then a wrong index must not stop the device
            anchors = anchors.clamp(0, encoded.n - 1)
        return encoded.tokens[anchors], tuple(level[anchors] for level in encoded.deepstack)
    mix = on_device(selection.mix, device).to(encoded.tokens.dtype)
    if selection.merge_at == "vision":
        return backbone.project(mix @ backbone.merge_sources(encoded)[: mix.shape[1]]), ()
    return mix @ encoded.tokens, tuple(mix @ level for level in encoded.deepstack)


def with_separators(
    tokens: Tensor, deepstack: tuple[Tensor, ...], separators: Separators, kept: KeptSpan
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """(K, D) tokens and DeepStack levels with the separators that stay between them, (K + S', D)."""
    order = on_device(kept.order, tokens.device)
    levels = zip(deepstack, separators.deepstack, strict=True)
    return (
        torch.cat([tokens, separators.embeds.to(tokens.dtype)])[order],
        tuple(torch.cat([level, between])[order] for level, between in levels),
    )


@torch.inference_mode()
def materialise(
    backbone: Backbone,
    encoded: Encoded,
    prompt: Prompt,
    selection: Selection,
    policy: PositionPolicy,
    kept: KeptSpan | None = None,
) -> Prefix:
    """The shortened sequence for one probe and arm, with a branch behind it for every continuation of the prompt.

    ``kept`` is what stays of a span with separators; without any there is nothing to know beyond the selection.
    """
    language = backbone.language
    tokens, deepstack = visual_tokens(backbone, encoded, selection)
    slots = on_device(selection.anchors, tokens.device)
    k, head, shared = len(slots), len(prompt.head), len(prompt.shared)
    if tokens.shape[0] != k or any(level.shape[0] != k for level in deepstack):
        raise SightlineError(
            f"materialised {tokens.shape[0]} tokens and {[len(d) for d in deepstack]} levels for K = {k}"
        )
    if encoded.separators is not None:
        kept = kept or KeptSpan.of(encoded.separators, selection.anchors.cpu(), encoded.n)
        tokens, deepstack = with_separators(tokens, deepstack, encoded.separators, kept)
        slots = on_device(kept.slots, tokens.device)
    span = len(slots)

    # The last token of a branch is only ever predicted, never read, so it needs no slot.
    inputs = [each[:-1] for each in prompt.continuations]
    text = language.embed([*prompt.head, *prompt.shared, *(token for branch in inputs for token in branch)])
    embeds = torch.cat([text[:head], tokens.to(text.dtype), text[head:]])

    visual, following = backbone.visual_positions(encoded, slots, head, policy)
    offsets = [*range(shared)]
    segments = torch.zeros(embeds.shape[0], dtype=torch.long, device=tokens.device)
    first = head + span + shared
    for number, branch in enumerate(inputs, start=1):
        offsets += range(shared, shared + len(branch))
        segments[first : first + len(branch)] = number
        first += len(branch)
    behind = on_device(offsets, tokens.device) + following
    before = torch.arange(head, device=tokens.device)
    axes = backbone.axes
    positions = torch.cat([before.expand(axes, -1), visual, behind.expand(axes, -1)], dim=1)
    if positions.shape[1] != embeds.shape[0]:
        raise SightlineError(f"{embeds.shape[0]} embeddings but {positions.shape[1]} positions")
    return Prefix(
        embeds=embeds,
        positions=positions,
        segments=segments,
        start=head,
        k=k,
        branch_sizes=tuple(map(len, inputs)),
        deepstack=deepstack,
        reads=_reads(prompt),
        prompt_length=prompt.prompt_length(span),
        full_length=prompt.full_length(encoded.full_slots),
        places=None if kept is None else kept.places,
        separators=span - k,
    )


def _reads(prompt: Prompt) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """For each branch the scored tokens and the slots (behind the visual ones) whose logits predict them.

    A token at index i of the complete sequence is predicted at index i - 1. Scored are the tokens that the complete
    sequence has beyond the prompt, some of which all branches may share.
    """
    shared, lead, reads = len(prompt.shared), 0, []
    for branch, scored in zip(prompt.continuations, prompt.scored, strict=True):
        slots = range(len(prompt.tail) - 1, shared + len(branch) - 1)
        reads.append((tuple(slot if slot < shared else slot + lead for slot in slots), scored))
        lead += len(branch) - 1
    return tuple(reads)
