"""The documentation is code's: tables are current, and every Python block runs."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from sightline.backbones.signals import BLOCK_KINDS, HIDDEN_KINDS, LANGUAGE_KINDS, LAYERLESS_KINDS
from sightline.selectors import SELECTORS
from tests.conftest import REPOSITORY
from tests.warm_python import run_python

DOCS = REPOSITORY / "docs"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_tables_are_current(generate: ModuleType, data: Path) -> None:
    for path, text in generate.documents(data / "golden").items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is stale: run python docs/generate.py"


def test_every_method_and_signal_is_documented() -> None:
    methods = (DOCS / "methods.md").read_text(encoding="utf-8")
    signals = (DOCS / "signals.md").read_text(encoding="utf-8")
    for name in SELECTORS:
        assert f"| `{name}` |" in methods
        kind = SELECTORS.get(name)
        selector = kind(file="x") if name == "masks" else kind()  # type: ignore[call-arg]
        for need in selector.needs:
            assert f"`{need.partition('@')[0]}" in signals, need


def test_the_table_of_signals_is_complete(generate: ModuleType) -> None:
    kinds = {name.partition("@")[0] for name, _, _ in generate.SIGNALS}
    assert kinds == {*HIDDEN_KINDS, *BLOCK_KINDS, *LAYERLESS_KINDS, *LANGUAGE_KINDS}


def test_every_published_method_names_its_paper(generate: ModuleType) -> None:
    without = {name for name in SELECTORS if not generate.reference(SELECTORS.get(name))}
    assert without == {"full", "masks"}


def test_the_tutorial_runs_top_to_bottom() -> None:
    """In a process of its own: it registers selectors."""
    text = (DOCS / "write-a-selector.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 6
    script = "\n".join(blocks) + "\nprint('read to the end')"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = run_python(["-c", script], env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "read to the end"


def test_the_commands_of_the_tutorial_exist() -> None:
    from sightline.commands import bench, run
    from sightline.commands import new_package as new_selector

    text = (DOCS / "write-a-selector.md").read_text(encoding="utf-8")
    assert "sightline new-selector" in text
    assert "sightline bench select" in text
    assert callable(new_selector.new_selector)
    assert callable(run.run)
    group: Any = typer.main.get_command(bench.app)
    commands = set(group.list_commands(None))
    assert commands == {"answers", "prefill", "repeated", "ttft", "sweep", "select"}
