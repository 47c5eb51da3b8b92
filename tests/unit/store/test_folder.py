from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sightline.core.row import image_schema, row_schema
from sightline.errors import SightlineError
from sightline.store import RunFolder, load_run
from sightline.store.folder import arm_folder_name
from sightline.store.load import pack_mask, unpack_mask

MANIFEST: dict[str, Any] = {
    "weight_digest": "sha256:a", "probe_digest": "sha256:b", "dtype": "float32", "profile": "paper",
    "positions": "compact", "box_source": "annotation", "image_options": {}, "shard_images": 8,
    "limit": None, "shards": 2,
}  # fmt: skip


def test_every_column_has_a_sentence() -> None:
    for schema in (row_schema(), image_schema()):
        for field in schema:
            assert field.metadata[b"doc"].decode().endswith(".")


def test_masks_survive_packing() -> None:
    mask = np.random.default_rng(0).random(577) < 0.3
    assert (unpack_mask(pack_mask(mask), 577) == mask).all()


def test_arm_folders_are_readable_and_distinct() -> None:
    assert arm_folder_name("target:0.3").startswith("target-0.3-")
    assert arm_folder_name("target:0.3") != arm_folder_name("target-0.3")


def test_amending_keeps_old_arms_first(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert folder.open(MANIFEST, ["full", "target:0.3"], b"") == ["full", "target:0.3"]
    assert folder.open(MANIFEST, ["random:0.3", "full"], b"") == ["full", "target:0.3", "random:0.3"]


@pytest.mark.parametrize(
    "field", ["weight_digest", "probe_digest", "dtype", "positions", "profile", "limit", "execution", "batch_images"]
)
def test_another_run_under_the_same_folder_is_refused(tmp_path: Path, field: str) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.open(MANIFEST, ["full"], b"")
    with pytest.raises(SightlineError) as caught:
        folder.open({**MANIFEST, field: "other"}, ["full"], b"")
    assert field in str(caught.value)
    assert "--out" in str(caught.value)


def test_what_is_not_a_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(SightlineError, match="not a run folder"):
        load_run(tmp_path)
    folder = RunFolder(tmp_path / "run")
    folder.open(MANIFEST, ["full"], b"")
    with pytest.raises(SightlineError, match="no finished shard"):
        load_run(tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text("{broken")
    with pytest.raises(SightlineError, match="not valid JSON"):
        load_run(tmp_path / "run")


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.open(MANIFEST, ["full"], b"")
    folder.write_rows("full", 0, [], ())
    folder.rows_file("full", 0).write_bytes(b"half a file")
    with pytest.raises(SightlineError, match=r"00000\.parquet"):
        _ = load_run(tmp_path / "run").rows
