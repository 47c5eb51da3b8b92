"""One generic registry: decorator, lazy ``"module:attr"`` strings, entry points, "did you mean ...?"."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from sightline.errors import SightlineError, named_line, nearest
from sightline.places.listing import file_errors, read_whole
from sightline.progress import say

T = TypeVar("T")


@dataclass(frozen=True)
class _Lazy:
    """An object that is imported when somebody first asks for it."""

    path: str
    """``package.module:attr``"""
    package: str = ""
    """The installed package that offers it; empty for one of Sightline's own."""


class Registry(Generic[T]):
    """Names to objects of one kind.

    Three ways in: the decorator ``@registry.register("name")``; a lazy ``registry.add("name", "package.module:attr")``
    that imports on first use; and, for other people's packages, an entry point in ``group``. A name is taken once: one
    that two packages claim, or whose import fails, is refused when it is asked for and hinders nothing else. A name of
    Sightline's own stays Sightline's, and whoever asks for it is told that a package offers another.

    Parameters
    ----------
    kind: what the entries are, for messages ("selector").
    group: entry-point group searched on first lookup, or None.
    package: a package whose modules register themselves by decorator; imported on first lookup.
    base: what entries that are classes derive from; another class is refused when it is registered or loaded.
    """

    def __init__(
        self,
        kind: str,
        *,
        group: str | None = None,
        package: str | None = None,
        base: tuple[type, ...] = (),
    ) -> None:
        self.kind = kind
        self._group = group
        self._package = package
        self._base = base
        self._entries: dict[str, T | _Lazy] = {}
        self._refused: dict[str, str] = {}
        self._shadowing: dict[str, str] = {}
        self._loaded = False

    def register(self, name: str) -> Callable[[T], T]:
        def decorate(entry: T) -> T:
            self.add(name, entry)
            return entry

        return decorate

    def add(self, name: str, entry: T | str) -> None:
        known = self._entries.get(name)
        # A package may name its class in an entry point and decorate it too: importing the first runs the second.
        same = known is entry or (isinstance(known, _Lazy) and known.path == _path(entry))
        if known is not None and not same:
            raise SightlineError(f"{self.kind} '{name}' is registered twice; rename one of the two")
        self._entries[name] = _Lazy(entry) if isinstance(entry, str) else self._checked(entry)

    def get(self, name: str) -> T:
        self._load()
        if name in self._refused:
            raise SightlineError(self._refused[name])
        if name not in self._entries:
            known = f"known: {', '.join(sorted(self._entries))}"
            raise SightlineError(f"unknown {self.kind} '{name}'; {nearest(name, self._entries, known, most=2)}")
        if name in self._shadowing:
            say(f"note: {self._shadowing.pop(name)}", err=True)
        entry = self._entries[name]
        if isinstance(entry, _Lazy):
            entry = self._entries[name] = self._import(name, entry)
        return entry

    def names(self) -> list[str]:
        self._load()
        return sorted(self._entries)

    def items(self) -> Iterator[tuple[str, T]]:
        """Names and entries that can be used here, by name; ``broken`` has the others."""
        for name in self.names():
            try:
                entry = self.get(name)
            except SightlineError:
                continue
            yield name, entry

    def broken(self) -> dict[str, str]:
        """Names that cannot be used here, and why, in one line each."""
        reasons = {}
        for name in self.names():
            try:
                self.get(name)
            except SightlineError as error:
                reasons[name] = str(error)
        return reasons

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __contains__(self, name: str) -> bool:
        self._load()
        return name in self._entries

    def _checked(self, entry: Any) -> T:
        if self._base and not (isinstance(entry, type) and issubclass(entry, self._base)):
            names = " or ".join(kind.__name__ for kind in self._base)
            raise SightlineError(f"{getattr(entry, '__qualname__', entry)} is no {self.kind}: derive it from {names}")
        return cast(T, entry)

    def _import(self, name: str, lazy: _Lazy) -> T:
        module, _, attribute = lazy.path.partition(":")
        try:
            return self._checked(getattr(importlib.import_module(module), attribute))
        except (Exception, SystemExit) as error:  # whatever somebody else's module does when it is imported
            source, way_out = "", ""
            if lazy.package:
                source, way_out = f" of package {lazy.package}", f"; repair or uninstall {lazy.package}"
            self._refused[name] = f"{self.kind} '{name}'{source} cannot be loaded ({named_line(error)}){way_out}"
            raise SightlineError(self._refused[name]) from error

    def _load(self) -> None:
        """Imports the self-registering package and the entry points, once, when somebody first asks."""
        if self._loaded:
            return
        self._loaded = True
        if self._package is not None:
            package = importlib.import_module(self._package)
            for module in pkgutil.iter_modules(package.__path__):
                importlib.import_module(f"{self._package}.{module.name}")
        for point in entry_points(group=self._group) if self._group is not None else ():
            self._offer(point)

    def _offer(self, point: EntryPoint) -> None:
        """Takes an entry point, unless its name belongs to something else already."""
        known = self._entries.get(point.name)
        package = point.dist.name if point.dist is not None else "another package"
        if known is None:
            self._entries[point.name] = _Lazy(point.value, package)
        elif _path(known) == point.value:
            return
        elif isinstance(known, _Lazy) and known.package:
            self._refused[point.name] = (
                f"{self.kind} '{point.name}' is offered by {known.package} and by package {package}; "
                f"rename it in {package} or uninstall that package"
            )
        else:
            self._shadowing[point.name] = (
                f"{self.kind} '{point.name}' is Sightline's own; that of package {package} is not used: "
                f"rename it in {package}"
            )


def _path(entry: Any) -> str:
    """Where an entry is defined, as entry points spell it."""
    if isinstance(entry, _Lazy):
        return entry.path
    return entry if isinstance(entry, str) else f"{entry.__module__}:{getattr(entry, '__qualname__', '')}"


# Python files that register something without being an installed package: ``sightline run --import my.py``.

_digests: dict[str, str] = {}
"""Of the content of every imported file, by the name of its module."""


def import_files(paths: Iterable[Path]) -> dict[str, str]:
    """Runs each file, so that its decorators register what it defines; returns digests by file name.

    A file is run once per process, however often it is named.
    """
    digests: dict[str, str] = {}
    for path in paths:
        digest = _import(path)
        if digests.setdefault(path.name, digest) != digest:
            raise SightlineError(f"--import: two files are called {path.name}; rename one of the two")
    return digests


def imported_digest(kind: type) -> str | None:
    """Of the imported file that a class was defined in; None for one of a package."""
    return _digests.get(kind.__module__)


def _import(path: Path) -> str:
    with file_errors(f"--import {path}: cannot be read"):
        digest = f"sha256:{sha256(read_whole(path)).hexdigest()}"
    name = f"sightline_imported_{path.stem}_{digest.removeprefix('sha256:')[:12]}"
    if name in _digests:
        return digest
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SightlineError(f"--import {path}: it is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _digests[name] = digest
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever somebody's file does
        del sys.modules[name], _digests[name]
        if isinstance(error, SightlineError):
            raise SightlineError(f"--import {path}: {error}") from error
        raise SightlineError(f"--import {path}: {named_line(error)}; sightline --debug shows where") from error
    return digest


def one_line_summary(entry: Any) -> str:
    """One line: what it says of itself, or the first of its docstring."""
    for said in ("definition", "description", "title"):
        if isinstance(getattr(entry, said, None), str):
            return str(getattr(entry, said))
    return (inspect.getdoc(entry) or "").partition("\n")[0]
