"""Something changed between a stop and the next command: refused by name, or an image named, whatever the launcher."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image, ImageOps

from sightline.auditing.config import AuditConfig
from sightline.probes import read_probes, write_probes
from sightline.rows import load_run
from tests.faults.processes import row_files
from tests.faults.ways import each_launcher, killed_in_the_middle, started

elsewhere = pytest.mark.parametrize("launcher", ["local", "queue"])
"""``inline`` is in tests/integration/test_changed_inputs.py."""


@pytest.fixture
def own(small: AuditConfig, data: Path, tmp_path: Path) -> AuditConfig:
    """``small`` over copies of probes, images and checkpoint that a test may change."""
    return small.model_copy(
        update={
            "model": str(shutil.copytree(data / "tiny" / "llava", tmp_path / "checkpoint")),
            "images": Path(shutil.copytree(data / "mini_textocr", tmp_path / "images")),
            "probes": Path(shutil.copy(small.probes, tmp_path / "probes.jsonl")),
        }
    )


def images_of(settings: AuditConfig) -> list[str]:
    names = [probe.image for probe in read_probes(settings.probes).probes]
    return list(dict.fromkeys(names))[: settings.limit]


def change_images(settings: AuditConfig) -> str:
    for name in images_of(settings):
        ImageOps.invert(Image.open(settings.images / name).convert("RGB")).save(settings.images / name)
    return "has other content"


def change_probes(settings: AuditConfig) -> str:
    probes = list(read_probes(settings.probes).probes)
    write_probes(settings.probes, probes[1:])
    return "over other probes"


def change_checkpoint(settings: AuditConfig) -> str:
    file = Path(settings.model) / "tokenizer_config.json"
    file.write_text(file.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    return "tokenizer_config.json in the checkpoint"


@elsewhere
@pytest.mark.parametrize("change", [change_images, change_probes, change_checkpoint])
def test_what_changed_is_named_and_no_row_is_written(
    launcher: str, change: Callable[[AuditConfig], str], own: AuditConfig
) -> None:
    killed_in_the_middle(own, launcher)
    before = {file: file.read_bytes() for file in own.out.glob("rows/*/*.parquet")}
    recorded = {path.name for path in own.out.glob("images/*")}
    words = change(own)
    done = started(own, launcher).done()
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert words in done.stderr, done.stderr
    after = {file: file.read_bytes() for file in own.out.glob("rows/*/*.parquet")}
    assert {file: after[file] for file in before} == before
    new = {int(file.stem) for file in after if file not in before}
    assert not any(f"{shard:05d}.parquet" in recorded for shard in new), "no shard has rows of both"


@each_launcher
def test_a_run_folder_that_was_moved_goes_on_where_it_is(
    launcher: str, small: AuditConfig, tmp_path: Path, equals_undisturbed: Callable[[AuditConfig], bool]
) -> None:
    killed_in_the_middle(small, launcher)
    moved = small.model_copy(update={"out": Path(shutil.move(small.out, tmp_path / "other" / "place"))})
    assert row_files(moved) >= 2
    assert started(moved, launcher, place=tmp_path).done().returncode == 0
    assert not small.out.exists(), "nothing remembers where it was"
    assert equals_undisturbed(moved)


@elsewhere
def test_a_damaged_image_in_the_middle_costs_its_own_probes(
    launcher: str, own: AuditConfig, small: AuditConfig, equals_undisturbed: Callable[[AuditConfig], bool]
) -> None:
    own = own.model_copy(update={"model": small.model})  # whose name is in every row
    name = images_of(own)[2]
    whole = (own.images / name).read_bytes()
    (own.images / name).write_bytes(whole[: len(whole) // 2])
    done = started(own, launcher).done()
    assert done.returncode == 1, done.stderr
    assert name in done.stderr
    assert "Traceback" not in done.stderr
    rows = load_run(own.out).frame()
    assert rows.groupby("arm")["image_id"].nunique().eq(3).all(), "the other three are there"

    (own.images / name).write_bytes(whole)
    assert started(own, launcher).done().returncode == 0
    assert equals_undisturbed(own)
