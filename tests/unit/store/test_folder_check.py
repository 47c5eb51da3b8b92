from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.large_runs import write_large_run

from sightline.errors import SightlineError
from sightline.store import RunFolder, load_run
from sightline.store.compaction import compact_run
from sightline.store.folder_check import verify_folder
from tests.earlier_release import without_marks
from tests.unit.store.conftest import PLAN


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
    return write_large_run(run.parent / "other", replace(PLAN, seed=18))


def lines(run: Path) -> list[str]:
    return [problem.words.replace(str(run), "RUN") for problem in verify_folder(run).problems]


def test_a_good_run_has_no_problem(finished: Path) -> None:
    found = verify_folder(finished)
    assert (found.problems, found.files, found.rows) == ([], 7 * 4, 600)


def test_nor_has_a_compacted_one_or_one_of_an_earlier_release(run_copy: Path) -> None:
    without_marks(run_copy)
    assert lines(run_copy) == []
    compact_run(run_copy)
    assert lines(run_copy) == []


@pytest.mark.parametrize("place", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_flipped_bit_is_found(run_copy: Path, place: float) -> None:
    flip(shard(run_copy, 3), place)
    (line,) = lines(run_copy)[:1]
    assert "target-0.3-" in line
    assert "00003.parquet is damaged" in line
    flip(shard(run_copy, 3), place)
    flip(run_copy / "images" / "00002.parquet", place)
    assert "RUN/images/00002.parquet is damaged" in lines(run_copy)[0]


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


def test_a_shard_that_two_files_hold_is_found(run_copy: Path) -> None:
    kept = shard(run_copy, 2).read_bytes()
    compact_run(run_copy)
    shard(run_copy, 2).write_bytes(kept)
    (line,) = lines(run_copy)
    assert "00002.parquet holds shard 2, which 00000-00006.parquet holds too" in line
    compact_run(run_copy)
    assert lines(run_copy) == [], "what a kill left behind is removed"


def test_a_flipped_bit_in_a_pack_is_found(run_copy: Path) -> None:
    compact_run(run_copy)
    (pack,) = shard(run_copy, 0).parent.glob("*.parquet")
    flip(pack, 0.4)
    assert "00000-00006.parquet is damaged" in lines(run_copy)[0]


def test_a_shard_of_another_run_is_not_loaded(run_copy: Path) -> None:
    shutil.copy(shard(other_run(run_copy), 2), shard(run_copy, 2))
    with pytest.raises(SightlineError) as caught:
        _ = load_run(run_copy).rows
    assert "00002.parquet holds rows of another run, of large-run (llava); set it aside with" in str(caught.value)


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
