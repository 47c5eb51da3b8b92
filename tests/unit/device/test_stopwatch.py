"""Stopwatches count work, not set-up."""

from __future__ import annotations

import time

import pytest
import torch

from sightline.device.stopwatch import Stopwatch, setting_up

CPU = torch.device("cpu")


def test_set_up_is_billed_once_and_kept_out_of_running_stopwatches() -> None:
    bill: list[float] = []
    begun = time.perf_counter()
    around, shared = Stopwatch(CPU), Stopwatch(CPU, shared_by=2)
    with setting_up(CPU, bill):
        time.sleep(0.05)
        with setting_up(CPU, bill):
            time.sleep(0.05)
    working = time.perf_counter()
    time.sleep(0.02)
    worked = (time.perf_counter() - working) * 1e3
    around.stop()
    shared.stop()
    (billed,) = bill
    assert billed >= 100
    without = (time.perf_counter() - begun) * 1e3 - billed
    assert worked <= around.ms <= without
    assert worked / 2 <= shared.ms <= without / 2


def test_a_stopwatch_begun_after_set_up_counts_everything() -> None:
    with setting_up(CPU, []):
        time.sleep(0.01)
    watch = Stopwatch(CPU)
    time.sleep(0.01)
    watch.stop()
    assert watch.ms >= 10


def test_failed_set_up_is_billed_and_over() -> None:
    bill: list[float] = []
    with pytest.raises(ValueError, match="no"), setting_up(CPU, bill):
        raise ValueError("no")
    with setting_up(CPU, bill):
        pass
    assert len(bill) == 2
