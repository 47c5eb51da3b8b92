"""In which order items come, which of them are taken, and which a second person sees too.

The suspicious come first, the others from every stratum; a hash draws the second sample, so that nobody chooses it.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from sightline.annotate.work_items import WorkItem
from sightline.errors import SightlineError

BATCH = 100


@dataclass(frozen=True)
class SamplingRule:
    """How a task is drawn."""

    n: int | None = None
    """How many items; None for all."""
    second: float = 0.2
    """Share of every batch that a second person annotates too."""
    seed: str = "second-sample-v1"
    """Enters the hash that draws the second sample."""
    batch: int = BATCH

    def __post_init__(self) -> None:
        if self.n is not None and self.n < 1:
            raise SightlineError(f"a task has at least one item, not {self.n}")
        if not 0.0 <= self.second <= 1.0:
            raise SightlineError(f"the share of the second sample is {self.second}, not between 0 and 1")
        if self.batch < 1:
            raise SightlineError(f"a batch has at least one item, not {self.batch}")


def drawn_items(items: Sequence[WorkItem], rule: SamplingRule) -> list[WorkItem]:
    """The items of a task: chosen, in batches, the second sample marked. ``items`` come in the order of their kind."""
    chosen = first_items(items, len(items) if rule.n is None else rule.n)
    batched = [replace(item, batch=place // rule.batch) for place, item in enumerate(chosen)]
    second = second_sample(batched, rule.second, rule.seed)
    return [replace(item, second=item.id in second) for item in batched]


def first_items(items: Sequence[WorkItem], n: int) -> list[WorkItem]:
    """Suspicious ones by id; then the rest as it comes or, if not all fit, one of each stratum in turn, by id."""
    suspicious = sorted((item for item in items if item.suspicion), key=lambda item: item.id)
    rest = [item for item in items if not item.suspicion]
    if n < len(items):
        strata = _grouped(sorted(rest, key=lambda item: item.id), lambda item: item.stratum)
        turns = zip_longest(*(strata[name] for name in sorted(strata)))
        rest = [item for turn in turns for item in turn if item is not None]
    return [*suspicious, *rest][:n]


def second_sample(items: Iterable[WorkItem], share: float, seed: str) -> frozenset[str]:
    """Ids drawn from every batch, in proportion to its difficulties, within each by ``sha256(seed|id)``."""
    chosen: set[str] = set()
    for batch in _grouped(items, lambda item: str(item.batch)).values():
        groups = _grouped(batch, lambda item: item.difficulty)
        quota = apportioned({name: len(own) for name, own in groups.items()}, round_half_up(share * len(batch)))
        for name, own in groups.items():
            ids = sorted((item.id for item in own), key=lambda id_: hashed(seed, id_))
            chosen.update(ids[: quota[name]])
    return frozenset(chosen)


def hashed(seed: str, item_id: str) -> str:
    return hashlib.sha256(f"{seed}|{item_id}".encode()).hexdigest()


def apportioned(sizes: Mapping[str, int], total: int) -> dict[str, int]:
    """``total`` seats in proportion to sizes, by largest remainder; ties go to the first name."""
    whole = sum(sizes.values())
    exact = {name: total * size / whole for name, size in sizes.items()}
    seats = {name: int(share) for name, share in exact.items()}
    left = total - sum(seats.values())
    for name in sorted(sizes, key=lambda name: (seats[name] - exact[name], name))[:left]:
        seats[name] += 1
    return seats


def round_half_up(value: float) -> int:
    return int(value + 0.5)


def _grouped(items: Iterable[WorkItem], name_of: Callable[[WorkItem], str]) -> dict[str, list[WorkItem]]:
    groups: dict[str, list[WorkItem]] = defaultdict(list)
    for item in items:
        groups[name_of(item)].append(item)
    return groups
