"""What a policy is: a budget for every sample, out of a few levels of one selector.

An arm names it, ``policy:confidence_fallback:target:0.3/0.7:threshold=1.2``, and the heart asks it again and again: at
which level is this probe to be answered next? A policy that knows the level beforehand says it at once and stops behind
the first answer. A cascade begins at the lowest level, looks at what was answered, and goes up or stops.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from sightline.core.registry import Registry
from sightline.core.selection import Budget, Ranges
from sightline.errors import SightlineError
from sightline.places.listing import file_errors, read_whole

POLICIES: Registry[type[Policy]] = Registry("policy", group="sightline.policies", package="sightline.policies")
"""Every known policy. ``@POLICIES.register("name")`` above a class is all that a new one needs."""

Reads = Literal["masks", "scores", "confidence"]
"""``masks``: what the selector keeps at every level. ``scores``: what it ranks tokens by. ``confidence``: how sure an
answer is, which not every scorer says."""
Objective = Literal["penalised", "least_keep"]
Noticed = Mapping[str, Any]
"""Numbers by name, or lists of them with one per level: what a policy made of a sight. Rows keep it as JSON."""


@dataclass(frozen=True)
class Sight:
    """What may be looked at before anything is answered: what the selector sees, never answers, label or regions."""

    probe_id: str
    question: str
    cells: NDArray[np.float32]
    """(N, 4), the part of the image plane that each visual token originates from, as a run stores it."""
    masks: tuple[NDArray[np.bool_], ...] = ()
    """Per level (N,), the tokens that the selector keeps there; empty unless the policy reads masks."""
    scores: NDArray[np.float64] | None = None
    """(N,) what the selector ranks tokens by; None unless the policy reads scores."""


@dataclass(frozen=True)
class LevelAnswer:
    """An answer at one level as far as a policy may know it: what was said and how surely, not whether it is right."""

    budget: Budget
    answer: str
    confidence: float | None = None
    """|margin| in nats where the answer is yes or no; of a text the probability per token, exp(-answer_loss)."""

    @staticmethod
    def of(budget: Budget, values: Mapping[str, Any]) -> LevelAnswer:
        """From the columns of a row, or from those of them that a scorer gave."""
        margin, loss = (values.get(name) for name in CONFIDENCE_COLUMNS)
        confidence = None if margin is None else abs(float(margin))
        if confidence is None and loss is not None:
            confidence = float(np.exp(-float(loss)))
        return LevelAnswer(budget, str(values["predicted"]), confidence)


CONFIDENCE_COLUMNS = ("margin", "answer_loss")
"""A scorer whose rows have one of them says how sure an answer is."""


@dataclass(frozen=True)
class TuningSample:
    """One probe of a development set, answered at every level: what arguments are chosen by."""

    noticed: Noticed
    passes: Mapping[Budget, LevelAnswer]
    scores: Mapping[Budget, float]
    """How good each answer is, from 0 to 1."""


@dataclass(frozen=True)
class Policy(ABC):
    """Decides from what is noticed before an answer, or from the answers so far; its fields are its arguments."""

    name: ClassVar[str]
    reads: ClassVar[frozenset[Reads]] = frozenset()
    """What must be there for it; nothing else is computed."""
    ranges: ClassVar[Ranges] = {}
    """Of arguments for which not every number makes sense; an arm outside is refused."""
    tuned: ClassVar[tuple[str, ...]] = ()
    """Arguments that ``candidates`` chooses: what is noticed does not depend on them."""
    objective: ClassVar[Objective] = "penalised"
    """What ``sightline policy fit`` chooses arguments by: ``penalised``, the score less a price of tokens and false
    alarms; ``least_keep``, the fewest tokens whose scores stay near those of the reference."""

    def check_levels(self, levels: Sequence[Budget]) -> None:
        """Raises where it cannot choose among these, before a model is loaded; there are at least two, ascending."""
        return None

    def digest(self) -> str | None:
        """Of the file that it reads, if it reads one: rows decided by another file do not belong in one run."""
        return None

    def look(self, sight: Sight) -> Noticed:
        """What it decides on that is known before any answer."""
        return {}

    @abstractmethod
    def decide(self, levels: Sequence[Budget], noticed: Noticed, passes: Sequence[LevelAnswer]) -> Budget | None:
        """At which budget the probe is answered next; None: the last of ``passes``, of which there is one, counts."""

    @classmethod
    def untuned(cls, **given: Any) -> Self:
        """The policy with these arguments and the defaults of others; what is yet to be chosen may be missing."""
        known = {field.name for field in fields(cast(Any, cls)) if field.init}
        unknown = sorted(set(given) - known)
        if unknown:
            raise SightlineError(
                f"'{unknown[0]}' is not an argument of {cls.name}; it takes {', '.join(sorted(known))}"
            )
        made = object.__new__(cls)
        for name, value in given.items():
            object.__setattr__(made, name, value)
        return made

    def candidates(self, levels: Sequence[Budget], samples: Sequence[TuningSample]) -> Iterable[Policy]:
        """Policies worth trying, this one being untuned; by default itself, as there is nothing to choose."""
        return (self,)

    def contents(self) -> Mapping[str, Any] | None:
        """What a file that this policy is read from holds; None for one whose arguments say all."""
        return None

    def __str__(self) -> str:
        """Name and all arguments: ``confidence_fallback(threshold=1.2)``."""
        said = (f"{field.name}={getattr(self, field.name)}" for field in fields(self) if field.init)
        return f"{self.name}({', '.join(said)})"


@dataclass(frozen=True)
class FilePolicy(Policy):
    """A policy that reads a file, which its arm names."""

    file: str

    def digest(self) -> str:
        return sha256(read_bytes(self.file, self.name)).hexdigest()


def cuts(values: Iterable[float], count: int) -> list[float]:
    """Up to ``count`` thresholds between the values given, ascending and evenly spread over them.

    Each stands midway between two neighbours: rounding, which differs from batch to batch, moves nobody across.
    """
    ordered = np.unique(np.asarray(list(values), dtype=np.float64))
    between = (ordered[1:] + ordered[:-1]) / 2.0
    if len(between) == 0:
        return []
    places = np.unique(np.linspace(0, len(between) - 1, count).round().astype(int))
    return [float(value) for value in between[places]]


# Files that policies read: risks of samples, or what ``sightline policy fit`` found.


def read_bytes(file: str, policy: str) -> bytes:
    """The content of a file that a policy names."""
    with file_errors(f"{policy}: cannot read {file}"):
        return read_whole(Path(file))


def read_fitted(file: str, policy: str) -> Mapping[str, Any]:
    """The file's object, if it was fitted for this policy."""
    try:
        found = json.loads(read_bytes(file, policy))
    except (ValueError, RecursionError) as error:
        raise SightlineError(f"{policy}: {file} is not JSON: {error}") from None
    made_for = found.get("policy") if isinstance(found, dict) else None
    if made_for != policy:
        raise SightlineError(f"{policy}: {file} was made for {made_for or 'something else'}, by `sightline policy fit`")
    return found  # type: ignore[no-any-return]


def check_fitted_levels(fitted: str, levels: Sequence[Budget], policy: str) -> None:
    """Refuses other levels than those that a file was ``fitted`` on."""
    asked = "/".join(map(str, levels))
    if fitted != asked:
        raise SightlineError(f"{policy} was fitted for the levels {fitted}, not for {asked}")


# Where tokens stand in an image, in a number or two.

WIDEST = 0.5**0.5
"""Dispersion of weight that is split between opposite corners."""


def centres_of(cells: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """(N, 4) cells -> (N, 2) x and y of their middles."""
    boxes = cells.astype(np.float64)
    return (boxes[:, :2] + boxes[:, 2:]) / 2.0


def blocks_of(cells: NDArray[np.floating[Any]], side: int) -> NDArray[np.int64]:
    """(N,) which of side x side blocks of the image, row by row, holds the middle of each cell."""
    columns, rows = np.clip((centres_of(cells) * side).astype(np.int64), 0, side - 1).T
    blocks: NDArray[np.int64] = rows * side + columns
    return blocks


def dispersion(cells: NDArray[np.floating[Any]], weights: NDArray[np.float64]) -> float:
    """Root mean squared distance from the weighted centre, over its largest value; weights (N,) sum to 1."""
    places = centres_of(cells)
    away = places - weights @ places
    return min(1.0, float(np.sqrt(weights @ (away * away).sum(axis=1))) / WIDEST)
