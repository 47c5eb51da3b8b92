from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sightline.errors import SightlineError
from sightline.rows import load_run
from sightline.store import RunFolder
from sightline.store.compaction import compact_run
from sightline.store.verify import verify_folder


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
        manifest["arms"] = [arm for arm in manifest["arms"] if arm in arms]
        (place / "run.json").write_text(json.dumps(manifest))
    return place


EVEN, ODD, ALL = {0, 2, 4, 6}, {1, 3, 5}, set(range(7))


def same(joined: object, finished: Path) -> bool:
    run, whole = load_run(joined), load_run(finished)
    return bool(run.rows.equals(whole.rows) and run.images.equals(whole.images)) and run.missing == 0


def test_parts_by_shard_are_one_run(finished: Path, tmp_path: Path) -> None:
    parts = part(finished, tmp_path / "run" / "a", EVEN), part(finished, tmp_path / "run" / "b", ODD)
    assert same(parts, finished)
    assert same(parts[::-1], finished)
    assert same(tmp_path / "run", finished), "a folder of run folders"
    assert load_run(tmp_path / "run").path.name == "run"
    assert "9 of its shards are still to be computed" in load_run(parts[0]).unfinished


def test_parts_by_arm_are_one_run(finished: Path, tmp_path: Path) -> None:
    first = part(finished, tmp_path / "a", ALL, {"full", "target:0.3"})
    second = part(finished, tmp_path / "b", ALL, {"grid:0.3"})
    assert same([first, second], finished)
    assert load_run([second, first]).arms == ["grid:0.3", "full", "target:0.3"]


def test_parts_may_be_packed_and_may_overlap(finished: Path, tmp_path: Path) -> None:
    first, second = part(finished, tmp_path / "a", {0, 1, 2, 3, 4}), part(finished, tmp_path / "b", {3, 4, 5, 6})
    compact_run(second)
    assert same([first, second], finished)
    assert same([second, first], finished)


def test_parts_are_compacted_into_one_run(finished: Path, tmp_path: Path) -> None:
    part(finished, tmp_path / "run" / "a", EVEN)
    part(finished, tmp_path / "run" / "b", ODD)
    compact_run(tmp_path / "run", tmp_path / "whole")
    assert same(tmp_path / "whole", finished)
    assert verify_folder(tmp_path / "whole").problems == []


@pytest.mark.parametrize(("field", "value", "words"), [
    ("weight_digest", "other", "of large-run (llava) with other weights"),
    ("probe_digest", "other", "over other probes"),
    ("dtype", "bfloat16", "with dtype float32, the other has bfloat16"),
    ("shards", 9, "with 7 shards, the other has 9"),
    ("inputs", {"full": "other"}, "their rows of full were made from other content of its file"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(finished: Path, tmp_path: Path, field: str, value: object, words: str) -> None:
    first, second = part(finished, tmp_path / "a", EVEN), part(finished, tmp_path / "b", ODD)
    for place, said in ((first, "mine"), (second, value)):
        manifest = json.loads((place / "run.json").read_text())
        if field == "inputs" and place == first:
            manifest["inputs"] = {"full": said}
        elif place == second:
            manifest[field] = said
        (place / "run.json").write_text(json.dumps(manifest))
    with pytest.raises(SightlineError) as caught:
        load_run([first, second])
    assert f"{first} and {second} are not one run" in str(caught.value)
    assert words in str(caught.value)


def test_the_same_shard_with_other_rows_is_refused(finished: Path, tmp_path: Path) -> None:
    first, second = part(finished, tmp_path / "a", EVEN), part(finished, tmp_path / "b", ODD | {2})
    folder = RunFolder(second)
    rows = load_run(second).owner("full").read(load_run(second).pieces("full")[1])
    times = rows.set_column(rows.column_names.index("language_ms"), "language_ms", [[0.5] * rows.num_rows])
    folder.write_row_table("full", 2, times.cast(rows.schema))
    assert load_run([first, second]).missing == 0, "timings may differ"
    other = rows.set_column(rows.column_names.index("margin"), "margin", [[0.5] * rows.num_rows])
    folder.write_row_table("full", 2, other.cast(rows.schema))
    with pytest.raises(SightlineError, match="hold different rows of the same probes"):
        load_run([first, second])


def test_no_folder_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(SightlineError, match="is not a run folder"):
        load_run(tmp_path)
    with pytest.raises(SightlineError, match="no run folder given"):
        load_run([])
