"""Every promise of SECURITY.md names a test that exists."""

from __future__ import annotations

import ast
import re

import pytest

from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "SECURITY.md").read_text(encoding="utf-8")
PROOFS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


def test_every_line_of_the_table_has_a_proof() -> None:
    lines = [line for line in PAGE.split("\n") if line.startswith("| ") and "| proof |" not in line]
    assert len(lines) > 50
    assert [line for line in lines if not re.search(r"\| `tests/[\w/]+\.py::test_\w+` \|$", line)] == []


@pytest.mark.parametrize(("file", "name"), PROOFS, ids=[name for _, name in PROOFS])
def test_a_proof_exists(file: str, name: str) -> None:
    tree = ast.parse((REPOSITORY / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
