"""Products on one thread: for as long as a report is made, and as before afterwards."""

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from threading import Barrier
from typing import Any

import pytest

from sightline.statistics import bootstrap
from sightline.statistics.bootstrap import OneThread


def openblas() -> tuple[Any, Any]:
    known = bootstrap._openblas()
    if known is None:
        pytest.skip("NumPy multiplies by something else than OpenBLAS here")
    return known


def test_one_thread_within_and_as_many_as_before_behind() -> None:
    put, told = openblas()
    met, usual = Barrier(2), told()

    @OneThread()
    def nested() -> int:
        with OneThread():
            pass
        return int(told())

    def stay() -> int:
        with OneThread():
            met.wait()
            return int(told())

    put(2)
    assert nested() == 1
    with ThreadPoolExecutor(2) as pool:
        assert {future.result() for future in [pool.submit(stay), pool.submit(stay)]} == {1}
    assert told() == 2
    put(usual)


def test_nothing_is_changed_where_another_library_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    put, told = openblas()
    usual = told()
    put(2)
    monkeypatch.setattr(bootstrap, "_openblas", lambda: None)
    with OneThread():
        assert told() == 2
    put(usual)


WITHIN = (
    "sightline.report.build:build_report",
    "sightline.report.compare:compare_runs",
    "sightline.gate.decisions:gate_runs",
    "sightline_leaderboard.standings:standings",
)


@pytest.mark.parametrize("name", WITHIN)
def test_reports_comparisons_and_gates_are_made_within(name: str) -> None:
    module, function = name.split(":")
    assert hasattr(getattr(import_module(module), function), "__wrapped__")
