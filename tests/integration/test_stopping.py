"""Ctrl-C and SIGTERM: one line that says how to go on, the exit code that shells expect, and a run that goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sightline.auditing.audit import audit
from tests.integration.test_resume import command
from tests.warm_python import run_python

WHILE_AUDITING = """
import os, signal, sys
from sightline.cli import main
from sightline.store import folder

plain, number = folder.RunFolder.write_rows, int(sys.argv.pop(1))

def written_then_stopped(*arguments):
    plain(*arguments)
    os.kill(os.getpid(), number)

folder.RunFolder.write_rows = written_then_stopped
main()
"""
"""The command line, which gets a signal when its first rows are written."""


@pytest.mark.parametrize(
    ("number", "code", "how"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_stopped_run_says_how_to_go_on_and_goes_on(config: Any, number: int, code: int, how: str) -> None:
    settings = config("llava", arms=["full", "center:0.3"], limit=2, shard_images=1)
    done = run_python(["-c", WHILE_AUDITING, str(int(number)), *command(settings)[2:]])
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    line = f"{how}; finished shards are kept, run the same command to go on"
    assert done.stderr.strip().splitlines()[-1] == line
    assert list(settings.out.glob("rows/*/*.parquet")), "what was finished is kept"
    assert audit(settings).missing == 0


def test_another_command_that_is_stopped_promises_nothing(tmp_path: Path) -> None:
    code = (
        "import sys, sightline.cli as cli; sys.argv = ['sightline', 'report', 'r']\n"
        "def stop(): raise KeyboardInterrupt\n"
        "cli.app = stop; cli.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr.strip() == "interrupted"


def test_a_run_says_that_it_loads_a_model_before_it_does(config: Any) -> None:
    words = [sys.executable, *command(config("llava", arms=["full"], limit=1))]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[0] == "loading llava"
