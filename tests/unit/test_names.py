"""One word, one thing: no two public classes have the same name. Modules may: a package is a namespace."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from tests.conftest import REPOSITORY

SOURCE = REPOSITORY / "src" / "sightline"


def classes() -> Iterator[str]:
    for file in SOURCE.rglob("*.py"):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name


def twice(names: Iterator[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def test_no_two_classes_have_one_name() -> None:
    assert twice(classes()) == []
