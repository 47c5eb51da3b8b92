"""Work handed to the device: one piece ahead, clocks without set-up, memory that runs out, and its growth."""

import mmap
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch

from sightline.device import work as device_work
from sightline.device.work import MemoryGrowth, Stopwatch, in_halves, one_ahead, setting_up
from sightline.errors import SightlineError
from tests.conftest import Clock
from tests.refusals import Refused

CPU = torch.device("cpu")

# The next piece of work is launched before the previous result is read, and a failure costs nothing before it.


class Recorder:
    """Work that writes down when it is launched and when it is read; launching raises its failures first, in turn."""

    def __init__(self, **failures: list[Exception]) -> None:
        self.events: list[str] = []
        self.failures = {name: list(errors) for name, errors in failures.items()}

    def items(self, names: str) -> Iterator[tuple[str, Callable[[], Callable[[], str]]]]:
        return ((name, partial(self.launch, name)) for name in names)

    def launch(self, name: str) -> Callable[[], str]:
        self.events.append(f"launch {name}")
        if self.failures.get(name):
            raise self.failures[name].pop(0)
        return partial(self.read, name)

    def read(self, name: str) -> str:
        self.events.append(f"read {name}")
        return name.upper()


FULL = torch.cuda.OutOfMemoryError("CUDA out of memory")
TOO_LARGE = SightlineError("out of memory on a single image")
TOO_LARGE.__cause__ = FULL
TWICE = "launch a, launch b, read a, launch b, launch c, read b, read c"


@pytest.mark.parametrize(("failures", "events"), [
    ([], "launch a, launch b, read a, launch c, read b, read c"),  # in order, one piece ahead
    ([FULL], TWICE),  # out of memory is tried again with nothing pending
    ([TOO_LARGE], TWICE),  # so is a single image
])  # fmt: skip
def test_results_come_in_order(failures: list[Exception], events: str) -> None:
    work = Recorder(b=failures)
    results = one_ahead(work.items("abc"))
    assert next(results) == ("a", "A")
    assert work.events == events.split(", ")[:3], "never more than one piece ahead"
    assert list(results) == [("b", "B"), ("c", "C")]
    assert work.events == events.split(", ")


def test_no_work_gives_no_results_and_the_first_piece_is_not_tried_again() -> None:
    assert list(one_ahead(Recorder().items(""))) == []
    with pytest.raises(torch.cuda.OutOfMemoryError):
        next(one_ahead(Recorder(a=[FULL]).items("a")))


def test_a_failing_launch_hands_out_what_was_launched_before() -> None:
    several: list[list[Exception]] = [[SightlineError("no")], [FULL, FULL]]
    for failures in several:
        work = Recorder(b=failures)
        results = one_ahead(work.items("abc"))
        assert next(results) == ("a", "A")
        with pytest.raises(type(failures[0])):
            next(results)
        assert "launch c" not in work.events


# Stopwatches count work, not set-up.


def test_a_stopwatch_shares_its_time(clock: Clock) -> None:
    whole, shared = Stopwatch(CPU), Stopwatch(CPU, shared_by=4)
    clock.advance(0.5)
    whole.stop()
    shared.stop()
    clock.advance(1.0)
    assert (whole.ms, shared.ms) == (500.0, 125.0)


def test_set_up_is_billed_once_and_kept_out_of_every_stopwatch(clock: Clock) -> None:
    bill: list[float] = []
    around, half = Stopwatch(CPU), Stopwatch(CPU, shared_by=2)
    with setting_up(CPU, bill):
        clock.advance(1.0)
        with setting_up(CPU, bill):
            clock.advance(2.0)
    clock.advance(0.5)
    around.stop()
    half.stop()
    assert bill == [3000.0]
    assert (around.ms, half.ms) == (500.0, 250.0)


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
    watch = Stopwatch(CPU)
    clock.advance(0.5)
    watch.stop()
    assert watch.ms == 500.0


# Memory that really runs out, in a process that may have only so much.


PROGRAM = """
import resource, torch
from sightline.device.work import in_halves
resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, 4 * 2**30))
sizes = {0: 2**20, 1: 2**20, 2: 2**40}
def work(group):
    return [torch.empty(2**40 if len(group) > 1 else sizes[i], dtype=torch.uint8).numel() for i in group]
print(in_halves([[0, 1]], work, str))
in_halves([[2]], work, lambda i: f"item {i}")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited as Linux does it")
def test_a_real_allocation_failure_halves_the_group_and_ends_in_one_line() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.strip() == "[([0], [1048576]), ([1], [1048576])]", done.stderr
    assert done.stderr.strip().splitlines()[-1] == "sightline.errors.SightlineError: out of memory on item 2"


def test_memory_that_runs_out_is_halved_for_and_other_errors_are_not_taken_for_it(refused: Refused) -> None:
    def failing(error: type[Exception]) -> Callable[[list[int]], list[int]]:
        def work(_: list[int]) -> list[int]:
            raise error("shapes do not match")

        return work

    with pytest.raises(RuntimeError, match="shapes do not match"):
        in_halves([[0, 1]], failing(RuntimeError), str)
    refused("out of memory on item 3", in_halves, [[3]], failing(MemoryError), lambda index: f"item {index}")


# Memory that a piece of work needed at its peak.


MIB = 2**20


def test_a_moments_memory_is_seen_where_a_system_tells() -> None:
    if not device_work._peak_forgotten():
        pytest.skip("this kernel does not count the peak anew")
    with MemoryGrowth(CPU) as still:
        pass
    with MemoryGrowth(CPU) as held, mmap.mmap(-1, 96 * MIB) as pages:  # no memory that the process has by already
        pages[:: mmap.PAGESIZE] = bytes(len(pages) // mmap.PAGESIZE)
    assert still.grown is not None
    assert held.grown is not None
    assert still.grown < 16 * MIB
    assert held.grown > 80 * MIB


def test_a_system_that_does_not_tell_is_not_guessed_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_work, "FORGET", device_work.FORGET / "nowhere")
    with MemoryGrowth(CPU) as growth:
        pass
    assert growth.grown is None
