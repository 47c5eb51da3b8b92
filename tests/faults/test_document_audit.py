"""``sightline audit`` killed while it reads and while it runs: the same command goes on, and comes to the same."""

import re
import signal
from pathlib import Path

import pytest

from sightline import load_run
from sightline.checks.demo import asset
from tests.faults.killing import SLOW, difference
from tests.faults.processes import Command
from tests.integration.conftest import facts
from tests.launching import row_files, wait_until
from tests.unit.documents.pages_for_tests import INVOICE, drawn

PAGES = 4


def made_once(folder: Path) -> dict[Path, int]:
    """Files that a command must not make again -> when they were made."""
    kinds = ("cache/**/*.json", "out/pages/*", "out/run/rows/*/*.parquet")
    return {file: file.stat().st_mtime_ns for kind in kinds for file in folder.glob(kind)}


def verdict_in(printed: str) -> str:
    """What is said between the two empty lines, less times."""
    return re.sub(r"\d+ instead of \d+ ms", "", printed.split("\n\n")[1])


def test_a_killed_audit_loses_nothing_computes_nothing_twice_and_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "documents").mkdir()
    for number in range(PAGES):
        page = INVOICE.replace("139.95", f"139.{number}5").replace("150.00", f"15{number}.00")
        drawn(page).save(tmp_path / f"documents/{number}.png")
    words = ["audit", str(asset("reader")), str(tmp_path / "documents"), "--no-open", "--no-prove", "--no-twins",
             "--second", "none", "--method", "target", "--keep", "0.5", "--fields", "2", "--out"]  # fmt: skip

    def start(place: Path, fault: str = "") -> Command:
        place.mkdir(exist_ok=True)
        monkeypatch.setenv("SIGHTLINE_CACHE", str(place / "cache"))
        return Command([*words, str(place / "out")], fault=fault, place=place)

    killed = tmp_path / "killed"
    moments = (lambda: list(killed.glob("cache/**/*.json")), lambda: len(row_files(killed / "out/run")) >= 2)
    there: dict[Path, int] = {}
    for moment in moments:
        command = start(killed, SLOW)
        wait_until(lambda moment=moment, command=command: moment() or not command.runs)  # type: ignore[misc]
        command.signal(signal.SIGKILL)
        assert command.done().returncode == -signal.SIGKILL
        assert command.leaves_nobody_behind()
        assert there.items() <= made_once(killed).items()
        there = made_once(killed)
    assert 2 <= len(row_files(killed / "out/run")) < 5, "killed in the middle"
    resumed, undisturbed = start(killed).done(), start(tmp_path / "undisturbed").done()
    assert there.items() <= made_once(killed).items()
    assert resumed.returncode == undisturbed.returncode == 1, resumed.stderr  # four pages decide nothing
    assert verdict_in(resumed.stdout) == verdict_in(undisturbed.stdout) != ""
    rows, wanted = (facts(load_run(tmp_path / name / "out/run").frame()) for name in ("killed", "undisturbed"))
    assert len(wanted) == 2 * PAGES * 5
    assert difference(wanted, rows) == {"lost": 0, "changed": 0, "doubled": 0}
