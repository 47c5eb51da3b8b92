"""The pages of docs/reference say what the code says."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

import sightline
from sightline.answering.scorers import SCORERS
from sightline.auditing.config import AuditConfig
from sightline.cli import app
from sightline.core.row import IMAGE_COLUMNS, ROW_COLUMNS
from sightline.interventions import INTERVENTIONS
from sightline.selectors import SELECTORS
from sightline.statistics.metrics import METRICS
from tests.conftest import REPOSITORY
from tests.warm_python import run_python

DOCS = REPOSITORY / "docs"


@pytest.fixture(scope="module")
def reference() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        yield importlib.import_module("reference")


@pytest.fixture(scope="module")
def wording(reference: ModuleType) -> ModuleType:
    return importlib.import_module("wording")


def page(name: str) -> str:
    return (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8")


def test_every_page_is_current_and_none_is_left_over(tmp_path: Path) -> None:
    """In a process of its own: other tests may have registered things."""
    run_python([str(DOCS / "reference.py"), str(tmp_path)], cwd=REPOSITORY).check_returncode()
    made = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert set(made) == {path.name for path in (DOCS / "reference").iterdir()}
    for name, text in made.items():
        assert (DOCS / "reference" / name).read_text(encoding="utf-8") == text, f"{name} is stale: run make reference"


def test_every_column_has_a_sentence() -> None:
    scored = [column for _, kind in SCORERS.items() for column in kind.columns]
    for field in [*ROW_COLUMNS, *scored, *IMAGE_COLUMNS]:
        assert re.search(rf"^\| `{field.name}` \| [\w ]+ \| .*\. \|$", page("rows"), re.MULTILINE), field.name


def test_every_name_that_a_user_can_write_is_there() -> None:
    for name in SELECTORS:
        assert f"\n## `{name}`\n" in page("selectors")
    for name in METRICS:
        assert f"| `{name}` |" in page("metrics")
    for name in INTERVENTIONS:
        assert f"`+{name}" in page("interventions")
    for name in AuditConfig.model_fields:
        assert f"| `{name}` |" in page("config")
    for name in sightline.__all__:
        assert f"\n## `{name}`\n" in page("python")


def test_every_command_stands_there_with_its_options() -> None:
    text = page("commands")
    for name, node in commands(typer.main.get_command(app), "sightline"):
        section = text.split(f"\n## `{name}`\n")[1].split("\n## ")[0]
        for parameter in node.params:
            assert parameter.hidden or parameter.opts[0] in section or parameter.metavar in section, parameter.name


def commands(node: Any, name: str) -> Iterator[tuple[str, Any]]:
    yield name, node
    for below in node.list_commands(None) if hasattr(node, "list_commands") else ():
        child = node.get_command(None, below)
        if not child.hidden:
            yield from commands(child, f"{name} {below}")


def test_every_registry_is_found_once_and_has_its_section(reference: ModuleType) -> None:
    homes = {home.registry: home for home in reference.homes()}
    assert homes[SELECTORS].module == "sightline.selectors"
    assert homes[INTERVENTIONS].variable == "INTERVENTIONS"
    assert len(homes) == len(reference.homes()), "a registry is found in two places"
    for registry in homes:
        assert f"\n## {registry.kind}\n" in page("registries")


def test_every_registered_thing_says_what_it_is() -> None:
    lines = re.findall(r"^\| `[^`]+` \| .*$", page("registries"), re.MULTILINE)
    assert len(lines) > len(SELECTORS.names())
    assert [line for line in lines if line.endswith("|  |")] == []


def test_every_entry_point_group_stands_in_the_architecture(reference: ModuleType) -> None:
    listed = re.findall(
        r"^\| `(sightline\.\w+)` \|", (DOCS / "architecture.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    groups = {home.registry._group for home in reference.homes()} - {None}
    assert groups <= set(listed)
    assert len(listed) == len(set(listed))


def test_contributing_says_how_to_add_to_every_registry(reference: ModuleType) -> None:
    page = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for home in reference.homes():
        line = next(line for line in page.splitlines() if f"| `{home.variable}`, `sightline." in line)
        folder = re.search(r"`(src/sightline/[\w/]+)/`", line)
        assert folder is not None
        assert (REPOSITORY / folder[1]).is_dir(), line
        assert home.registry._package in (None, folder[1].removeprefix("src/").replace("/", "."))
        assert home.registry._group in (None, re.findall(r"`(sightline\.\w+)`", line)[0])


def test_prose_keeps_code_spans_and_disarms_the_rest(wording: ModuleType) -> None:
    assert wording.prose("a_i * <b>\n  ``x_y`` [0, 1]") == r"a\_i \* \<b\> ``x_y`` \[0, 1\]"


def test_a_pipe_does_not_end_the_cell_of_a_table(wording: ModuleType) -> None:
    assert wording.code("int | None") == "<code>int &#124; None</code>"
    assert wording.code("int") == "`int`"


def test_a_signature_reads_as_it_was_written(wording: ModuleType) -> None:
    def example(self: object, a: int | None, *, b: str = "x") -> list[int]:
        return []

    assert wording.signature(example) == "(a: int | None, *, b: str = 'x') -> list[int]"
