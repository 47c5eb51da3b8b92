"""Products on one thread: for as long as a report is made, and as before afterwards."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from threading import Barrier

import pytest

from sightline.statistics import bootstrap
from sightline.statistics.bootstrap import OneThread, product_threads


def test_one_thread_within_and_as_many_as_before_behind() -> None:
    known = bootstrap._openblas()
    if known is None:
        pytest.skip("NumPy multiplies by something else than OpenBLAS here")
    met, usual = Barrier(2), product_threads()

    @OneThread()
    def nested() -> int | None:
        with OneThread():
            pass
        return product_threads()

    def stay() -> int | None:
        with OneThread():
            met.wait()
            return product_threads()

    known[0](2)
    assert nested() == 1
    with ThreadPoolExecutor(2) as pool:
        assert {future.result() for future in [pool.submit(stay), pool.submit(stay)]} == {1}
    assert product_threads() == 2
    known[0](usual)


def test_nothing_is_changed_where_another_library_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "_openblas", lambda: None)
    with OneThread():
        assert product_threads() is None


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
