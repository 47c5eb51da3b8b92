"""The launchers as fault tests use them, each as one command."""

from __future__ import annotations

from pathlib import Path

import pytest

from sightline.auditing.config import AuditConfig
from tests.faults.killing import WAYS
from tests.faults.processes import Command, row_files, until

LAUNCHERS = ("inline", "local", "queue")
each_launcher = pytest.mark.parametrize("launcher", LAUNCHERS)


def started(settings: AuditConfig, launcher: str, *, fault: str = "", place: Path | None = None) -> Command:
    way = WAYS[launcher]
    return Command(settings, "--launcher", launcher, *way.options, fault=fault, place=place)


def killed_in_the_middle(settings: AuditConfig, launcher: str) -> None:
    """Leaves a run of which some files are there and some are not."""
    command = started(settings, launcher, fault=SLOW)
    until(lambda: row_files(settings) >= 2 or not command.runs, "the first rows")
    command.signal(9)
    command.done()
    assert command.leaves_nobody_behind()
    assert 2 <= row_files(settings) < settings_files(settings), "killed in the middle"


def settings_files(settings: AuditConfig) -> int:
    """Files of rows when all is done."""
    assert settings.limit is not None
    return len(settings.arms) * -(-settings.limit // settings.shard_images)


SLOW = """
import time
from pathlib import Path
import os

plain = os.replace

def slowly(source, target):
    plain(source, target)
    if "rows" in Path(target).parts:
        time.sleep(0.3)

os.replace = slowly
"""
"""A fault that is none: every file of rows takes its time, so that a test can meet a run in its middle."""
