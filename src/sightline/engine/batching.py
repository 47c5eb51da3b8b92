"""Scores many prefixes in few forwards: longest first, a token budget per batch, halved when memory runs out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from sightline.backbones.base import Backbone
from sightline.backbones.language import Answer, Cutter
from sightline.errors import SightlineError
from sightline.types import Prefix


def batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices grouped longest first so that (items x longest) stays within the budget; a single item always fits."""
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    groups: list[list[int]] = []
    for index in order:
        if groups and (len(groups[-1]) + 1) * lengths[groups[-1][0]] <= budget:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.cuda.OutOfMemoryError | MemoryError) or "not enough memory" in str(error)


def score_prefixes(
    backbone: Backbone,
    prefixes: Sequence[Prefix],
    budget: int,
    cutter_of: Callable[[Sequence[int]], Cutter | None] = lambda _: None,
) -> tuple[list[Answer], list[float]]:
    """Answers in the order given, and each row's share of its batch's milliseconds.

    ``cutter_of`` makes the cutter of a batch of indices, for methods that prune between layers. Batch composition
    depends on lengths and budget alone, so the same call gives the same bits.
    """
    answers: list[Answer | None] = [None] * len(prefixes)
    shares = [0.0] * len(prefixes)
    pending = batches([p.embeds.shape[0] for p in prefixes], budget)
    while pending:
        group = pending.pop(0)
        backbone.synchronise()
        started = time.perf_counter()
        try:
            scored = backbone.language.score([prefixes[i] for i in group], cutter_of(group))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if len(group) == 1:
                longest = prefixes[group[0]].embeds.shape[0]
                raise SightlineError(
                    f"out of memory on a single prefix of {longest} tokens; use a smaller model, dtype or image size"
                ) from error
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            half = len(group) // 2
            pending[:0] = [group[:half], group[half:]]
            continue
        backbone.synchronise()
        share = (time.perf_counter() - started) * 1e3 / len(group)
        for index, answer in zip(group, scored, strict=True):
            answers[index], shares[index] = answer, share
    return [a for a in answers if a is not None], shares
