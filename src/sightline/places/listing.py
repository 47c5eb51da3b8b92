"""What lies below a folder: of a store asked once for all files together, on a disk asked every time."""

from __future__ import annotations

import errno
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from sightline.places.addresses import Place, is_remote
from sightline.places.store_errors import told_of

MAGIC = "*?["


class Listing:
    """The files below a folder.

    A disk answers at once, so each question goes there. A store is asked for everything at the first question, a
    thousand files to a request, and again after ``refresh``; whoever writes or removes a file says so.
    """

    def __init__(self, folder: Place) -> None:
        self.folder: Any = folder

    @cached_property
    def _names(self) -> dict[str, list[str]]:
        """Folder below this one ("" is itself) -> sorted names of its files."""
        found: dict[str, list[str]] = defaultdict(list)
        root = self.folder.path.rstrip("/")
        try:
            with told_of(self.folder, "list"):
                entries = self.folder.fs.find(self.folder.path, detail=True)
        except FileNotFoundError:
            return found
        for name, entry in entries.items():
            if entry["type"] == "file" and name.startswith(f"{root}/"):
                below, _, last = name[len(root) + 1 :].rpartition("/")
                found[below].append(last)
        for names in found.values():
            names.sort()
        return found

    def refresh(self) -> None:
        """Forgets what a store said."""
        self.__dict__.pop("_names", None)

    def has(self, file: Place) -> bool:
        if not is_remote(self.folder):
            try:
                return bool(file.is_file())
            except OSError as error:
                if error.errno == errno.ENAMETOOLONG:  # no file has such a name
                    return False
                raise
        below, name = self._split(file)
        return _holds(self._names.get(below, []), name)

    def matching(self, pattern: str) -> list[Place]:
        """Files by a pattern of names, such as ``rows/*/00000.parquet``, sorted."""
        if not is_remote(self.folder):
            return sorted(self.folder.glob(pattern))
        below, _, last = pattern.rpartition("/")
        folders = sorted(filter(lambda name: fnmatchcase(name, below), self._names)) if _is_magic(below) else [below]
        return [self.folder / folder / name for folder in folders for name in self._named(folder, last)]

    def _named(self, folder: str, pattern: str) -> Iterator[str]:
        """Names of a folder that match, found by how they begin: a run has a file for every shard."""
        names, begins = self._names.get(folder, []), pattern[: _plain_length(pattern)]
        for name in names[bisect_left(names, begins) :]:
            if not name.startswith(begins):
                return
            if fnmatchcase(name, pattern):
                yield name

    def within(self, below: str) -> list[Place]:
        """Everything in one folder, in any order; nothing where there is no such folder."""
        if is_remote(self.folder):
            return [self.folder / below / name for name in self._names.get(below, [])]
        try:
            return list((self.folder / below).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return []
            raise

    def everything(self) -> list[str]:
        """Of a store: the names of all files, as they are called from the folder."""
        return [f"{below}/{name}".lstrip("/") for below, names in self._names.items() for name in names]

    def added(self, file: Place) -> None:
        """Notes that a file is written."""
        known = self.__dict__.get("_names")
        if known is not None:
            below, name = self._split(file)
            names = known.setdefault(below, [])
            if not _holds(names, name):
                insort(names, name)

    def removed(self, file: Place) -> None:
        """Notes that a file is gone."""
        known = self.__dict__.get("_names")
        if known is not None:
            below, name = self._split(file)
            if _holds(known.get(below, []), name):
                known[below].remove(name)

    def _split(self, file: Any) -> tuple[str, str]:
        below, _, name = file.path[len(self.folder.path.rstrip("/")) + 1 :].rpartition("/")
        return below, name


def _holds(names: list[str], name: str) -> bool:
    at = bisect_left(names, name)
    return at < len(names) and names[at] == name


def _is_magic(pattern: str) -> bool:
    return _plain_length(pattern) < len(pattern)


def _plain_length(pattern: str) -> int:
    """How many characters of a pattern stand for themselves."""
    return next((i for i, letter in enumerate(pattern) if letter in MAGIC), len(pattern))
