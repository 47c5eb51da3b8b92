"""The command line where names, terminals and packages mean no good: real processes, and what they print."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sightline import audit
from tests.runs.yes_no import make_run

ESCAPE = "\x1b]0;owned\x07\x1b[2K"


def sightline(*words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "sightline", *words],
        capture_output=True,
        env={**os.environ, "COLUMNS": "200", **environment},
        check=False,
    )


def test_a_terminal_of_ascii_alone_does_no_harm(tmp_path: Path) -> None:
    run = make_run(tmp_path / "ünïcode", images=4, manifest={"model": "modèle"})
    done = sightline("gate", str(run), "--rule", "accuracy(full) ≥ 0.1", "--draws", "100", PYTHONIOENCODING="ascii")
    assert b"Traceback" not in done.stderr
    assert done.returncode in (0, 1)
    assert done.stdout.isascii()


def test_control_sequences_in_names_do_no_harm(tmp_path: Path) -> None:
    run = make_run(tmp_path / f"run{ESCAPE}[bold]x[red]", images=4)
    asked = ("gate", str(run), "--rule", "accuracy(full) > 0", "--draws", "100")
    done = sightline(*asked)
    assert b"Traceback" not in done.stderr
    assert b"\x1b" not in done.stdout
    assert rb"\x1b]0;owned" in done.stdout
    assert b"[bold]x[red]" in done.stdout
    shutil.rmtree(run / "rows")
    done = sightline(*asked)
    assert done.returncode == 2
    assert b"\x1b" not in done.stderr
    assert b"[bold]x[red]" in done.stderr


def test_an_audit_of_a_local_model_asks_nobody(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def note(*arguments: Any, **_: Any) -> None:
        asked.append(arguments[-1])
        raise OSError("no network here")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(f"socket.socket.{name}", note)
    monkeypatch.setattr("socket.getaddrinfo", note)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    assert audit(config("llava", arms=["full"], limit=1)).missing == 0
    assert asked == []


PLUG_IN = """
[sightline.selectors]
target = hostile_plug_in:Target
leaving = hostile_plug_in_that_leaves:Any
raising = hostile_plug_in_that_raises:Any
"""


def test_packages_that_misbehave_are_named_and_hinder_nothing(tmp_path: Path) -> None:
    """One takes a built-in name, one leaves and one raises when it is imported."""
    for name, text in {
        "hostile-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: hostile\nVersion: 1.0\n",
        "hostile-1.0.dist-info/entry_points.txt": PLUG_IN,
        "hostile_plug_in.py": "class Target: pass\n",
        "hostile_plug_in_that_leaves.py": "import sys\nsys.exit(0)\n",
        "hostile_plug_in_that_raises.py": "raise RuntimeError('one\\ntwo')\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    packages = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = sightline("selectors", PYTHONPATH=packages)
    assert done.returncode == 0, done.stderr.decode()
    said = done.stdout.decode()
    assert "visionzip" in said
    assert "broken: selector 'leaving' of package hostile cannot be loaded (SystemExit: 0)" in said
    assert "broken: selector 'raising' of package hostile cannot be loaded (RuntimeError: one)" in said
    note = "note: selector 'target' is Sightline's own; that of package hostile is not used: rename it in hostile"
    assert note in done.stderr.decode().splitlines()
    assert "Traceback" not in done.stderr.decode()
