"""Stopwatches count work, not set-up."""

from __future__ import annotations

import pytest
import torch

from sightline.device.transfer import Stopwatch, setting_up
from tests.clock import Clock

CPU = torch.device("cpu")


def test_a_stopwatch_shares_its_time_equally(clock: Clock) -> None:
    whole, shared = Stopwatch(CPU), Stopwatch(CPU, shared_by=4)
    clock.advance(0.5)
    whole.stop()
    shared.stop()
    clock.advance(1.0)
    assert (whole.ms, shared.ms) == (500.0, 125.0)


def test_set_up_is_billed_once_and_kept_out_of_running_stopwatches(clock: Clock) -> None:
    bill: list[float] = []
    around, shared = Stopwatch(CPU), Stopwatch(CPU, shared_by=2)
    with setting_up(CPU, bill):
        clock.advance(1.0)
        with setting_up(CPU, bill):
            clock.advance(2.0)
    clock.advance(0.5)
    around.stop()
    shared.stop()
    assert bill == [3000.0]
    assert (around.ms, shared.ms) == (500.0, 250.0)


def test_a_stopwatch_begun_after_set_up_counts_everything(clock: Clock) -> None:
    with setting_up(CPU, []):
        clock.advance(1.0)
    watch = Stopwatch(CPU)
    clock.advance(0.5)
    watch.stop()
    assert watch.ms == 500.0


def test_the_host_s_own_clock_runs() -> None:
    watch = Stopwatch(CPU)
    watch.stop()
    assert watch.ms >= 0.0


def test_failed_set_up_is_billed_and_over(clock: Clock) -> None:
    bill: list[float] = []

    def fail() -> None:
        with setting_up(CPU, bill):
            clock.advance(1.0)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    with setting_up(CPU, bill):
        clock.advance(2.0)
    assert bill == [1000.0, 2000.0]
