"""Memory that really runs out, in a process that may have only so much."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sightline.device.memory import in_halves
from sightline.errors import SightlineError

PROGRAM = """
import resource, torch
from sightline.device.memory import in_halves
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
