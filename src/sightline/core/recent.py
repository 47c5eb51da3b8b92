"""A mapping that holds what was used last and forgets the rest: memory does not grow with the number of keys."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


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
