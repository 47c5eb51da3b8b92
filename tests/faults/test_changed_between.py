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
from tests.faults.killing import killed_in_the_middle, started

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


def images_of(settings: AuditConfig) -> list[Path]:
    names = dict.fromkeys(probe.image for probe in read_probes(settings.probes).probes)
    return [settings.images / name for name in names][: settings.limit]


def change_images(settings: AuditConfig) -> str:
    for file in images_of(settings):
        ImageOps.invert(Image.open(file).convert("RGB")).save(file)
    return "has other content"


def change_probes(settings: AuditConfig) -> str:
    write_probes(settings.probes, read_probes(settings.probes).probes[1:])
    return "over other probes"


def change_checkpoint(settings: AuditConfig) -> str:
    with open(Path(settings.model) / "tokenizer_config.json", "a", encoding="utf-8") as file:
        file.write("\n")
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


@elsewhere
def test_a_damaged_image_in_the_middle_costs_its_own_probes(
    launcher: str, own: AuditConfig, small: AuditConfig, equals_undisturbed: Equal
) -> None:
    own = own.model_copy(update={"model": small.model})  # whose name is in every row
    file = images_of(own)[2]
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    done = started(own, launcher).done()
    assert done.returncode == 1, done.stderr
    assert file.name in done.stderr
    assert "Traceback" not in done.stderr
    rows = load_run(own.out).frame()
    assert rows.groupby("arm")["image_id"].nunique().eq(3).all(), "the other three are there"

    file.write_bytes(whole)
    assert started(own, launcher).done().returncode == 0
    assert equals_undisturbed(own)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda content: content[:-100],
    "cut to half": lambda content: content[: len(content) // 2],
    "emptied": lambda content: b"",
    "flipped": lambda content: content[:40] + bytes([content[40] ^ 4]) + content[41:],  # in the first page of values
    "zeroed": lambda content: content[:512] + bytes(4096 - 512) + content[4096:],
}
"""The last one is a hole as long as a block, as a crash of a machine leaves it, with the end of the file in place."""


@pytest.mark.parametrize(("launcher", "what", "how"), [
    *(("inline", "rows", how) for how in DAMAGES),
    ("local", "rows", "cut short"), ("queue", "rows", "cut short"),
    ("inline", "images", "cut to half"), ("inline", "images", "emptied"), ("inline", "rows", "of another run"),
])  # fmt: skip
def test_a_damaged_file_is_never_taken_for_done(
    launcher: str, what: str, how: str, small: AuditConfig, undisturbed: Path, config: Any, equals_undisturbed: Equal
) -> None:
    """The command ends well and the rows are right, or it and whoever reads the run name the file."""
    shutil.copytree(undisturbed, small.out)
    folder = RunFolder(small.out)
    file = Path(folder.rows_file("full", 1) if what == "rows" else folder.path / "images" / "00001.parquet")
    if how == "of another run":
        other = audit(config("llava", arms=["full"], limit=4, shard_images=2, out=small.out.with_name("other")))
        shutil.copy(RunFolder(other.path).rows_file("full", 1), file)
    else:
        file.write_bytes(DAMAGES[how](file.read_bytes()))
    if what == "images" or launcher != "inline":  # there is something to do besides
        folder.rows_file("full", 1 if what == "images" else 0).unlink()

    done = started(small, launcher).done()
    assert "Traceback" not in done.stderr, done.stderr
    if done.returncode == 0:
        assert equals_undisturbed(small)
        return
    assert file.name in done.stderr, done.stderr
    if what == "images":  # rows can be read without them; those that were to be computed are missing
        assert load_run(small.out).missing > 0
    else:
        with pytest.raises(SightlineError, match=file.name):
            load_run(small.out).frame()
    file.unlink()  # what the line says
    assert started(small, launcher).done().returncode == 0
    assert equals_undisturbed(small)
