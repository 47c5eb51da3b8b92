"""Leases: one holder at a time, taken over from the dead at once and from the silent after a while."""

import errno
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest

from sightline.places.writing import (
    Holder,
    create_new,
    of_a_dead_process,
    remove_leftovers,
    this_process,
    whole_folder,
    write_whole,
)
from sightline.store.leases import LEASES, Leases
from tests.refusals import Refused

TIMEOUT = 60.0


class Watch:
    """A clock of one process, under the test's hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def observer(tmp_path: Path, watch: Watch) -> Leases:
    return Leases(tmp_path, TIMEOUT, watch)


def held_by(folder: Path, holder: Holder, *, name: str = "00000", generation: int = 1, beat: int = 0) -> Path:
    """A lease file as another process would have written it."""
    (folder / LEASES).mkdir(exist_ok=True)
    file = folder / LEASES / f"{name}.{generation}.json"
    file.write_text(json.dumps({**holder.as_record(), "since": "some day", "about": ["full"], "beat": beat}))
    return file


ELSEWHERE = Holder("another-host", "0123456789abcdef", 17, "4711")


def dead() -> Holder:
    """A process of this machine that was killed and whose parent has not even noticed."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
    holder = Holder(this_process().host, this_process().boot, process.pid, started)
    assert holder.lives()
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    return holder


def test_one_of_many_creates_a_file(tmp_path: Path, refused: Refused) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda number: create_new(tmp_path / "file", f"{number}".encode()), range(64)))
    assert won.count(True) == 1
    assert (tmp_path / "file").read_bytes() == f"{won.index(True)}".encode()
    assert [file.name for file in tmp_path.iterdir()] == ["file"], "no temporary is left"
    refused(": No such file", create_new, tmp_path / "nowhere" / "file", b"")


def test_of_many_that_write_a_file_one_is_last(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: write_whole(tmp_path / "file", bytes([number]) * 5000), range(64)))
    content = (tmp_path / "file").read_bytes()
    assert len(content) == 5000
    assert len(set(content)) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_file_is_created_once_where_files_have_no_second_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.link", Mock(side_effect=PermissionError(1, "Operation not permitted")))
    other = tmp_path / "where files have no second name"
    assert create_new(other, b"first")
    assert not create_new(other, b"second")
    assert other.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [other]


def test_a_lease_has_one_holder_until_it_is_released_even_if_many_claim_it(tmp_path: Path, observer: Leases) -> None:
    other = Leases(tmp_path, TIMEOUT)
    lease = observer.claim("00000")
    assert lease is not None
    assert other.claim("00000") is None
    assert other.claim("00001") is not None
    observer.release(lease)
    taken = other.claim("00000")
    assert taken is not None
    assert taken.taken_from is None, "it was given back, nobody was lost"
    sides = [Leases(tmp_path, TIMEOUT) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        held = list(pool.map(lambda leases: leases.claim("00002"), sides))
    assert held.count(None) == 7


def test_a_dead_holder_of_this_machine_is_followed_at_once(tmp_path: Path, observer: Leases) -> None:
    holder, mine = dead(), this_process()
    file = held_by(tmp_path, holder)
    lease = observer.claim("00000")
    assert lease is not None
    assert lease.generation == 2
    assert lease.taken_from is not None
    assert (lease.taken_from.holder, lease.taken_from.about) == (holder, ("full",))
    assert not file.exists(), "only the highest generation is kept"
    held_by(tmp_path, Holder(mine.host, mine.boot, mine.pid, f"{mine.started}0"), name="00001")
    assert observer.claim("00001") is not None, "the same number of another process is another holder"


@pytest.mark.parametrize("holder", [ELSEWHERE, this_process()], ids=["elsewhere", "here and stopped"])
def test_a_silent_holder_is_given_up_after_a_while_on_the_observers_clock(
    tmp_path: Path, observer: Leases, watch: Watch, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for beat in range(5):
        file = held_by(tmp_path, holder, beat=beat)
        assert observer.claim("00000") is None, "it gives signs of life"
        watch.now += TIMEOUT - 1
    for moment in (0.0, 4e9):  # wall clocks and the times of files may jump
        monkeypatch.setattr("time.time", lambda moment=moment: moment)
        os.utime(file, (moment, moment))
        assert observer.claim("00000") is None
    watch.now += 1
    lease = observer.claim("00000")
    assert lease is not None
    assert lease.generation == 2


def test_a_slow_holder_that_comes_back_notices_and_does_not_return(tmp_path: Path, watch: Watch) -> None:
    slow, other = Leases(tmp_path, TIMEOUT), Leases(tmp_path, TIMEOUT, watch)
    lease = slow.claim("00000")
    assert lease is not None
    assert other.claim("00000") is None
    watch.now += TIMEOUT
    taken = other.claim("00000")
    assert taken is not None
    slow.beat()
    assert lease.lost
    slow.release(lease)
    assert list(slow.listed().items()) == [("00000", 2)], "what it releases is no longer its own"


def test_a_beat_changes_what_others_see_and_what_is_half_written_is_waited_for(
    tmp_path: Path, observer: Leases, watch: Watch
) -> None:
    holder = Leases(tmp_path, TIMEOUT)
    assert holder.claim("00000") is not None
    file = tmp_path / LEASES / "00000.1.json"
    before = file.read_bytes()
    holder.beat()
    assert file.read_bytes() != before
    assert json.loads(file.read_bytes())["pid"] == os.getpid()
    held_by(tmp_path, ELSEWHERE).write_bytes(b'{"host"')
    assert observer.claim("00000") is None
    watch.now += TIMEOUT
    assert observer.claim("00000") is not None


def test_whoever_lives_is_told_from_whoever_does_not(tmp_path: Path, observer: Leases, watch: Watch) -> None:
    assert observer.is_living("driver", 1) is False
    held_by(tmp_path, dead(), name="driver")
    assert observer.is_living("driver", 1) is False
    held_by(tmp_path, this_process(), name="driver", generation=2)
    assert observer.is_living("driver", 2) is True
    assert str(observer.read("driver", 2)) == f"process {os.getpid()} on {this_process().host}, since some day"
    held_by(tmp_path, ELSEWHERE, name="member-old")
    observer.remember(lambda name: True)
    assert observer.is_living("member-old", 1) is None
    held_by(tmp_path, ELSEWHERE, name="member-new")
    assert observer.is_living("member-new", 1) is True
    held_by(tmp_path, ELSEWHERE, name="member-old", beat=1)
    assert observer.is_living("member-old", 1) is True
    watch.now += TIMEOUT
    assert observer.is_living("member-old", 1) is False, "silent for too long"


def test_closing_gives_everything_back_and_leases_of_the_ended_can_be_removed(tmp_path: Path, observer: Leases) -> None:
    leases = Leases(tmp_path / "run", TIMEOUT)
    assert leases.claim("00000")
    assert leases.claim("driver")
    leases.close()
    assert not (tmp_path / "run").exists()
    held_by(tmp_path, ELSEWHERE)
    held_by(tmp_path, this_process(), name="00001")
    observer.remove_of(ELSEWHERE)
    assert observer.listed() == {"00001": 1}


def test_only_what_the_dead_left_half_written_is_removed_among_others(tmp_path: Path) -> None:
    gone = dead()
    names = [
        f".run.json.{token}.tmp" for token in (f"{gone.token}-0", f"{this_process().token}-0", f"{ELSEWHERE.token}-3")
    ]
    names.append(".run.json.4711.tmp")  # of an earlier release
    for name in names:
        (tmp_path / name).write_bytes(b"half")
    assert of_a_dead_process(gone.token)
    remove_leftovers(tmp_path, alone=False)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(names[1:])
    remove_leftovers(tmp_path, alone=True)
    assert not list(tmp_path.iterdir())


def test_a_folder_is_whole_or_absent_and_what_killed_tries_left_of_it_goes_with_the_next(
    tmp_path: Path, refused: Refused
) -> None:
    target = tmp_path / "copy"
    half, others = (tmp_path / f".copy.{token}.tmp" for token in (f"{dead().token}-0", f"{ELSEWHERE.token}-3"))
    for left in (half, others):
        left.mkdir()

    def fill(content: str, fails: Exception | None = None, **options: bool) -> None:
        with whole_folder(target, **options) as folder:
            (folder / "file").write_text(content)
            if fails is not None:
                raise fails

    refused("No space left", fill, "first", OSError(errno.ENOSPC, "No space left"))
    assert set(tmp_path.iterdir()) == {others}
    target.mkdir()
    fill("first")
    refused("not empty", fill, "second")
    assert (target / "file").read_text() == "first"
    fill("second", replace=True)
    assert (target / "file").read_text() == "second"
    assert set(tmp_path.iterdir()) == {others, target}


def test_a_heart_that_beats_while_nothing_moves_is_not_heard(tmp_path: Path, watch: Watch) -> None:
    """Its process lives, its work hangs: after the time that work may stand still it gives no more signs of life."""
    moved = watch.now
    hung = Leases(tmp_path, TIMEOUT, watch, standstill=600.0, moved_at=lambda: moved)
    busy = Leases(tmp_path, TIMEOUT, watch, standstill=600.0, moved_at=lambda: watch.now - 599)
    other = Leases(tmp_path, TIMEOUT, watch)
    lease = hung.claim("00000")
    assert lease is not None
    assert busy.claim("00001") is not None
    for second in range(30, 1830, 30):
        watch.now += 30
        hung.beat()
        busy.beat()
        assert other.claim("00001") is None, "a process that moves keeps its lease for ever"
        if second <= 600:
            assert other.claim("00000") is None
        if second == 660:
            assert other.claim("00000") is not None, "and a while later another has it"
            moved = watch.now
            hung.beat()
            assert lease.lost, "which it notices when it moves again"
