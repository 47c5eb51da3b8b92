"""docs/python.md: its code runs from top to bottom, and it shows every public name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sightline
from tests.conftest import REPOSITORY
from tests.warm_python import run_python

TEXT = (REPOSITORY / "docs" / "python.md").read_text(encoding="utf-8")
CODE = "\n".join(re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE))


@pytest.fixture(scope="module")
def place(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the page names, after its code has run there."""
    folder = tmp_path_factory.mktemp("python-page")
    (folder / "checkpoint").symlink_to(data / "tiny" / "qwen3vl")
    (folder / "images").symlink_to(data / "mini_textocr")
    (folder / "annotations.json").symlink_to(data / "mini_textocr" / "TextOCR_mini_val.json")
    (folder / "probes.jsonl").symlink_to(data / "recorded_run" / "probes.jsonl")
    done = run_python(["-c", CODE + "\nprint('read to the end')"], cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("read to the end")
    return folder


def test_its_code_runs_top_to_bottom(place: Path) -> None:
    assert (place / "runs" / "first" / "run.json").is_file()
    assert (place / "picture.png").is_file()


def test_its_command_writes_the_same_picture(place: Path) -> None:
    (line,) = re.findall(r"^    (sightline show .*)$", TEXT, re.MULTILINE)
    probe = sightline.load_run(place / "runs" / "first").probes[0]["id"]
    before = (place / "picture.png").read_bytes()
    (place / "picture.png").unlink()
    words = line.replace("PROBE", probe).split()[1:]
    done = run_python(["-m", "sightline", *words], cwd=place)
    assert done.returncode == 0, done.stderr
    assert (place / "picture.png").read_bytes() == before


OF_FILES = ("rows_of", "pieces", "owner", "image_pieces", "finished_shards")
"""Methods by which Sightline itself finds a run's rows in its files."""


def test_it_shows_every_public_name() -> None:
    shown = {name for name in sightline.__all__ if re.search(rf"\bsightline\.{name}\b", CODE)}
    told = {name for name in sightline.__all__ if f"`{name}`" in TEXT}
    assert set(sightline.__all__) == shown | told
    assert not set(sightline.__all__) - shown - {"LayerState"}, "a type that code does not name is told in words"
    own = [name for name, value in vars(sightline.Run).items() if callable(value) and not name.startswith("_")]
    methods = [name for name in own if name not in OF_FILES]
    assert {"frame", "row", "masks", "cells", "picture"} <= set(methods)
    assert all(f"run.{name}(" in CODE for name in methods)
