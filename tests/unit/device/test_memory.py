"""Memory that runs out is met with halves, and growth is measured."""

from __future__ import annotations

import mmap
import subprocess
import sys

import pytest
import torch

from sightline.device import work as device_work
from sightline.device.work import MemoryGrowth, in_halves
from sightline.errors import SightlineError

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


def test_other_errors_are_not_taken_for_it() -> None:
    def work(_: list[int]) -> None:
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes do not match"):
        in_halves([[0, 1]], work, str)
    with pytest.raises(SightlineError, match="out of memory on item 3"):
        in_halves([[3]], _fails, lambda index: f"item {index}")


def _fails(_: list[int]) -> None:
    raise MemoryError


# Memory that a piece of work needed at its peak.


CPU = torch.device("cpu")
MIB = 2**20


def test_what_was_held_for_a_moment_is_seen() -> None:
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
