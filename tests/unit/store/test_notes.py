"""What several processes find out about a run, read back as one manifest."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sightline.errors import SightlineError
from sightline.store import RunFolder
from sightline.store.folder import MANIFEST as MANIFEST_FILE
from sightline.store.manifest import Failure
from tests.changed_run import edited
from tests.unit.store.test_folder import MANIFEST


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.open(MANIFEST, ["full", "target:0.3"], b"")
    return folder


def failure(task: str = "00001", *, lost: bool = False, arms: tuple[str, ...] = ("full",)) -> Failure:
    return Failure(task, arms, "a reason", lost)


def test_notes_show_in_the_manifest_and_not_in_its_file(folder: RunFolder) -> None:
    before = (folder.path / MANIFEST_FILE).read_bytes()
    folder.set_aside(["target:0.3"], "it failed")
    folder.record_bad_images(3, {"a.png": "is damaged"})
    folder.add_setup(2.0)
    folder.add_setup(3.0)
    manifest = folder.manifest()
    assert manifest["set_aside"] == {"target:0.3": "it failed"}
    assert manifest["bad_images"] == {"a.png": {"shard": 3, "reason": "is damaged"}}
    assert manifest["setup_ms"] == 5.0
    assert (folder.path / MANIFEST_FILE).read_bytes() == before


def test_opening_again_counts_nothing_twice(folder: RunFolder) -> None:
    folder.add_setup(2.0)
    folder.record_bad_images(3, {"a.png": "is damaged"})
    folder.open(MANIFEST, ["full"], b"")
    folder.open({**MANIFEST, "created": "later"}, ["full"], b"")
    assert folder.manifest()["setup_ms"] == 2.0
    assert "setup_ms" not in json.loads((folder.path / MANIFEST_FILE).read_text())


def test_what_the_manifest_itself_says_still_counts(folder: RunFolder) -> None:
    old = {
        "set_aside": {"target:0.3": "long ago"},
        "bad_images": {"b.png": {"shard": 0, "reason": "r"}},
        "setup_ms": 1.0,
    }
    edited(folder.path, **old)
    folder.add_setup(2.0)
    folder.record_bad_images(3, {"a.png": "is damaged"})
    manifest = folder.manifest()
    assert set(manifest["bad_images"]) == {"a.png", "b.png"}
    assert manifest["setup_ms"] == 3.0
    assert folder.open(MANIFEST, ["full"], b"") == ["full"]
    folder.forget_shards_of(["b.png", "a.png"])
    assert folder.manifest()["bad_images"] == {}


def test_an_arm_is_taken_back_by_whoever_names_it_alone(folder: RunFolder) -> None:
    folder.set_aside(["target:0.3"], "it failed")
    assert folder.open(MANIFEST, ["full"], b"", alone=False) == ["full"]
    assert "target:0.3" in folder.manifest()["set_aside"]
    assert folder.open(MANIFEST, ["target:0.3"], b"") == ["full", "target:0.3"]
    assert not folder.manifest()["set_aside"]


def test_work_is_set_aside_when_it_fails_twice_or_is_lost_thrice(folder: RunFolder) -> None:
    folder.record_failure(failure())
    folder.record_failure(failure(lost=True))
    folder.record_failure(failure(lost=True))
    assert "failed" not in folder.manifest()
    folder.record_failure(failure("00002", arms=("full", "target:0.3")))
    folder.record_failure(failure("00002", arms=("target:0.3",)))
    assert folder.manifest()["failed"] == {"00002": {"target:0.3": "it failed 2 times (a reason)"}}
    folder.record_failure(failure(lost=True))
    assert folder.manifest()["failed"]["00001"] == {"full": "it ended its worker 3 times (a reason)"}


def test_no_failure_of_several_processes_is_overwritten(folder: RunFolder) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: RunFolder(folder.path).record_failure(failure()), range(20)))
    assert len(folder.notes.failures()) == 20


def test_a_new_command_forgives_the_arms_that_it_names(folder: RunFolder) -> None:
    for _ in range(2):
        folder.record_failure(failure(arms=("target:0.3",)))
    folder.forgive(["full"])
    assert folder.manifest()["failed"]
    folder.forgive(["full", "target:0.3"])
    assert "failed" not in folder.manifest()


def test_a_damaged_note_is_named(folder: RunFolder) -> None:
    folder.add_setup(2.0)
    (file,) = (folder.path / "notes").iterdir()
    file.write_text("{")
    with pytest.raises(SightlineError, match=rf"{file.name} cannot be read .*; delete it"):
        folder.manifest()
