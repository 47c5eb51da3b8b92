"""Really shortens the prefix: tokens, DeepStack levels and positions pruned by one plan, every count checked."""

from __future__ import annotations

import torch
from torch import Tensor

from sightline.backbones.base import Backbone
from sightline.engine.transfer import on_device
from sightline.errors import SightlineError
from sightline.types import Encoded, PositionPolicy, Prefix, Prompt, Selection


def in_native_order(selection: Selection) -> Selection:
    """Outputs sorted by anchor, those without a cell first. What the framework does so that no method has to."""
    if not selection.native_order:
        return selection
    order = torch.argsort(selection.anchors, stable=True)
    mix = None if selection.mix is None else selection.mix[on_device(order, selection.mix.device)]
    return Selection(selection.anchors[order], mix, selection.merge_at)


def check_selection(selection: Selection, n: int, k: int, selector: str) -> None:
    """K outputs, distinct anchors within 0..N-1 (or -1), a mix of matching shape. A mismatch is never silent."""
    check_shapes(selection, n, k, selector)
    check_anchors(selection.anchors.cpu(), n, selector, merges=selection.mix is not None)


def check_shapes(selection: Selection, n: int, k: int, selector: str) -> None:
    """The part of the check that needs no value, so that it never waits for the device."""
    anchors, mix = selection.anchors, selection.mix
    if len(anchors) != k:
        raise SightlineError(f"selector {selector} returned {len(anchors)} tokens where the budget is {k}")
    if mix is not None and (mix.shape[0] != k or mix.shape[1] not in (n, n + 1)):
        raise SightlineError(f"selector {selector} returned a mix of shape {tuple(mix.shape)} for {k} x {n}")


def check_anchors(anchors: Tensor, n: int, selector: str, *, merges: bool) -> None:
    """The part of the check that looks at the (K,) anchors themselves, on the host."""
    placed = anchors[anchors >= 0]
    if len(placed) and int(placed.max()) >= n:
        raise SightlineError(f"selector {selector} chose token {int(placed.max())} of {n}")
    if len(torch.unique(placed)) != len(placed):
        raise SightlineError(f"selector {selector} chose a token twice")
    if not merges and len(placed) != len(anchors):
        raise SightlineError(f"selector {selector} returned a token without a source but no mix")


def lineage_mask(selection: Selection, n: int) -> Tensor:
    """(N,) bool: every visual token that contributes to some output."""
    if selection.mix is not None:
        return contributing(selection.mix, n).cpu()
    mask = torch.zeros(n, dtype=torch.bool)
    mask[selection.anchors.cpu()] = True
    return mask


def contributing(mix: Tensor, n: int) -> Tensor:
    """(N,) bool, where the (K, N) or (K, N + 1) mix is: the visual tokens that some output is mixed from."""
    return (mix[:, :n] != 0).any(dim=0)


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


@torch.inference_mode()
def materialise(
    backbone: Backbone,
    encoded: Encoded,
    prompt: Prompt,
    selection: Selection,
    policy: PositionPolicy,
    *,
    branches: bool = True,
) -> Prefix:
    """The shortened sequence for one probe and arm, with both answer branches behind it unless ``branches=False``."""
    language = backbone.language
    tokens, deepstack = visual_tokens(backbone, encoded, selection)
    anchors = on_device(selection.anchors, tokens.device)
    k, head = len(anchors), len(prompt.head)
    if tokens.shape[0] != k or any(level.shape[0] != k for level in deepstack):
        raise SightlineError(
            f"materialised {tokens.shape[0]} tokens and {[len(d) for d in deepstack]} levels for K = {k}"
        )

    shared = prompt.shared if branches else prompt.tail
    # The last token of a branch is only ever predicted, never read, so it needs no slot.
    inputs = (prompt.yes[:-1], prompt.no[:-1]) if branches else ((), ())
    text = language.embed([*prompt.head, *shared, *inputs[0], *inputs[1]])
    embeds = torch.cat([text[:head], tokens.to(text.dtype), text[head:]])

    visual, following = backbone.visual_positions(encoded, anchors, head, policy)
    offsets = [*range(len(shared))]
    for branch in inputs:
        offsets += range(len(shared), len(shared) + len(branch))
    behind = on_device(offsets, tokens.device) + following
    before = torch.arange(head, device=tokens.device)
    axes = backbone.axes
    positions = torch.cat([before.expand(axes, -1), visual, behind.expand(axes, -1)], dim=1)
    segments = torch.zeros(embeds.shape[0], dtype=torch.long, device=tokens.device)
    first = head + k + len(shared)
    segments[first : first + len(inputs[0])] = 1
    segments[first + len(inputs[0]) :] = 2 if inputs[1] else 0
    if positions.shape[1] != embeds.shape[0]:
        raise SightlineError(f"{embeds.shape[0]} embeddings but {positions.shape[1]} positions")
    return Prefix(
        embeds=embeds,
        positions=positions,
        segments=segments,
        start=head,
        k=k,
        deepstack=deepstack,
        reads=_reads(prompt) if branches else (),
        prompt_length=prompt.prompt_length(k) if branches else prompt.full_length(k),
        full_length=prompt.full_length(encoded.n),
    )


def _reads(prompt: Prompt) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """For each branch the scored tokens and the slots (behind the visual ones) whose logits predict them.

    A token at index i of the complete sequence is predicted at index i - 1. Scored are the tokens that the complete
    sequence has beyond the prompt, some of which both branches may share.
    """
    shared, scored = len(prompt.shared), len(prompt.tail)
    reads = []
    for branch, lead in ((prompt.yes, 0), (prompt.no, len(prompt.yes) - 1)):
        complete = (*prompt.shared, *branch)
        rows = []
        for index in range(scored, len(complete)):
            slot = index - 1
            rows.append(slot if slot < shared else slot + lead)
        reads.append((tuple(rows), complete[scored:]))
    return tuple(reads)
