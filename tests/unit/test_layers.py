"""The floor plan in docs/architecture.md: every import points downwards; and no two public classes have one name."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from benchmarks import walk

from tests.conftest import REPOSITORY

SOURCE = REPOSITORY / "src" / "sightline"
BESIDE = REPOSITORY / "packages"
PAGE = REPOSITORY / "docs" / "architecture.md"


def layers() -> list[list[str]]:
    """Lowest first: the lines of the page's table that begin with a number."""
    lines = re.findall(r"^\| (\d+) \| ([^|]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [int(number) for number, _ in lines] == list(range(1, len(lines) + 1))
    return [re.findall(r"`(\w+)`", names) for _, names in lines]


LEVEL = {unit: level for level, units in enumerate(layers()) for unit in units}


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def imported(file: Path) -> Iterator[list[str]]:
    """Every module that a file imports: at its top, inside a function, or for the type checker alone."""
    for node in ast.walk(parsed(file)):
        modules: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module]
            if node.module == "sightline":
                modules = [f"sightline.{alias.name}" for alias in node.names if alias.name in LEVEL]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        yield from (module.split(".") for module in modules)


def imports(unit: str) -> Iterator[tuple[Path, str]]:
    """Every import of another unit."""
    files = [SOURCE / f"{unit}.py"] if (SOURCE / f"{unit}.py").is_file() else sorted((SOURCE / unit).rglob("*.py"))
    for file in files:
        for parts in imported(file):
            if parts[0] == "sightline" and len(parts) > 1 and parts[1] != unit:
                yield file, parts[1]


def test_every_unit_has_its_layer_and_no_modules_import_one_another_in_a_circle() -> None:
    found = {path.stem for path in SOURCE.iterdir() if path.suffix in ("", ".py")}
    assert set(LEVEL) == found - {"__init__", "__pycache__", "assets"}
    assert sum(map(len, layers())) == len(LEVEL), "a unit stands in two layers"
    assert walk.cycles(walk.imports()) == []
    assert LEVEL["auditing"] > LEVEL["answering"] > LEVEL["core"]
    assert "core" in {other for _, other in imports("answering")}
    files = [*SOURCE.rglob("*.py"), *BESIDE.rglob("*.py")]
    nodes = (node for file in files for node in parsed(file).body if isinstance(node, ast.ClassDef))
    counts = Counter(node.name for node in nodes if not node.name.startswith("_"))
    assert [name for name, count in counts.items() if count > 1] == [], "two classes of one name"


@pytest.mark.parametrize("unit", sorted(LEVEL))
def test_imports_point_downwards(unit: str) -> None:
    upward = {
        f"{file.relative_to(SOURCE)} imports {other}"
        for file, other in imports(unit)
        if other in LEVEL and LEVEL[other] >= LEVEL[unit]
    }
    assert not upward


def test_packages_stand_on_this_one_alone_and_it_knows_none_of_them() -> None:
    folders = sorted(path for path in BESIDE.iterdir() if path.is_dir())
    assert [folder.name for folder in folders] == ["sightline_annotate", "sightline_leaderboard", "sightline_paper"]
    for folder in [SOURCE, *folders]:
        ours = {parts[0] for file in folder.rglob("*.py") for parts in imported(file) if "sightline" in parts[0]}
        assert ours <= {"sightline", folder.name}, folder.name
