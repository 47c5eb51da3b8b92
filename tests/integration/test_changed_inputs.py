"""What a run was made from and is not in its folder: whatever changed between two commands is refused by name."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageOps

from sightline.auditing.audit import audit
from sightline.auditing.config import AuditConfig
from sightline.errors import SightlineError
from sightline.store import RunFolder


@pytest.fixture
def images(data: Path, tmp_path: Path) -> Path:
    """A copy of the mini set's images that a test may change."""
    return Path(shutil.copytree(data / "mini_textocr", tmp_path / "images"))


@pytest.fixture
def begun(config: Any, images: Path) -> AuditConfig:
    """The settings of a run over two shards whose second one has lost its rows, as after a stop."""
    settings: AuditConfig = config("llava", arms=["full"], limit=2, shard_images=1, images=images)
    RunFolder(audit(settings).path).rows_file("full", 1).unlink()
    return settings


def invert(file: Path) -> None:
    """Other content under the same name, of the same size."""
    ImageOps.invert(Image.open(file).convert("RGB")).save(file)


def image_of(settings: AuditConfig, shard: int) -> str:
    """The name of the one image of a shard."""
    (name,) = pq.read_table(settings.out / "images" / f"{shard:05d}.parquet").column("image").to_pylist()
    return str(name)


def rows_on_disk(settings: AuditConfig) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in settings.out.glob("rows/*/*.parquet")}


def goes_on(settings: AuditConfig) -> None:
    assert audit(settings).missing == 0


def refused(settings: AuditConfig, *words: str) -> None:
    """The audit is refused with these words, and no row is written."""
    before = rows_on_disk(settings)
    with pytest.raises(SightlineError) as caught:
        audit(settings)
    for word in words:
        assert word in str(caught.value)
    assert rows_on_disk(settings) == before


def test_an_image_that_changed_before_the_run_was_resumed_is_refused_by_name(begun: AuditConfig) -> None:
    changed = image_of(begun, 1)
    invert(begun.images / changed)
    refused(begun, changed, "--out")


@pytest.mark.parametrize("arm", ["random:0.3", "full+blank", "full+occlude_evidence"])
def test_an_image_that_changed_before_the_run_was_amended_is_refused_by_name(begun: AuditConfig, arm: str) -> None:
    """Also where the amendment looks at a version of the image that the run has no record of yet."""
    changed = image_of(begun, 0)
    invert(begun.images / changed)
    refused(begun.model_copy(update={"arms": [arm]}), changed, "--out")


def test_an_image_folder_with_other_content_is_refused(begun: AuditConfig, tmp_path: Path) -> None:
    elsewhere = Path(shutil.copytree(begun.images, tmp_path / "elsewhere"))
    changed = image_of(begun, 1)
    invert(elsewhere / changed)
    refused(begun.model_copy(update={"images": elsewhere}), str(elsewhere / changed))


def test_the_same_images_in_another_folder_are_the_same_run(begun: AuditConfig, tmp_path: Path) -> None:
    elsewhere = Path(shutil.copytree(begun.images, tmp_path / "elsewhere"))
    shutil.rmtree(begun.images)
    goes_on(begun.model_copy(update={"images": elsewhere, "arms": ["full", "full+blank"]}))


def test_an_image_that_no_row_was_made_from_may_change(begun: AuditConfig) -> None:
    name = image_of(begun, 1)
    (begun.out / "images" / "00001.parquet").unlink()
    invert(begun.images / name)
    goes_on(begun)
