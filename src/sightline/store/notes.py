"""What whoever computes a run finds out on the way, as small whole files beside ``run.json``.

Several processes may write to one run folder, so none of them changes a file that others change too: every note is a
file of its own, and reading the manifest puts them together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sightline.errors import SightlineError
from sightline.places import Listing, Place, read_whole
from sightline.places.listing import remove
from sightline.places.writing import create_new, make_within, write_whole

NOTES = "notes"
MOST_ERRORS, MOST_LOSSES = 2, 3
"""How often a piece of work may fail, and how often it may end the process that works on it, before it is set aside."""


@dataclass(frozen=True)
class Failure:
    """One time that some work went wrong."""

    task: str
    arms: tuple[str, ...]
    reason: str
    lost: bool
    """Whether it ended the process that worked on it."""


class Notes:
    """Those of one run folder. Names say what a note is about: ``bad.00003``, ``aside.<arm>``, ``failed.<task>.1``."""

    def __init__(self, folder: Place, files: Listing | None = None) -> None:
        self._place = folder / NOTES
        self._files = Listing(folder) if files is None else files
        """What lies in the run folder; of a URL, at its last look."""
        self._read: dict[str, dict[str, Any]] = {}

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        make_within(self._place.parent, self._place)
        write_whole(self._file(name), _encoded(content))
        self._files.added(self._file(name))

    def add(self, name: str, content: Mapping[str, Any]) -> None:
        """One more note under a name, numbered: none of several processes overwrites another's."""
        make_within(self._place.parent, self._place)
        number = 1
        while not create_new(self._file(f"{name}.{number}"), _encoded(content)):
            number += 1
        self._files.added(self._file(f"{name}.{number}"))

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._read.pop(name, None)
            remove(self._file(name))
            self._files.removed(self._file(name))

    def names(self, kind: str) -> list[str]:
        """Of one kind, in order; one listing."""
        files = sorted(file.name for file in self._files.within(NOTES))
        return [name.removesuffix(".json") for name in files if name.startswith(f"{kind}.") and name.endswith(".json")]

    def of_kind(self, kind: str) -> dict[str, dict[str, Any]]:
        """By name. One that another process removed meanwhile is left out."""
        found = {}
        for name in self.names(kind):
            try:
                content = json.loads(read_whole(self._file(name)))
                if not isinstance(content, dict):
                    raise ValueError("no mapping")
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                raise SightlineError(f"{self._file(name)} cannot be read ({error}); delete it") from None
            found[name] = content
        return found

    def failures(self) -> Failures:
        """What went wrong and was not forgiven since. A note never changes: it is read once."""
        names = self.names("failed")
        if any(name not in self._read for name in names):
            self._read = self.of_kind("failed")
        return Failures([_failure(self._read[name]) for name in names if name in self._read])

    def _file(self, name: str) -> Place:
        return self._place / f"{name}.json"


class Failures(list[Failure]):
    """What went wrong in a run so far."""

    @cached_property
    def _by_work(self) -> dict[tuple[str, str], list[Failure]]:
        found: dict[tuple[str, str], list[Failure]] = {}
        for failure in self:
            for arm in failure.arms:
                found.setdefault((failure.task, arm), []).append(failure)
        return found

    def times(self, task: str) -> int:
        """How often something went wrong with a task."""
        return sum(failure.task == task for failure in self)

    def losses(self, task: str, arm: str) -> int:
        """How often an arm of a task ended its worker."""
        return sum(failure.lost for failure in self._by_work.get((task, arm), []))

    def verdict(self, task: str, arm: str) -> str:
        """Why an arm of a task is set aside; "" where it is not."""
        own = self._by_work.get((task, arm), [])
        errors, losses = [one for one in own if not one.lost], [one for one in own if one.lost]
        if len(errors) >= MOST_ERRORS:
            return f"it failed {len(errors)} times ({errors[-1].reason})"
        if len(losses) >= MOST_LOSSES:
            return f"it ended its worker {len(losses)} times ({losses[-1].reason})"
        return ""

    def set_aside(self) -> dict[str, dict[str, str]]:
        """By task and arm, with the reason."""
        found: dict[str, dict[str, str]] = {}
        for task, arm in self._by_work:
            if reason := self.verdict(task, arm):
                found.setdefault(task, {})[arm] = reason
        return found


def _failure(record: Mapping[str, Any]) -> Failure:
    return Failure(str(record["task"]), tuple(record["arms"]), str(record["reason"]), bool(record["lost"]))


def _encoded(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, ensure_ascii=False) + "\n").encode()
