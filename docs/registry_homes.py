"""Finds every registry of the package, so that none has to be listed."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from itertools import chain
from typing import Any, NamedTuple

import sightline
import sightline_paper
from sightline.core.registry import Registry


class Home(NamedTuple):
    """Where a registry lives."""

    module: str
    variable: str
    registry: Registry[Any]


def homes() -> list[Home]:
    """Every registry of the package, by the module that makes it, in alphabetical order of what it holds."""
    found = []
    walked = (pkgutil.walk_packages(each.__path__, f"{each.__name__}.") for each in (sightline, sightline_paper))
    for info in chain.from_iterable(walked):
        module = imported(info.name)
        held = {name: value for name, value in vars(module or object).items() if isinstance(value, Registry)}
        made = assigned(module) if held else set()
        found += [Home(info.name, name, value) for name, value in held.items() if name in made]
    return sorted(found, key=lambda home: home.registry.kind)


def assigned(module: Any) -> set[str]:
    """Names that a module assigns at its top level, those it imports left out."""
    names: set[str] = set()
    for node in ast.parse(inspect.getsource(module)).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names.update(target.id for target in targets if isinstance(target, ast.Name))
    return names


def imported(name: str) -> Any:
    """The module, or None for the program itself and for kernels whose compiler is not installed on this machine."""
    if name == "sightline.__main__":
        return None
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("sightline"):
            raise
        return None
