from __future__ import annotations

import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sightline.errors import SightlineError
from sightline.rows import load_run
from sightline.store import RunFolder
from sightline.store import shard_files as shard_packs
from sightline.store.compaction import compact_run
from sightline.store.verify import verify_folder
from tests.changed_run import edited
from tests.warm_python import run_python


def names(run: Path) -> list[str]:
    return sorted(str(file.relative_to(run)) for file in run.rglob("*.parquet"))


def same(one: Path, other: Path) -> bool:
    first, second = load_run(one), load_run(other)
    return bool(first.rows.equals(second.rows) and first.images.equals(second.images))


def test_rows_and_images_stay_bit_for_bit(finished: Path, run_copy: Path) -> None:
    done = compact_run(run_copy)
    assert (done.files_before, done.files_after) == (28, 4)
    assert same(finished, run_copy)
    assert load_run(run_copy).missing == 0
    assert all(RunFolder(run_copy).has_rows("full", shard) for shard in range(7))
    assert RunFolder(run_copy).has_images(3, "orig")
    assert RunFolder(run_copy).image_digests(3) == RunFolder(finished).image_digests(3)


def test_twice_is_once(run_copy: Path) -> None:
    compact_run(run_copy)
    before = {name: (run_copy / name).read_bytes() for name in names(run_copy)}
    compact_run(run_copy)
    assert {name: (run_copy / name).read_bytes() for name in names(run_copy)} == before


def test_packs_and_row_groups_are_bounded(finished: Path, run_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_packs, "PACK", 70)
    monkeypatch.setattr(shard_packs, "GROUP", 16)
    compact_run(run_copy)
    files = [name for name in names(run_copy) if name.startswith("rows/grid")]
    assert [Path(name).stem for name in files] == ["00000-00001", "00002-00003", "00004-00005", "00006"]
    groups = pq.read_metadata(run_copy / files[0])
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [16, 16, 16, 12]
    assert groups.row_group(0).column(0).statistics is not None
    before = names(run_copy)
    compact_run(run_copy)
    assert names(run_copy) == before
    assert same(finished, run_copy)


def test_what_is_missing_stays_missing_and_joins_later(finished: Path, run_copy: Path) -> None:
    gone = RunFolder(run_copy).rows_file("full", 3)
    kept = gone.read_bytes()
    gone.unlink()
    compact_run(run_copy)
    assert [Path(name).stem for name in names(run_copy) if "/full" in name] == ["00000-00002", "00004-00006"]
    assert load_run(run_copy).missing == 1
    gone.write_bytes(kept)
    assert same(finished, run_copy)
    compact_run(run_copy)
    assert [Path(name).stem for name in names(run_copy) if "/full" in name] == ["00000-00006"]
    assert same(finished, run_copy)


def test_a_copy_is_whole_or_absent(finished: Path, tmp_path: Path) -> None:
    before = names(finished)
    compact_run(finished, tmp_path / "copy")
    assert names(finished) == before
    assert same(finished, tmp_path / "copy")
    assert verify_folder(tmp_path / "copy").problems == []
    assert [entry.name for entry in tmp_path.iterdir()] == ["copy"]
    with pytest.raises(SightlineError, match="is not empty; choose another --out"):
        compact_run(finished, tmp_path / "copy")


def test_a_damaged_file_is_not_packed(run_copy: Path) -> None:
    file = RunFolder(run_copy).rows_file("full", 3)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(SightlineError, match=r"00003\.parquet is damaged"):
        compact_run(run_copy)


KILLED = """
import os, pathlib, signal, sys
from sightline.store.compaction import compact_run

steps = [0]

def counted(original):
    def call(*args, **settings):
        steps[0] += 1
        if steps[0] == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **settings)
    return call

os.replace, os.fsync, pathlib.Path.unlink = counted(os.replace), counted(os.fsync), counted(pathlib.Path.unlink)
compact_run(pathlib.Path(sys.argv[1]))
"""


@pytest.mark.parametrize("step", [1, 2, 3, 6, 9, 12, 20, 36])
def test_a_kill_at_any_moment_loses_nothing(finished: Path, run_copy: Path, step: int) -> None:
    """Steps are what a compaction does to the disk: flush, rename, remove."""
    done = run_python(["-c", KILLED, str(run_copy), str(step)])
    assert done.returncode == -signal.SIGKILL
    assert same(finished, run_copy)
    assert load_run(run_copy).missing == 0
    compact_run(run_copy)
    assert same(finished, run_copy)
    assert verify_folder(run_copy).problems == []
    assert len(names(run_copy)) == 4


def test_a_mended_image_takes_its_shard_out_of_the_packs(finished: Path, run_copy: Path) -> None:
    compact_run(run_copy)
    edited(run_copy, bad_images={"img0000019.jpg": {"shard": 3, "reason": "it could not be read"}})
    folder = RunFolder(run_copy)
    folder.forget_shards_of(["img0000019.jpg"])
    assert folder.finished_shards("full") == {0, 1, 2, 4, 5, 6}
    assert not folder.has_images(3, "orig")
    kept, whole = load_run(run_copy).rows, load_run(finished).rows
    gone = set(pq.read_table(RunFolder(finished).rows_file("full", 3)).column("probe_id").to_pylist())
    assert kept.equals(whole.filter([name not in gone for name in whole.column("probe_id").to_pylist()]))
