"""The run folder: opened, resumed, amended, in parts, and what is noted beside its manifest."""

import errno
import itertools
import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sightline import SightlineError, load_run
from sightline.store.folder import RunFolder, arm_folder_name
from sightline.store.manifest import Failure
from sightline.store.shard_files import pack_mask, unpack_mask
from sightline.store.verify import compact_run, verify_folder
from tests.changed_run import edited
from tests.refusals import Refused

MANIFEST: dict[str, Any] = {
    "model": "tiny", "model_type": "llava",
    "weight_digest": "sha256:a", "probe_digest": "sha256:b", "dtype": "float32", "profile": "paper",
    "positions": "compact", "box_source": "annotation", "image_options": {}, "shard_images": 8,
    "limit": None, "shards": 2,
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.open(MANIFEST, ["full", "target:0.3"], b"")
    return folder


def test_masks_survive_packing_and_arm_folders_are_readable_and_distinct(folder: RunFolder) -> None:
    mask = np.random.default_rng(0).random(577) < 0.3
    assert (unpack_mask(pack_mask(mask), 577) == mask).all()
    assert arm_folder_name("target:0.3").startswith("target-0.3-")
    assert arm_folder_name("target:0.3") != arm_folder_name("target-0.3")
    assert folder.open(MANIFEST, ["random:0.3", "full"], b"") == ["full", "target:0.3", "random:0.3"]


@pytest.mark.parametrize(("field", "words"), [
    ("weight_digest", "of tiny (llava) with other weights"),
    ("model_type", "of tiny (llava), this command has tiny (other)"),
    ("probe_digest", "over other probes"),
    *((field, field) for field in ("dtype", "positions", "profile", "limit", "execution", "batch_images")),
])  # fmt: skip
def test_another_run_under_the_same_folder_is_refused(folder: RunFolder, field: str, words: str) -> None:
    with pytest.raises(SightlineError) as caught:
        folder.open({**MANIFEST, field: "other"}, ["full"], b"")
    assert words in str(caught.value)
    assert "--out" in str(caught.value)


def test_what_a_run_once_said_stays_and_what_it_never_said_agrees_with_anything(
    folder: RunFolder, refused: Refused
) -> None:
    said = dict(MANIFEST)
    for field in ("attention", "threads"):
        said[field] = "one"
        folder.open(said, ["full"], b"")
        refused(f"with {field} one, this command has other", folder.open, {**said, field: "other"}, ["full"], b"")


class Killed(BaseException):
    """Stands for a kill: nothing in between cleans up after it."""


STEPS = 7
"""Of what opening a folder does to the disk, where a kill or a full disk may strike."""


@pytest.mark.parametrize("step", range(STEPS + 1))
@pytest.mark.parametrize(
    "error", [Killed(), OSError(errno.ENOSPC, "No space left on device")], ids=["kill", "full-disk"]
)
def test_a_folder_never_finished_opening_is_new(tmp_path: Path, step: int, error: BaseException) -> None:
    calls = itertools.count()

    def failing(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **settings: Any) -> Any:
            if next(calls) == step:
                raise error
            return original(*args, **settings)

        return call

    folder = RunFolder(tmp_path / "run")
    with pytest.MonkeyPatch.context() as patched, suppress(Killed, SightlineError, OSError):
        for name, original in (("pathlib.Path.mkdir", Path.mkdir), ("os.fsync", os.fsync), ("os.replace", os.replace)):
            patched.setattr(name, failing(original))
        folder.open(MANIFEST, ["full"], b"{}\n")
    assert folder.exists == (step == STEPS), "there are no more steps"
    assert folder.open(MANIFEST, ["full"], b"{}\n") == ["full"]
    assert sorted(file.name for file in folder.path.iterdir()) == ["images", "probes.jsonl", "rows", "run.json"]


@pytest.mark.parametrize("content", [
    "thesis.tex", "images/photo.jpg", "images/photo.jpg rows/mine.txt", "rows/full-a18b869b/00000.parquet",
    ".notes.tmp", "probes.jsonl",
])  # fmt: skip
def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path, content: str, refused: Refused) -> None:
    """A probe file by itself is the user's: ours is written when the sub-folders are there."""
    files = [tmp_path / name for name in content.split()]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("precious")
    refused("is not a run folder; choose another --out", RunFolder(tmp_path).open, MANIFEST, ["full"], b"{}\n")
    assert {file.read_text() for file in files} == {"precious"}


def part(run: Path, place: Path, shards: set[int], arms: set[str] | None = None) -> Path:
    """A copy of a run with some of its shards, or arms, alone."""
    shutil.copytree(run, place)
    folder = RunFolder(place)
    manifest = folder.manifest()
    for arm in manifest["arms"]:
        for shard in range(manifest["shards"]):
            if shard not in shards or (arms is not None and arm not in arms):
                folder.rows_file(arm, shard).unlink()
                if arms is None:
                    folder.images_file(shard, "orig").unlink(missing_ok=True)
    if arms is not None:
        edited(place, arms=[arm for arm in manifest["arms"] if arm in arms])
    return place


EVEN, ODD, ALL = {0, 2, 4, 6}, {1, 3, 5}, set(range(7))


def same(joined: object, finished: Path) -> bool:
    run, whole = load_run(joined), load_run(finished)
    return bool(run.rows.equals(whole.rows) and run.images.equals(whole.images)) and run.missing == 0


def test_parts_by_shard_are_one_run_that_can_be_compacted(finished: Path, tmp_path: Path) -> None:
    parts = part(finished, tmp_path / "run" / "a", EVEN), part(finished, tmp_path / "run" / "b", ODD)
    assert same(parts, finished)
    assert same(parts[::-1], finished)
    assert same(tmp_path / "run", finished), "a folder of run folders"
    assert load_run(tmp_path / "run").path.name == "run"
    assert "9 of its shards are still to be computed" in load_run(parts[0]).unfinished
    compact_run(tmp_path / "run", tmp_path / "whole")
    assert same(tmp_path / "whole", finished)
    assert verify_folder(tmp_path / "whole").problems == []


def test_parts_may_be_packed_and_overlap(finished: Path, tmp_path: Path) -> None:
    first, second = part(finished, tmp_path / "a", {0, 1, 2, 3, 4}), part(finished, tmp_path / "b", {3, 4, 5, 6})
    compact_run(second)
    assert same([first, second], finished)
    assert same([second, first], finished)


def test_parts_by_arm_are_one_run(finished: Path, tmp_path: Path) -> None:
    first = part(finished, tmp_path / "a", ALL, {"full", "target:0.3"})
    second = part(finished, tmp_path / "b", ALL, {"grid:0.3"})
    assert same([first, second], finished)
    assert load_run([second, first]).arms == ["grid:0.3", "full", "target:0.3"]


@pytest.mark.parametrize(("field", "value", "words"), [
    ("weight_digest", "other", "of large-run (llava) with other weights"),
    ("probe_digest", "other", "over other probes"),
    ("dtype", "bfloat16", "with dtype float32, the other has bfloat16"),
    ("shards", 9, "with 7 shards, the other has 9"),
    ("inputs", {"full": "other"}, "their rows of full were made from other content of its file"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(finished: Path, tmp_path: Path, field: str, value: object, words: str) -> None:
    first, second = part(finished, tmp_path / "a", EVEN), part(finished, tmp_path / "b", ODD)
    edited(first, inputs={"full": "mine"})
    edited(second, **{field: value})
    with pytest.raises(SightlineError) as caught:
        load_run([first, second])
    assert f"{first} and {second} are not one run" in str(caught.value)
    assert words in str(caught.value)


def test_the_same_shard_with_other_rows_is_refused(finished: Path, tmp_path: Path, refused: Refused) -> None:
    first, second = part(finished, tmp_path / "a", EVEN), part(finished, tmp_path / "b", ODD | {2})
    rows = load_run(second).owner("full").read(load_run(second).pieces("full")[1])

    def write(column: str) -> None:
        table = rows.set_column(rows.column_names.index(column), column, [[0.5] * rows.num_rows])
        RunFolder(second).write_row_table("full", 2, table.cast(rows.schema))

    write("language_ms")
    assert load_run([first, second]).missing == 0, "timings may differ"
    write("margin")
    refused("hold different rows of the same probes", load_run, [first, second])


def test_what_is_no_run_is_said_to_be_none(tmp_path: Path, refused: Refused) -> None:
    for where, words in ((tmp_path, "is not a run folder"), ([], "no run folder given")):
        refused(words, load_run, where)
    RunFolder(tmp_path / "run").open(MANIFEST, ["full"], b"")
    refused("no finished shard", load_run, tmp_path / "run")


# What several processes find out about a run, read back as one manifest.


def test_notes_show_in_the_manifest_not_in_its_file_and_count_once(folder: RunFolder) -> None:
    before = (folder.path / "run.json").read_bytes()
    folder.set_aside(["target:0.3"], "it failed")
    folder.notes.write_bad_images(3, {"a.png": "is damaged"})
    folder.notes.add_setup(2.0)
    folder.notes.add_setup(3.0)
    manifest = folder.manifest()
    assert manifest["set_aside"] == {"target:0.3": "it failed"}
    assert manifest["bad_images"] == {"a.png": {"shard": 3, "reason": "is damaged"}}
    assert manifest["setup_ms"] == 5.0
    assert (folder.path / "run.json").read_bytes() == before
    folder.open(MANIFEST, ["full"], b"")
    folder.open({**MANIFEST, "created": "later"}, ["full"], b"")
    assert folder.manifest()["setup_ms"] == 5.0, "nothing counts twice"
    assert "setup_ms" not in json.loads((folder.path / "run.json").read_text())


def test_what_the_manifests_file_itself_says_counts_beside_notes(folder: RunFolder) -> None:
    folder.notes.write_bad_images(3, {"a.png": "is damaged"})
    folder.notes.add_setup(5.0)
    old = {"set_aside": {"target:0.3": "long ago"}, "bad_images": {"b.png": {"shard": 0, "reason": "r"}}}
    edited(folder.path, **old, setup_ms=1.0)
    manifest = folder.manifest()
    assert set(manifest["bad_images"]) == {"a.png", "b.png"}
    assert manifest["setup_ms"] == 6.0
    assert folder.open(MANIFEST, ["full"], b"") == ["full"]
    folder.forget_shards_of(["b.png", "a.png"])
    assert folder.manifest()["bad_images"] == {}


def test_a_note_that_cannot_be_read_is_named(folder: RunFolder) -> None:
    folder.notes.add_setup(2.0)
    file = min((folder.path / "notes").iterdir())
    file.write_text("{")
    with pytest.raises(SightlineError, match=rf"{file.name} cannot be read .*; delete it"):
        folder.manifest()


def test_an_arm_is_taken_back_by_whoever_names_it_alone(folder: RunFolder) -> None:
    folder.set_aside(["target:0.3"], "it failed")
    assert folder.open(MANIFEST, ["full"], b"", alone=False) == ["full"]
    assert "target:0.3" in folder.manifest()["set_aside"]
    assert folder.open(MANIFEST, ["target:0.3"], b"") == ["full", "target:0.3"]
    assert not folder.manifest()["set_aside"]


def test_work_that_fails_twice_or_is_lost_thrice_is_set_aside_until_a_command_names_it(folder: RunFolder) -> None:
    def note(task: str, *arms: str, lost: bool = False) -> None:
        folder.notes.add_failure(Failure(task, arms, "a reason", lost))

    note("00001", "full")
    note("00001", "full", lost=True)
    note("00001", "full", lost=True)
    assert "failed" not in folder.manifest()
    note("00002", "full", "target:0.3")
    note("00002", "target:0.3")
    assert folder.manifest()["failed"] == {"00002": {"target:0.3": "it failed 2 times (a reason)"}}
    note("00001", "full", lost=True)
    assert folder.manifest()["failed"]["00001"] == {"full": "it ended its worker 3 times (a reason)"}
    for _ in range(2):
        note("00003", "target:0.3")
    folder.notes.clear_failures(["full"])
    assert set(folder.manifest()["failed"]) == {"00003"}
    folder.notes.clear_failures(["full", "target:0.3"])
    assert "failed" not in folder.manifest()


def test_no_failure_of_several_processes_is_overwritten(folder: RunFolder) -> None:
    failure = Failure("00001", ("full",), "a reason", lost=False)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: RunFolder(folder.path).notes.add_failure(failure), range(20)))
    assert len(folder.notes.failures()) == 20
