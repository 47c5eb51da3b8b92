"""Puts many prefixes to the language model in few forwards: longest first, a token budget per batch, halved when
memory runs out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sightline.answering.arm_pass import ArmPass
from sightline.answering.scorers import Reading, Scorer
from sightline.device.memory import FEWER, halved, in_halves
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

    batches: list[tuple[list[int], tuple[Reading, Stopwatch]]]
    halved: frozenset[int] = frozenset()
    """Prefixes that share a batch with fewer others than planned, since memory ran out."""

    def read(self) -> tuple[list[Any], list[float]]:
        """Results in the order of the prefixes, and each one's share of its batch's milliseconds; waits for them."""
        results: dict[int, Any] = {}
        shares: dict[int, float] = {}
        for group, (reading, watch) in self.batches:
            results.update(zip(group, reading.read(), strict=True))
            spent = getattr(reading, "spent_ms", None)
            shares.update(zip(group, [watch.ms] * len(group) if spent is None else spent, strict=True))
        return [results[i] for i in range(len(results))], [shares[i] for i in range(len(shares))]


def launch_batches(scorer: Scorer, passed: ArmPass, batch_tokens: int) -> LaunchedBatches:
    """Hands all batches of an arm to the device.

    Only a batch's own prefixes exist at a time. Batch composition depends on lengths and budget alone, so the same call
    gives the same bits.
    """
    backbone, lengths = passed.backbone, passed.lengths
    budget = passed.batch_tokens(batch_tokens)

    def launch(group: list[int]) -> tuple[Reading, Stopwatch]:
        prefixes = [passed.prefix(i) for i in group]
        watch = Stopwatch(backbone.language.device, shared_by=len(group))
        reading = scorer.launch(backbone, prefixes, passed.cutter(group, prefixes))
        watch.stop()
        return reading, watch

    def too_large(index: int) -> str:
        return f"a single prefix of {lengths[index]} tokens; use a smaller model, dtype or image size{FEWER}"

    def tokens(group: list[int]) -> int:
        return len(group) * max(lengths[i] for i in group)

    groups = []
    for members in passed.groups:
        groups += [[members[i] for i in group] for group in batches([lengths[i] for i in members], budget)]
    launched = in_halves(groups, launch, too_large, tokens, backbone.limits["tokens"])
    return LaunchedBatches(launched, frozenset(halved(groups, launched)))
