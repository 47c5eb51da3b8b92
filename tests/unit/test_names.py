"""One word, one thing: no two modules and no two public classes of the package have the same name."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from tests.conftest import REPOSITORY

SOURCE = REPOSITORY / "src" / "sightline"
EVERYWHERE = {"__init__", "base"}
"""A package's own page, and what its registered objects have in common."""
COMMANDS = SOURCE / "commands"
"""Modules here are named after what a user types, which is what the package behind it is called too."""


def classes() -> Iterator[str]:
    for file in SOURCE.rglob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name


def twice(names: Iterator[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def test_no_two_modules_have_one_name() -> None:
    files = (file for file in SOURCE.rglob("*.py") if COMMANDS not in file.parents)
    assert twice(file.stem for file in files if file.stem not in EVERYWHERE) == BENCHMARKS_BY_NAME


def test_no_two_classes_have_one_name() -> None:
    assert twice(classes()) == []


BENCHMARKS_BY_NAME: list[str] = []
