"""Who may work in a run folder, who gets which task, and what becomes of those that go wrong; without a model."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sightline import Probe, SightlineError
from sightline.arms.arm import parse_arm
from sightline.auditing.audit import OwnTasks
from sightline.auditing.shards import Shard, SharedTasks, Task, longest_first, tasks_left
from sightline.core.probe import ORIGINAL
from sightline.store.folder import RunFolder
from sightline.store.leases import LEASES, FolderAccess
from tests.refusals import Refused
from tests.unit.store.test_folder import MANIFEST
from tests.unit.store.test_leases import ELSEWHERE, dead, held_by
from tests.warm_python import run_python

MANY = 12
OPENS = """
import json, sys, time
from pathlib import Path
from sightline.store.folder import RunFolder
from sightline.store.leases import FolderAccess

path, arm, manifest, met = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), Path(sys.argv[4])
folder = RunFolder(path)
if not folder.exists:
    folder.refuse_foreign()
with FolderAccess(path, 60.0) as access:
    with access.wait_to_open():
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


@pytest.fixture
def access(place: Path) -> FolderAccess:
    return FolderAccess(place, 60.0)


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


def test_one_drives_and_says_who_it_is_and_none_where_others_share(place: Path) -> None:
    with FolderAccess(place, 60.0) as first:
        first.lock()
        second = FolderAccess(place, 60.0)
        with pytest.raises(SightlineError, match=f"is being written by process {os.getpid()} on .* since 20"):
            second.lock()
        with second, second.wait_to_open():
            assert not second.join(), "sharing is always possible"
    with second:
        second.lock()
    first, second = FolderAccess(place, 60.0), FolderAccess(place, 60.0)
    with first.wait_to_open():
        assert first.join()
    with pytest.raises(SightlineError, match="--launcher queue"):
        second.refuse_others()
    first.leases.close()
    second.refuse_others()


def test_what_the_dead_left_is_in_nobodys_way_and_workers_whose_driver_died_are_waited_for(
    place: Path, access: FolderAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They end by themselves; a new driver must not be refused for the moment that takes."""
    place.mkdir()
    gone = dead()
    for name in ("driver", f"member-{gone.token}", "opening", "00000"):
        held_by(place, gone, name=name)
    worker = held_by(place, ELSEWHERE, name="member-new")
    monkeypatch.setattr("time.sleep", lambda seconds: worker.unlink(missing_ok=True))
    access.lock()
    assert not worker.exists()
    access.clear_tasks()
    assert set(access.leases.listed()) == {"driver"}


def test_a_folder_that_was_moved_away_gets_the_true_reason_and_is_not_made_again(
    place: Path, access: FolderAccess, refused: Refused
) -> None:
    folder = RunFolder(place)
    with access:
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
            lambda: folder.notes.add_setup(3.0),
        )
        for write in writes:
            refused("is gone: it was moved or deleted while", write)
            assert not place.exists()
    assert not place.exists()


ARMS = ("full", "target:0.3")


@pytest.fixture
def folder(place: Path) -> RunFolder:
    folder = RunFolder(place)
    folder.open(MANIFEST, ARMS, b"")
    return folder


def task(index: int, probes: int = 1, view: str = ORIGINAL, arms: tuple[str, ...] = ARMS) -> Task:
    """Arms and probes that are nothing but their names."""
    named: Any = tuple(SimpleNamespace(text=arm) for arm in arms)
    asked: Any = tuple(range(probes))
    return Task(Shard(index, asked, asked, view), named)


def pull(folder: RunFolder, *tasks: Task) -> SharedTasks:
    return SharedTasks(folder, tasks, FolderAccess(folder.path, 60.0))


def do(folder: RunFolder, side: Any, taken: Task) -> None:
    for arm in taken.arms:
        folder.write_rows(arm.text, taken.shard.index, [], ())
        side.wrote(taken, arm)


def keys(*tasks: Task | None) -> list[str]:
    return [one.key for one in tasks if one is not None]


def test_tasks_are_named_after_what_arms_see_and_the_longest_come_first() -> None:
    assert task(3).key == "00003"
    assert task(3, view="blank").key == "00003.blank"
    tasks = longest_first([task(0, 1), task(1, 3), task(2, 2), task(3, 3)])
    assert [one.shard.index for one in tasks] == [1, 3, 2, 0]


def test_two_share_the_tasks_and_do_none_twice(folder: RunFolder) -> None:
    tasks = [task(index) for index in range(6)]
    sides = [pull(folder, *tasks), pull(folder, *tasks)]
    done: list[str] = []
    while any(side.wait() for side in sides):
        for side in sides:
            taken = next(side.ready(), None)
            if taken is not None:
                done.append(taken.key)
                do(folder, side, taken)
    assert sorted(done) == keys(*tasks)
    assert not list((folder.path / LEASES).iterdir())


def test_nobody_works_ahead_on_what_another_could_do(folder: RunFolder) -> None:
    tasks = [task(index) for index in range(3)]
    first, second = pull(folder, *tasks), pull(folder, *tasks)
    ahead = first.ready()
    assert keys(next(ahead), next(ahead)) == ["00000", "00001"], "alone, one is taken ahead"
    assert keys(next(second.ready())) == ["00002"]
    more = [task(index) for index in range(5)]
    third, fourth = pull(folder, *more), pull(folder, *more)
    assert keys(*[next(third.ready())]) == ["00003"]
    assert keys(*list(fourth.ready())) == ["00004"], "the last one that is free is taken, none ahead of it"


def test_what_is_left_are_the_arms_without_rows_and_one_where_records_of_images_are_gone(folder: RunFolder) -> None:
    probes = (Probe("p", "x.png", "x", "Is it there?", "yes", "it", "it", ()),)
    arms = [parse_arm(arm) for arm in ARMS]
    for shard, done in enumerate((ARMS, ARMS[:1], ARMS)):
        for arm in done:
            folder.write_rows(arm, shard, [], ())
    for shard in (0, 1):
        folder.write_images(shard, ORIGINAL, [])
    left = tasks_left(folder, [Shard(index, probes, probes) for index in range(4)], arms)
    assert [(one.shard.index, [arm.text for arm in one.arms]) for one in left] == [
        (1, ["target:0.3"]),
        (2, ["full"]),
        (3, ["full", "target:0.3"]),
    ]


def test_rows_that_are_there_are_not_computed_again(folder: RunFolder) -> None:
    for shard, done in enumerate((ARMS, ARMS[:1])):
        folder.write_images(shard, ORIGINAL, [])
        for arm in done:
            folder.write_rows(arm, shard, [], ())
    side = pull(folder, task(0), task(1))
    (taken,) = side.ready()
    assert (taken.key, [arm.text for arm in taken.arms]) == ("00001", ["target:0.3"])
    do(folder, side, taken)
    assert not side.wait()


def test_what_another_holds_is_waited_for_and_taken_over_when_it_dies(folder: RunFolder) -> None:
    held_by(folder.path, ELSEWHERE)
    side = pull(folder, task(0), task(1))
    assert keys(*side.ready()) == ["00001"]
    held_by(folder.path, dead())
    assert side.wait()
    (taken,) = side.ready()
    assert taken.key == "00000"
    assert [failure.lost for failure in folder.notes.failures()] == [True]
    said = json.loads((folder.path / LEASES / "00000.2.json").read_text())
    assert said["about"] == [arm.text for arm in taken.arms] == ["target:0.3"], "one by one from now on"


def test_work_that_ends_its_workers_is_found_out_arm_by_arm(folder: RunFolder) -> None:
    """Each holder dies; the last arm that it was at is what it was about."""
    gone = dead()
    taken_arms = []
    about: tuple[str, ...] = ARMS
    while True:
        file = held_by(folder.path, gone)
        file.write_text(json.dumps({**gone.as_record(), "about": about, "beat": 0}))
        side = pull(folder, task(0))
        taken = next(iter(side.ready()), None)
        if taken is None:
            if not side.wait():
                break
            continue
        about = tuple(arm.text for arm in taken.arms)
        taken_arms.append(about)
        if about == ("full",):
            do(folder, side, taken)
            about = ("target:0.3",)
        else:
            side.give_back()
        assert len(taken_arms) < 10
    assert all(len(arms) == 1 for arms in taken_arms)
    assert ("full",) in taken_arms
    assert list(folder.manifest()["failed"]["00000"]) == ["target:0.3"]


def test_what_fails_comes_last_is_tried_once_more_and_set_aside(folder: RunFolder) -> None:
    side = pull(folder, task(0), task(1))
    ready = side.ready()
    assert keys(next(ready)) == ["00000"]
    assert side.fail({("00000", ""), ("00000", "full")}, SightlineError("a reason"))
    assert side.wait()
    order = [(taken.key, [arm.text for arm in taken.arms]) for taken in side.ready()]
    assert order == [("00001", list(ARMS)), ("00000", list(ARMS))]
    assert side.fail({("00000", "full")}, SightlineError("the same reason"))
    assert side.wait()
    (left,) = [taken for taken in side.ready() if taken.key == "00000"]
    assert [arm.text for arm in left.arms] == ["target:0.3"], "only the arm to blame is set aside"
    assert folder.manifest()["failed"] == {"00000": {"full": "it failed 2 times (the same reason)"}}


def test_an_error_of_the_images_is_that_of_all_arms(folder: RunFolder) -> None:
    for _ in range(2):
        side = pull(folder, task(0))
        assert keys(next(side.ready())) == ["00000"]
        assert side.fail({("00000", "")}, SightlineError("the image is damaged"))
    assert set(folder.manifest()["failed"]["00000"]) == set(ARMS)
    assert not pull(folder, task(0)).wait()


@pytest.mark.parametrize("tasks", [OwnTasks, SharedTasks])
def test_a_driver_that_was_taken_over_ends(
    folder: RunFolder, access: FolderAccess, tasks: Any, refused: Refused
) -> None:
    access.lock()
    held_by(folder.path, ELSEWHERE, name="driver", generation=2)
    access.leases.beat()
    refused("another process took over", lambda: next(tasks(folder, [task(0)], access).ready()))


def test_alone_tasks_are_taken_in_order_nothing_is_claimed_and_a_failure_ends_the_command(
    folder: RunFolder, access: FolderAccess
) -> None:
    with access:
        access.lock()
        tasks = OwnTasks(folder, [task(0, 1), task(1, 3), task(2, 2)], access)
        assert tasks.total == 12
        taken = []
        for one in tasks.ready():
            assert [file.name for file in (folder.path / LEASES).iterdir()] == ["driver.1.json"]
            do(folder, tasks, one)
            taken.append(one)
        assert keys(*taken) == ["00000", "00001", "00002"]
        assert not tasks.wait()
    failing = OwnTasks(folder, [task(0)], FolderAccess(folder.path, 60.0))
    next(failing.ready())
    assert not failing.fail({("00000", ""), ("00000", "full")}, ValueError("a reason"))
    assert folder.manifest()["set_aside"] == {"full": "it failed (a reason); name it to try again"}


def test_once_somebody_joins_the_rest_is_shared(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sightline.auditing.audit.PAUSE", 0.0)
    every = [task(index) for index in range(6)]
    done: dict[str, list[str]] = {"own": [], "theirs": []}
    with FolderAccess(folder.path, 60.0) as driver, FolderAccess(folder.path, 60.0) as member:
        driver.lock()
        own = OwnTasks(folder, every, driver)
        first = next(own.ready())
        with member.wait_to_open():
            assert not member.join()
        do(folder, own, first)
        theirs = SharedTasks(folder, every[1:], member)
        sides: dict[str, Any] = {"theirs": theirs, "own": own}
        for _ in range(len(every)):
            for name, side in sides.items():
                if (taken := next(side.ready(), None)) is not None:
                    done[name].append(taken.key)
                    folder.write_images(taken.shard.index, ORIGINAL, [])
                    do(folder, side, taken)
        assert not own.wait()
        assert not theirs.wait()
    assert sorted(done["own"] + done["theirs"]) == keys(*every[1:]), "none is done twice"
    assert all(done.values())
