"""Memory that really runs out, under a limit of the operating system: one task fails, with its reason, not the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sightline.auditing.config import AuditConfig
from sightline.rows import load_run
from tests.faults.ways import each_launcher, started

GREEDY = """
import os
from dataclasses import dataclass
from typing import ClassVar

import torch

from sightline import Selection, Selector
from sightline.selectors import SELECTORS


@SELECTORS.register("greedy")
@dataclass(frozen=True)
class Greedy(Selector):
    "Asks for a hundred gigabytes, which need not be there, before it keeps the first tokens."

    name: ClassVar[str] = "greedy"

    def select(self, view, k):
        if not os.path.exists(os.environ["SIGHTLINE_TESTS_ROOM"]):
            torch.empty(100 * 2**30, dtype=torch.uint8)
        return Selection(torch.arange(k))
"""
LIMITED = """
import os, resource

os.environ["SIGHTLINE_TESTS_ROOM"] = {room!r}
resource.setrlimit(resource.RLIMIT_AS, (64 * 2**30, 64 * 2**30))
"""


@each_launcher
def test_memory_that_runs_out_costs_the_work_that_needs_it(
    launcher: str, small: AuditConfig, tmp_path: Path, equals_undisturbed: Callable[[AuditConfig], bool]
) -> None:
    selector, room = tmp_path / "greedy.py", tmp_path / "room"
    selector.write_text(GREEDY, encoding="utf-8")
    settings = small.model_copy(update={"arms": [*small.arms, "greedy:0.3"], "imports": [selector]})
    fault = LIMITED.format(room=str(room))
    done = started(settings, launcher, fault=fault).done()
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert "greedy" in done.stderr
    assert "memory" in done.stderr
    if launcher != "inline":  # there an arm that fails ends the command
        run = load_run(settings.out)
        assert set(run.frame()["arm"]) == set(small.arms), "all else was computed"

    room.touch()
    assert started(settings, launcher, fault=fault).done().returncode == 0
    frame = load_run(settings.out).frame()
    assert (frame["arm"] == "greedy:0.3").sum() == (frame["arm"] == "full").sum()
