"""One generic registry: decorator, lazy ``"module:attr"`` strings, entry points, "did you mean ...?"."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Generic, TypeVar, cast

from sightline.errors import SightlineError

T = TypeVar("T")


class Registry(Generic[T]):
    """Names to objects of one kind.

    Three ways in: the decorator ``@registry.register("name")``; a lazy ``registry.add("name", "package.module:attr")``
    that imports on first use; and, for other people's packages, an entry point in ``group``. A name is taken once.

    Parameters
    ----------
    kind: what the entries are, for messages ("selector").
    group: entry-point group searched on first lookup, or None.
    package: a package whose modules register themselves by decorator; imported on first lookup.
    """

    def __init__(self, kind: str, *, group: str | None = None, package: str | None = None) -> None:
        self.kind = kind
        self._group = group
        self._package = package
        self._entries: dict[str, T | str] = {}
        self._loaded = False

    def register(self, name: str) -> Callable[[T], T]:
        def decorate(entry: T) -> T:
            self.add(name, entry)
            return entry

        return decorate

    def add(self, name: str, entry: T | str) -> None:
        known = self._entries.get(name)
        # A package may name its class in an entry point and decorate it too: importing the first runs the second.
        same = isinstance(known, str) and known == f"{entry.__module__}:{getattr(entry, '__qualname__', '')}"
        if known is not None and known is not entry and not same:
            raise SightlineError(f"{self.kind} '{name}' is registered twice; rename one of the two")
        self._entries[name] = entry

    def get(self, name: str) -> T:
        self._load()
        if name not in self._entries:
            raise SightlineError(f"unknown {self.kind} '{name}'{self._suggestion(name)}")
        entry = self._entries[name]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = cast(T, getattr(importlib.import_module(module), attribute))
            self._entries[name] = entry
        return entry

    def names(self) -> list[str]:
        self._load()
        return sorted(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: str) -> bool:
        self._load()
        return name in self._entries

    def _suggestion(self, name: str) -> str:
        close = difflib.get_close_matches(name, self._entries, n=2)
        if close:
            return f"; did you mean {' or '.join(repr(c) for c in close)}?"
        return f"; known: {', '.join(sorted(self._entries))}"

    def _load(self) -> None:
        """Imports the self-registering package and the entry points, once, when somebody first asks."""
        if self._loaded:
            return
        self._loaded = True
        if self._package is not None:
            package = importlib.import_module(self._package)
            for module in pkgutil.iter_modules(package.__path__):
                importlib.import_module(f"{self._package}.{module.name}")
        if self._group is not None:
            for point in entry_points(group=self._group):
                if point.name not in self._entries:
                    self._entries[point.name] = point.value
