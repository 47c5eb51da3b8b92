"""``MODEL@REVISION``: one commit of a hub's repository, wherever a model is named."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from sightline.auditing.audit import audit
from sightline.auditing.config import AuditConfig
from sightline.backbones.clip import clip_trouble
from sightline.backbones.loading import checkpoint_folder, load_backbone
from sightline.errors import SightlineError
from sightline.paper.models import named_models

COMMIT = "b234b804b114d9e37bb655e11cbbb5f5e971b7a9"


@pytest.fixture
def hub(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None]]:
    """A hub of tiny checkpoints, unpacked as its cache does; what was asked of it."""
    asked: list[tuple[str, str | None]] = []

    def fetch(name: str, revision: str | None = None, **_: Any) -> str:
        asked.append((name, revision))
        folder = tmp_path / "hub" / name.replace("/", "--") / "snapshots" / (revision or "0" * 40)
        if not folder.exists():
            shutil.copytree(data / "tiny" / name.split("/")[1], folder)
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    return asked


def test_a_revision_is_fetched_and_without_one_the_newest(hub: list[tuple[str, str | None]]) -> None:
    assert checkpoint_folder(f"org/llava@{COMMIT}").name == COMMIT
    checkpoint_folder("org/llava")
    assert hub == [("org/llava", COMMIT), ("org/llava", None)]


def test_it_is_understood_wherever_a_model_is_named(hub: list[tuple[str, str | None]]) -> None:
    name = f"org/llava@{COMMIT}"
    assert named_models([name]) == {"llava": name}
    assert named_models([f"llava={name}"]) == {"llava": name}
    assert clip_trouble(f"org/clip@{COMMIT}", name) == ""
    assert load_backbone(name, device="cpu", dtype="float32").title
    assert {revision for _, revision in hub} == {COMMIT}


def test_a_run_records_the_revision_and_calls_the_model_by_its_name(
    hub: list[tuple[str, str | None]], data: Path, tmp_path: Path
) -> None:
    probes = data / "mini_textocr"
    from sightline.probes import HardPairRules, build_hard_pairs, write_probes
    from sightline.probes.annotations import load_regions

    (file,) = probes.glob("*.json")
    records = load_regions(file, file_format="textocr").records
    write_probes(tmp_path / "probes.jsonl", build_hard_pairs(records, HardPairRules(limit_images=1)).probes)
    config = AuditConfig(
        model=f"org/llava@{COMMIT}", probes=tmp_path / "probes.jsonl", images=probes, arms=["full"],
        out=tmp_path / "run", device="cpu", dtype="float32", matched_controls=False,
    )  # fmt: skip
    run = audit(config)
    assert run.manifest["model"] == "llava"
    assert run.manifest["model_revision"] == COMMIT


def test_a_local_folder_may_have_the_sign_in_its_name(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "llava@home"
    shutil.copytree(data / "tiny/llava", folder)
    assert checkpoint_folder(str(folder)) == folder


def test_a_local_folder_has_no_revision(data: Path) -> None:
    with pytest.raises(SightlineError, match=r"llava is a local folder, which has no revision 'main'"):
        checkpoint_folder(f"{data / 'tiny/llava'}@main")
