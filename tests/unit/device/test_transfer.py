"""Work handed to the device: one piece ahead, clocks without set-up."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from sightline.device.work import Stopwatch, one_ahead, setting_up
from sightline.errors import SightlineError
from tests.conftest import Clock

# The next piece of work is launched before the previous result is read, and a failure costs nothing before it.


class Recorder:
    """Work that writes down when it is launched and when it is read."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def item(self, name: str, *failures: Exception) -> tuple[str, Callable[[], Callable[[], str]]]:
        """Launching raises the failures first, one per attempt."""
        waiting = list(failures)

        def launch() -> Callable[[], str]:
            self.events.append(f"launch {name}")
            if waiting:
                raise waiting.pop(0)
            return read

        def read() -> str:
            self.events.append(f"read {name}")
            return name.upper()

        return name, launch


def out_of_memory() -> Exception:
    return torch.cuda.OutOfMemoryError("CUDA out of memory")


def test_results_come_in_order_one_piece_ahead() -> None:
    work = Recorder()
    assert list(one_ahead(work.item(name) for name in "abc")) == [("a", "A"), ("b", "B"), ("c", "C")]
    assert work.events == ["launch a", "launch b", "read a", "launch c", "read b", "read c"]


def test_never_more_than_one_piece_ahead() -> None:
    work = Recorder()
    results = one_ahead(work.item(name) for name in "abc")
    next(results)
    assert work.events == ["launch a", "launch b", "read a"]


def test_no_work_gives_no_results() -> None:
    nothing: list[tuple[str, Callable[[], Callable[[], str]]]] = []
    assert list(one_ahead(nothing)) == []


def test_a_failing_launch_hands_out_what_was_launched_before() -> None:
    work = Recorder()
    results = one_ahead([work.item("a"), work.item("b", SightlineError("no")), work.item("c")])
    assert next(results) == ("a", "A")
    with pytest.raises(SightlineError, match="no"):
        next(results)
    assert work.events == ["launch a", "launch b", "read a"]


def test_out_of_memory_is_tried_again_with_nothing_pending() -> None:
    work = Recorder()
    results = one_ahead([work.item("a"), work.item("b", out_of_memory()), work.item("c")])
    assert [name for name, _ in results] == ["a", "b", "c"]
    assert work.events == ["launch a", "launch b", "read a", "launch b", "launch c", "read b", "read c"]


def test_a_single_image_that_did_not_fit_is_tried_again_too() -> None:
    work = Recorder()
    error = SightlineError("out of memory on a single image")
    error.__cause__ = out_of_memory()
    assert [name for name, _ in one_ahead([work.item("a"), work.item("b", error)])] == ["a", "b"]


def test_out_of_memory_twice_is_an_error() -> None:
    work = Recorder()
    results = one_ahead([work.item("a"), work.item("b", out_of_memory(), out_of_memory())])
    assert next(results) == ("a", "A")
    with pytest.raises(torch.cuda.OutOfMemoryError):
        next(results)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        next(one_ahead([work.item("a", out_of_memory())]))


# Stopwatches count work, not set-up.


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
