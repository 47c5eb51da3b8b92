"""The config file of docs/runs.md, run as it is printed, on files of the names that it has."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sightline.cli import app
from sightline.rows import load_run
from tests.conftest import REPOSITORY


def test_the_documented_config_file_runs_as_printed(
    data: Path, mini_probes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (REPOSITORY / "docs" / "runs.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    line = re.findall(r"^    sightline (run --config .*)$", page, re.MULTILINE)[0]
    for name, target in {
        "checkpoints/Qwen3-VL-8B-Instruct": data / "tiny" / "qwen3vl",
        "probes/textocr.jsonl": mini_probes,
        "data/textocr": data / "mini_textocr",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(target)
    (tmp_path / "run.yaml").write_text(block, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, shlex.split(line))
    assert done.exit_code == 0, done.exception
    run = load_run("runs/quick")
    assert run.unfinished == ""
    assert run.manifest["image_options"]["max_pixels"] == 802816
    assert {"full", "target:0.3", "protected:0.4", "target:0.3+remove_evidence"} <= set(run.arms)
