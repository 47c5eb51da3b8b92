"""Importing a file whose first lines ask for a package that what we need of it does not use."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, ClassVar


class _Nothing:
    """Whatever is taken from a package that is not there, down to the constants of its classes. It does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __or__(self, other: Any) -> Any:  # in annotations
        return self

    __ror__ = __or__


class _Hollow(ModuleType):
    """A module that has every name, and nothing behind it."""

    __path__: ClassVar[list[str]] = []  # type: ignore[misc]
    nothing: ClassVar[_Nothing] = _Nothing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.nothing, name)


class _Finder:
    """Answers for one package and whatever is below it."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] == self.package else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Hollow(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


@contextmanager
def stood_in(package: str) -> Iterator[None]:
    """Inside, ``import package`` succeeds where it is not installed; afterwards it fails as before.

    Modules that took something from the hollow package are forgotten too, so that the next one to import them is told.
    """
    if importlib.util.find_spec(package) is not None:
        yield
        return
    finder = _Finder(package)
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        if package in sys.modules:
            for name, module in list(sys.modules.items()):
                if isinstance(module, _Hollow) or _took_nothing(module):
                    del sys.modules[name]


def _took_nothing(module: ModuleType) -> bool:
    return any(value is _Hollow.nothing for value in list(getattr(module, "__dict__", {}).values()))
