"""Run folders looked through for damage, and put together into fewer files."""

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from sightline import load_run
from sightline.store import verify
from sightline.store.folder import RunFolder
from sightline.store.verify import compact_run, verify_folder
from tests.changed_run import edited
from tests.refusals import Refused
from tests.runs.shared import large_run
from tests.warm_python import run_python


def shard(run: Path, number: int, arm: str = "target:0.3") -> Path:
    return RunFolder(run).rows_file(arm, number)


def flip(file: Path, place: float) -> None:
    content = bytearray(file.read_bytes())
    content[int(place * len(content))] ^= 4
    file.write_bytes(content)


def edit(run: Path, **fields: object) -> None:
    manifest = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**manifest, **fields}))


def other_run(run: Path) -> Path:
    return large_run(run.parent / "other", seed=18)


def lines(run: Path) -> list[str]:
    return [problem.words.replace(str(run), "RUN") for problem in verify_folder(run).problems]


def test_a_good_run_has_no_problem_and_every_flipped_bit_is_one(finished: Path, run_copy: Path) -> None:
    found = verify_folder(finished)
    assert (found.problems, found.files, found.rows) == ([], 7 * 4, 600)
    for place in (0.0, 0.1, 0.5, 0.9, 0.999):
        for file in (shard(run_copy, 3), run_copy / "images" / "00002.parquet"):
            flip(file, place)
            assert f"{file.relative_to(run_copy)} is damaged" in lines(run_copy)[0]
            flip(file, place)
    assert lines(run_copy) == []


@pytest.mark.parametrize(("harm", "words"), [
    (lambda run: shard(run, 2).unlink(), "RUN: target:0.3 lacks the rows of shard 2"),
    (lambda run: shard(run, 2).write_bytes(shard(run, 2).read_bytes()[:-40]), "00002.parquet is damaged"),
    (lambda run: shard(run, 2).write_bytes(b""), "00002.parquet is damaged"),
    (lambda run: shutil.copy(shard(run, 2), shard(run, 3)), "00003.parquet holds shard 2, as its name does not say"),
    (lambda run: shutil.copy(shard(run, 2), shard(run, 9)), "00009.parquet holds shard 2, as its name does not say"),
    (lambda run: shutil.copy(shard(run, 2, "full"), shard(run, 2)), "00002.parquet holds rows of full, not rows"),
    (lambda run: shutil.copy(shard(other_run(run), 2), shard(run, 2)), "holds rows of another run, of large-run"),
    (lambda run: (run / "images" / "00001.parquet").unlink(), "RUN/images: records of images of shard 1 are missing"),
    (lambda run: (run / "rows" / "mine").mkdir(), "RUN/rows/mine belongs to no arm of the run"),
    (lambda run: shutil.copy(shard(run, 2), shard(run, 2).with_name("two.parquet")), "not have the name of a shard"),
    (lambda run: (run / "run.json").write_text("{"), "RUN/run.json is not valid JSON"),
    (lambda run: edit(run, arms=[]), "RUN/run.json names no arms"),
    (lambda run: edit(run, shards=6), "makes 7 shards, run.json says 6"),
    (lambda run: edit(run, weight_digest="other"), "holds image records of another run"),
    (lambda run: (run / "probes.jsonl").unlink(), "RUN/probes.jsonl cannot be read"),
    (lambda run: (run / "probes.jsonl").write_text("{}\n[3"), "RUN/probes.jsonl cannot be read"),
    (lambda run: (compact_run(run), flip(shard(run, 0).with_stem("00000-00006"), 0.4)), "00006.parquet is damaged"),
])  # fmt: skip
def test_what_is_wrong_is_said(run_copy: Path, harm: Callable[[Path], object], words: str) -> None:
    harm(run_copy)
    assert any(words in line for line in lines(run_copy)), lines(run_copy)


def test_changed_probes_are_found(run_copy: Path) -> None:
    file = run_copy / "probes.jsonl"
    text = file.read_text()
    file.write_text(text.replace("word7x", "word8x"))
    assert lines(run_copy) == ["RUN/probes.jsonl does not hold the probes that its first line promises"]
    header, first, second, *others = text.splitlines(keepends=True)
    file.write_text("".join([header, second, first, *others]))
    found = lines(run_copy)
    assert len(found) == 4, "the file, and the first shard under three arms"
    assert all("answers other probes than those of shard 0" in line for line in found[1:])


def test_setting_aside_leaves_what_is_good(run_copy: Path, finished: Path) -> None:
    flip(shard(run_copy, 3), 0.5)
    (problem, missing) = verify_folder(run_copy).problems
    assert missing.set_aside() is None
    aside = problem.set_aside()
    assert aside is not None
    assert aside.name == "00003.parquet.damaged"
    assert load_run(run_copy).missing == 1
    shutil.copy(shard(finished, 3), shard(run_copy, 3))
    assert lines(run_copy) == []


def test_every_flipped_bit_of_the_manifest_and_of_the_probes_header_is_found(
    run_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of rows and images are not read: it must show without them."""
    monkeypatch.setattr("sightline.store.verify._rows", lambda *_: None)
    monkeypatch.setattr("sightline.store.verify._images", lambda *_: np.zeros(0, np.int64))
    probes = run_copy / "probes.jsonl"
    manifest, header = run_copy / "run.json", probes.read_bytes().index(b"\n")
    for file, places in ((manifest, range(0, manifest.stat().st_size, 7)), (probes, range(0, header, 3))):
        content = file.read_bytes()
        for place in places:
            file.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
            assert lines(run_copy), f"byte {place} of {file.name}"
        file.write_bytes(content)
    assert lines(run_copy) == []


PARTS: tuple[object, ...] = ("1/2", [1], [0, 2], [1, 0], [1.5, 2], {}, [1, 2, 3], ["1", "2"], True)


@pytest.mark.parametrize("fields", [
    *({field: 3} for field in ("seed", "threads", "matched_controls", "images")),
    *({field: "other"} for field in ("attention", "device")), {"inputs": {}},
    *({"part": part} for part in PARTS),
])  # fmt: skip
def test_an_edited_manifest_is_found(run_copy: Path, fields: dict[str, object]) -> None:
    edit(run_copy, **fields)
    assert any("run.json" in line or "cannot" in line for line in lines(run_copy)), lines(run_copy)


def test_only_changes_by_the_tool_itself_are_gone_on_with(run_copy: Path, tmp_path: Path, refused: Refused) -> None:
    RunFolder(run_copy).record_inputs({"full": "sha256:0"})
    RunFolder(run_copy).describe_boxes({"found": 3}, (run_copy / "probes.jsonl").read_bytes())
    assert lines(run_copy) == []
    compact_run(run_copy, tmp_path / "copy")
    assert lines(tmp_path / "copy") == []
    edit(run_copy, seed=3)
    refused("does not fit its checksum; restore it", RunFolder(run_copy).record_inputs, {"grid:0.3": "other"})


def test_a_run_of_the_release_before_is_said_to_be_without(run_copy: Path) -> None:
    edited(run_copy, batch_tokens=None)
    found = verify_folder(run_copy)
    assert found.problems == []
    assert any("run.json has no checksum" in note for note in found.notes)


def test_a_kill_between_probes_and_manifest_does_no_harm(run_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, written = RunFolder(run_copy), list[object]()
    real = RunFolder._write_manifest

    def until(self: RunFolder, manifest: object) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(manifest)
        real(self, manifest)  # type: ignore[arg-type]

    monkeypatch.setattr(RunFolder, "_write_manifest", until)
    probes = (run_copy / "probes.jsonl").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        folder.describe_boxes({"found": 3}, probes.replace(b'"sightline_probes": 1', b'"sightline_probes":  1'))
    assert b'"sightline_probes":  1' in (run_copy / "probes.jsonl").read_bytes()
    assert lines(run_copy) == []


def names(run: Path) -> list[str]:
    return sorted(str(file.relative_to(run)) for file in run.rglob("*.parquet"))


def same(one: Path, other: Path) -> bool:
    first, second = load_run(one), load_run(other)
    return bool(first.rows.equals(second.rows) and first.images.equals(second.images))


def test_rows_and_images_stay_bit_for_bit_and_twice_is_once(finished: Path, run_copy: Path) -> None:
    kept = shard(run_copy, 2).read_bytes()
    done = compact_run(run_copy)
    assert (done.files_before, done.files_after) == (28, 4)
    assert same(finished, run_copy)
    assert load_run(run_copy).missing == 0
    assert all(RunFolder(run_copy).has_rows("full", shard) for shard in range(7))
    assert RunFolder(run_copy).has_images(3, "orig")
    assert not RunFolder(run_copy).has_images(3, "blank"), "a pack of the originals"
    assert RunFolder(run_copy).image_digests(3) == RunFolder(finished).image_digests(3)
    compact_run(run_copy)
    before = {name: (run_copy / name).read_bytes() for name in names(run_copy)}
    compact_run(run_copy)
    assert {name: (run_copy / name).read_bytes() for name in names(run_copy)} == before
    shard(run_copy, 2).write_bytes(kept)
    (line,) = lines(run_copy)
    assert "00002.parquet holds shard 2, which 00000-00006.parquet holds too" in line
    compact_run(run_copy)
    assert lines(run_copy) == [], "what a kill left behind is removed, and a compacted run has no problem"


def test_packs_and_row_groups_are_bounded(finished: Path, run_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "PACK", 70)
    monkeypatch.setattr(verify, "GROUP", 16)
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


def test_a_copy_is_whole_or_absent(finished: Path, tmp_path: Path, refused: Refused) -> None:
    before, copy = names(finished), tmp_path / "copy"
    compact_run(finished, copy)
    assert names(finished) == before
    assert same(finished, copy)
    assert lines(copy) == []
    assert [entry.name for entry in tmp_path.iterdir()] == ["copy"]
    refused("is not empty; choose another --out", compact_run, finished, copy)


def test_a_file_of_another_run_is_not_loaded(run_copy: Path, refused: Refused) -> None:
    shutil.copy(shard(other_run(run_copy), 2), shard(run_copy, 2))
    refused("00002.parquet holds rows of another run", lambda: load_run(run_copy).rows)


def test_a_damaged_file_is_not_packed(run_copy: Path, refused: Refused) -> None:
    flip(shard(run_copy, 3, "full"), 0.5)
    refused("00003.parquet is damaged", compact_run, run_copy)


KILLED = """
import os, pathlib, signal, sys
from sightline.store.verify import compact_run

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
