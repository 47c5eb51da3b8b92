"""Two commands on one folder at the same time: one is refused in one line, or they share the work; never double."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from sightline.auditing.config import AuditConfig
from tests.faults.processes import row_files, until
from tests.faults.ways import SLOW, started

Equal = Callable[[AuditConfig], bool]


@pytest.mark.parametrize(
    ("first", "second"), [("inline", "inline"), ("inline", "local"), ("local", "inline"), ("queue", "inline")]
)
def test_a_driver_is_refused_while_another_writes(
    first: str, second: str, small: AuditConfig, equals_undisturbed: Equal
) -> None:
    begun = started(small, first, fault=SLOW)
    until(lambda: row_files(small) >= 1 or not begun.runs, "the first rows")
    refused = started(small, second).done()
    assert refused.returncode == 2
    (line,) = (line for line in refused.stderr.splitlines() if "is being written by" in line)
    assert re.search(r"process \d+ on \S+, since .*--launcher queue", line), line
    assert begun.done().returncode == 0
    assert equals_undisturbed(small)


def test_of_two_that_begin_at_the_same_moment_one_writes(small: AuditConfig, equals_undisturbed: Equal) -> None:
    both = [started(small, "inline", fault=SLOW) for _ in range(2)]
    codes = sorted(command.done().returncode for command in both)
    assert codes in ([0, 2], [0, 0]), [
        command.done().stderr for command in both
    ]  # the second may come when all is done
    assert equals_undisturbed(small)


def test_one_that_comes_after_a_kill_goes_on_at_once(small: AuditConfig, equals_undisturbed: Equal) -> None:
    begun = started(small, "inline", fault=SLOW)
    until(lambda: row_files(small) >= 1 or not begun.runs, "the first rows")
    begun.signal(9)
    begun.done()
    assert started(small, "inline").done().returncode == 0
    assert equals_undisturbed(small)
