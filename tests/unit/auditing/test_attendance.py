"""Who may work in a run folder: one driver, or any number that share it; real processes that come all at once."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sightline.errors import SightlineError
from sightline.store import RunFolder
from sightline.store.leases import FolderAccess
from tests.unit.store.test_folder import MANIFEST
from tests.unit.store.test_leases import ELSEWHERE, dead, held_by
from tests.warm_python import run_python

MANY = 12
OPENS = """
import json, sys, time
from pathlib import Path
from sightline.store import RunFolder
from sightline.store.leases import FolderAccess

path, arm, manifest, met = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), Path(sys.argv[4])
folder = RunFolder(path)
if not folder.exists:
    folder.refuse_foreign()
with FolderAccess(path, 60.0) as access:
    with access.turn_to_open():
        alone = access.join()
        folder.open(manifest, [arm], b"{}", alone=alone)
    (met / arm).touch()
    while len(list(met.iterdir())) < int(sys.argv[5]):  # nobody leaves before all have come
        time.sleep(0.01)
print(alone)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "run"


def test_processes_that_open_a_new_folder_at_once_all_get_in(place: Path, tmp_path: Path) -> None:
    met = tmp_path / "met"
    met.mkdir()
    names = [f"grid:0.{number + 10}" for number in range(MANY)]

    def come(arm: str) -> str:
        done = run_python(["-c", OPENS, str(place), arm, json.dumps(MANIFEST), str(met), str(MANY)])
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    with ThreadPoolExecutor(MANY) as pool:
        alone = list(pool.map(come, names))
    assert sorted(alone) == ["False"] * (MANY - 1) + ["True"], "the first has nobody beside it, the others do"
    assert sorted(RunFolder(place).manifest()["arms"]) == sorted(names), "nobody overwrote what another added"
    assert sorted(file.name for file in place.iterdir()) == ["images", "probes.jsonl", "rows", "run.json"]


def test_one_drives_and_says_who_it_is(place: Path) -> None:
    with FolderAccess(place, 60.0) as first:
        first.lock()
        second = FolderAccess(place, 60.0)
        with pytest.raises(SightlineError) as caught:
            second.lock()
        assert f"is being written by process {os.getpid()} on" in str(caught.value)
        assert "since 20" in str(caught.value)
        with second, second.turn_to_open():
            assert not second.join(), "sharing is always possible"
    with second:
        second.lock()


def test_a_driver_is_refused_where_others_share(place: Path) -> None:
    first, second = FolderAccess(place, 60.0), FolderAccess(place, 60.0)
    with first.turn_to_open():
        assert first.join()
    with pytest.raises(SightlineError, match="--launcher queue"):
        second.refuse_others()
    first.leases.close()
    second.refuse_others()


def test_what_the_dead_left_is_in_nobodys_way(place: Path) -> None:
    place.mkdir()
    gone = dead()
    held_by(place, gone, name="driver")
    held_by(place, gone, name=f"member-{gone.token}")
    held_by(place, gone, name="opening")
    access = FolderAccess(place, 60.0)
    access.lock()
    assert set(access.leases.listed()) == {"driver"}


def test_workers_whose_driver_died_are_waited_for(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They end by themselves; a new driver must not be refused for the moment that takes."""
    place.mkdir()
    held_by(place, dead(), name="driver")
    access = FolderAccess(place, 60.0)
    worker = held_by(place, ELSEWHERE, name="member-new")
    monkeypatch.setattr("time.sleep", lambda seconds: worker.unlink(missing_ok=True))
    access.refuse_others()
    assert not worker.exists()


def test_a_folder_that_was_moved_away_gets_the_true_reason_and_is_not_made_again(place: Path) -> None:
    folder = RunFolder(place)
    with FolderAccess(place, 60.0) as access:
        access.lock()
        folder.open(MANIFEST, ["full"], b"{}")
        access.opened(place / "run.json")
        place.rename(place.with_name("elsewhere"))
        access.leases.beat()
        writes = (
            access.check,
            lambda: access.leases.claim("00000"),
            lambda: folder.write_rows("full", 0, [], ()),
            lambda: folder.write_images(0, "orig", []),
            lambda: folder.set_aside(["full"], "it failed"),
            lambda: folder.add_setup(3.0),
        )
        for write in writes:
            with pytest.raises(SightlineError, match="is gone: it was moved or deleted while"):
                write()
            assert not place.exists()
    assert not place.exists()
