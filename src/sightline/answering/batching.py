"""Scores many prefixes in few forwards: longest first, a token budget per batch, halved when memory runs out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sightline.backbones.base import Backbone
from sightline.backbones.language import Answer, Cutter, Pending
from sightline.core.prefix import Prefix
from sightline.device.memory import FEWER, in_halves
from sightline.device.stopwatch import Stopwatch


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


@dataclass(frozen=True)
class LaunchedBatches:
    """Batches that the device may still be working on, each with the indices of its prefixes and its time."""

    batches: list[tuple[list[int], tuple[Pending, Stopwatch]]]

    def read(self) -> tuple[list[Answer], list[float]]:
        """Answers in the order of the prefixes, and each one's share of its batch's milliseconds; waits for them."""
        answers: dict[int, Answer] = {}
        shares: dict[int, float] = {}
        for group, (result, watch) in self.batches:
            for index, answer in zip(group, result.answers(), strict=True):
                answers[index], shares[index] = answer, watch.ms
        return [answers[i] for i in range(len(answers))], [shares[i] for i in range(len(shares))]


def launch_prefixes(
    backbone: Backbone,
    lengths: Sequence[int],
    prefix_of: Callable[[int], Prefix],
    budget: int,
    cutter_of: Callable[[Sequence[int], Sequence[Prefix]], Cutter | None] = lambda _, __: None,
) -> LaunchedBatches:
    """Hands all batches to the device.

    ``lengths`` are those of the prefixes that ``prefix_of`` makes: only a batch's own exist at a time. ``cutter_of``
    makes the cutter of a batch, for methods that prune between layers. Batch composition depends on lengths and budget
    alone, so the same call gives the same bits.
    """

    def launch(group: list[int]) -> tuple[Pending, Stopwatch]:
        prefixes = [prefix_of(i) for i in group]
        watch = Stopwatch(backbone.language.device, shared_by=len(group))
        result = backbone.language.launch(prefixes, cutter_of(group, prefixes))
        watch.stop()
        return result, watch

    def hopeless(index: int) -> str:
        return f"a single prefix of {lengths[index]} tokens; use a smaller model, dtype or image size{FEWER}"

    def tokens(group: list[int]) -> int:
        return len(group) * max(lengths[i] for i in group)

    limit = backbone.limits["tokens"]
    return LaunchedBatches(in_halves(batches(lengths, budget), launch, hopeless, tokens, limit))
