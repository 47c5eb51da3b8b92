"""Something changed or was damaged between two commands: refused by name, computed again, never reported."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageOps

from sightline import AuditConfig, SightlineError, audit, load_run, read_probes
from sightline.probes import write_probes
from sightline.store.folder import RunFolder
from tests.faults.conftest import Equal
from tests.faults.killing import each_launcher, killed_in_the_middle, started
from tests.faults.processes import row_files

elsewhere = pytest.mark.parametrize("launcher", ["local", "queue"])
"""``inline`` is in tests/integration/test_resume.py."""


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
    launcher: str, small: AuditConfig, tmp_path: Path, equals_undisturbed: Equal
) -> None:
    killed_in_the_middle(small, launcher)
    moved = small.model_copy(update={"out": Path(shutil.move(small.out, tmp_path / "other" / "place"))})
    assert row_files(moved) >= 2
    assert started(moved, launcher, place=tmp_path).done().returncode == 0
    assert not small.out.exists(), "nothing remembers where it was"
    assert equals_undisturbed(moved)


@elsewhere
def test_a_damaged_image_in_the_middle_costs_its_own_probes(
    launcher: str, own: AuditConfig, small: AuditConfig, equals_undisturbed: Equal
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


def zeroed(content: bytes) -> bytes:
    """A hole as long as a block, as a crash of a machine leaves it, with the end of the file in place."""
    return content[:512] + bytes(4096 - 512) + content[4096:]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda content: content[:-100],
    "cut to half": lambda content: content[: len(content) // 2],
    "emptied": lambda content: b"",
    "flipped": lambda content: content[:40] + bytes([content[40] ^ 4]) + content[41:],  # in the first page of values
    "zeroed": zeroed,
}


def damage(file: Path, how: str) -> None:
    file.write_bytes(DAMAGES[how](file.read_bytes()))


@pytest.fixture
def complete(small: AuditConfig, undisturbed: Path) -> AuditConfig:
    """A finished run that a test may damage."""
    shutil.copytree(undisturbed, small.out)
    return small


def is_named_or_mended(settings: AuditConfig, launcher: str, file: Path, equals_undisturbed: Equal) -> None:
    """The command ends well and the rows are right, or it and whoever reads the run name the file."""
    done = started(settings, launcher).done()
    assert "Traceback" not in done.stderr, done.stderr
    if done.returncode == 0:
        assert equals_undisturbed(settings)
        return
    assert file.name in done.stderr, done.stderr
    if file.parent.name == "images":  # rows can be read without them; those that were to be computed are missing
        assert load_run(settings.out).missing > 0
    else:
        with pytest.raises(SightlineError, match=file.name):
            load_run(settings.out).frame()
    file.unlink()  # what the line says
    assert started(settings, launcher).done().returncode == 0
    assert equals_undisturbed(settings)


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_file_of_rows_is_never_taken_for_done(
    how: str, complete: AuditConfig, equals_undisturbed: Equal
) -> None:
    file = RunFolder(complete.out).rows_file("full", 1)
    damage(file, how)
    is_named_or_mended(complete, "inline", file, equals_undisturbed)


@each_launcher
def test_every_launcher_notices_a_file_that_was_cut_short(
    launcher: str, complete: AuditConfig, equals_undisturbed: Equal
) -> None:
    file = RunFolder(complete.out).rows_file("center:0.3", 2)
    damage(file, "cut short")
    RunFolder(complete.out).rows_file("full", 0).unlink()  # there is something to do besides
    is_named_or_mended(complete, launcher, file, equals_undisturbed)


@pytest.mark.parametrize("how", ["cut to half", "emptied"])
def test_damaged_records_of_images_are_named(how: str, complete: AuditConfig, equals_undisturbed: Equal) -> None:
    file = complete.out / "images" / "00001.parquet"
    damage(file, how)
    RunFolder(complete.out).rows_file("full", 1).unlink()
    is_named_or_mended(complete, "inline", file, equals_undisturbed)


def test_a_file_of_another_run_is_never_taken_for_done(
    complete: AuditConfig, config: Any, tmp_path: Path, equals_undisturbed: Equal
) -> None:
    other = config("llava", arms=["full"], limit=4, shard_images=2, out=tmp_path / "other")
    audit(other)
    file = RunFolder(complete.out).rows_file("full", 1)
    shutil.copy(RunFolder(other.out).rows_file("full", 1), file)
    is_named_or_mended(complete, "inline", file, equals_undisturbed)
