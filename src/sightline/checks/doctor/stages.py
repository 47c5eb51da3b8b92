"""What every stage takes on this machine: facts, measured once after all checks have warmed it up."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from sightline.answering.scorers.yes_no import YesNo
from sightline.checks.doctor.asked_page import PRUNED, AskedPage
from sightline.device.memory_growth import MemoryGrowth

Result = TypeVar("Result")


def stage_facts(page: AskedPage, finding_cells: float | None) -> list[dict[str, Any]]:
    """Per stage ``stage``, ``seconds``, and ``mib``: what memory grew by while it ran; None where nobody can tell.

    ``finding_cells`` are the seconds that finding cells took, where they could be found.
    """
    backbone = page.backbone
    taken: list[dict[str, Any]] = []

    def stage(name: str, work: Callable[[], Result]) -> Result:
        backbone.synchronise()
        with MemoryGrowth(backbone.language.device) as memory:
            started = time.perf_counter()
            result = work()
            backbone.synchronise()
            seconds = time.perf_counter() - started
        grown = None if memory.grown is None else round(memory.grown / 2**20, 1)
        taken.append({"stage": name, "seconds": seconds, "mib": grown})
        return result

    pixels = stage("preprocess", lambda: backbone.preprocess(page.image))
    if finding_cells is not None:
        taken.append({"stage": "cells by ramps", "seconds": finding_cells, "mib": None})
    stage("vision", lambda: backbone.encode([pixels]))
    whole = page.over("full", YesNo()).prefix(0)
    pruned = stage(f"select {PRUNED[0]}", lambda: page.over(PRUNED[0], YesNo()).prefix(0))
    stage("language, full", lambda: backbone.language.score([whole]))
    stage(f"language, {PRUNED[0]}", lambda: backbone.language.score([pruned]))
    return taken
