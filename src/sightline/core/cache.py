"""What is kept because making it takes long: in memory, the values used last; on disk, files from run to run."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from sightline.errors import SightlineError
from sightline.places.writing import write_whole

Key = TypeVar("Key")
Value = TypeVar("Value")


# In memory: what was used last is held and the rest forgotten, so that memory does not grow with the number of keys.


class Recent(Generic[Key, Value]):
    """At most ``size`` values, each made when it is first asked for, or again after it was forgotten."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._held: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        if key not in self._held:
            self._held[key] = make()
            if len(self._held) > self.size:
                self._held.popitem(last=False)
        self._held.move_to_end(key)
        return self._held[key]

    def clear(self) -> None:
        self._held.clear()

    def __len__(self) -> int:
        return len(self._held)


# On disk, from run to run: one folder, and files that are whole or absent.


def cache_folder() -> Path:
    """Where results are remembered: ``SIGHTLINE_CACHE``, else the user's cache folder."""
    if "SIGHTLINE_CACHE" in os.environ:
        return Path(os.environ["SIGHTLINE_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sightline"


def remember(file: Path, content: bytes) -> None:
    """Whoever reads at the same time sees all of it or nothing."""
    try:
        write_whole(file, content, make_parent=True)
    except SightlineError as error:
        raise SightlineError(
            f"cannot remember a result in {file.parent}: {error}; name another folder in SIGHTLINE_CACHE"
        ) from None
