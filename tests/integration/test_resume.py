"""Runs that are killed, stopped or amended go on as if nothing had been; inputs that changed meanwhile are named."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageOps
from safetensors.torch import load_file, save_file

from sightline import AuditConfig, audit
from sightline.core.row import TIME_COLUMNS
from sightline.rows.source import read_source
from sightline.store.folder import RunFolder
from sightline.store.verify import verify_folder
from tests.changed_run import edited
from tests.integration.conftest import MODELS, TEN_ARMS, killed_and_resumed, make_config, refused_with


@pytest.mark.parametrize("model", MODELS)
def test_killed_and_resumed_rows_are_identical(config: Any, model: str) -> None:
    killed_and_resumed(config(model, arms=TEN_ARMS, limit=6, shard_images=1))


def test_another_command_that_is_stopped_promises_nothing(tmp_path: Path) -> None:
    code = (
        "import sys, sightline.cli as cli; sys.argv = ['sightline', 'report', 'r']\n"
        "def stop(): raise KeyboardInterrupt\n"
        "cli.main(stop)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr.strip() == "interrupted"


def without_times(frame: pd.DataFrame, arm: str) -> pd.DataFrame:
    """Types are made those of the arm's own values: a column that another arm leaves empty is one of objects."""
    return frame[frame["arm"] == arm].drop(columns=list(TIME_COLUMNS)).reset_index(drop=True).convert_dtypes()


TILES = {"arms": ["tome:0.5/tile:metric=tokens"], "image_options": {"min_tiles": 2}}
CASCADE = "policy:answer_stability:target_grid:0.3/0.5/0.7"


@pytest.mark.parametrize(("model", "settings", "recorded", "later"), [
    ("llava", {"arms": ["random:0.3"]}, "random:0.3", {"seed": 13}),
    ("llava", {"arms": ["shuffled:0.3"], "seed": 5}, "shuffled:0.3:seed=5", {"seed": 13}),
    ("llava", {"arms": ["protected:0.3:score=target"], "profile": "artifact"}, "protected:0.3", {}),
    ("llava", {"arms": ["protected:0.3:score=prompt"]}, "protected:0.3:score=prompt", {}),
    ("internvl", TILES, "tome:0.5/tile:metric=tokens", {}),
    ("internvl", {**TILES, "arms": ["random:6t/tile"]}, "random:6t/tile", {}),
    ("qwen3vl", {"arms": [CASCADE]}, CASCADE, {}),
], ids=["seed", "named-seed", "artifact", "argument", "merged-tiles", "drawn-tiles", "policy"])  # fmt: skip
def test_a_missing_shard_of_a_recorded_arm_is_filled_as_it_was(
    config: Any, model: str, settings: dict[str, Any], recorded: str, later: dict[str, Any]
) -> None:
    settings = {**settings, "limit": 2, "shard_images": 1}
    first = audit(config(model, **settings))
    before = without_times(first.frame(), recorded)
    assert first.arms == [recorded]
    assert len(before) == 4
    RunFolder(first.path).rows_file(recorded, 1).unlink()
    amended = audit(config(model, **{**settings, **later, "arms": ["full"]}))
    assert amended.arms == [recorded, "full"]
    assert amended.missing == 0
    pd.testing.assert_frame_equal(without_times(amended.frame(), recorded), before)


def test_amending_with_another_seed_does_not_rewrite_the_first_ones(config: Any) -> None:
    first = audit(config("llava", arms=["random:0.3"], limit=1))
    amended = audit(config("llava", arms=["random:0.4"], seed=13, limit=1))
    assert amended.arms == ["random:0.3", "random:0.4:seed=13"]
    assert json.loads((first.path / "run.json").read_text())["seed"] == 17
    seeds = {
        arm: {json.loads(text)["seed"] for text in rows["arguments"]} for arm, rows in amended.frame().groupby("arm")
    }
    assert seeds == {"random:0.3": {17}, "random:0.4:seed=13": {13}}


@pytest.fixture(scope="module")
def whole_run(data: Path, mini_probes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run over two shards, of which tests take copies."""
    out = tmp_path_factory.mktemp("whole") / "run"
    return audit(make_config(data, mini_probes, out, "llava", arms=["full"], limit=2, shard_images=1)).path


@pytest.fixture
def finished(config: Any, whole_run: Path, data: Path, tmp_path: Path) -> AuditConfig:
    """The settings of that run in a copy of its folder, over a copy of the tiny LLaVA that a test may change."""
    shutil.copytree(whole_run, tmp_path / "run")
    checkpoint = shutil.copytree(data / "tiny" / "llava", tmp_path / "checkpoints" / "llava")
    settings: AuditConfig = config("llava", model=str(checkpoint), arms=["full"], limit=2, shard_images=1)
    return settings


@pytest.fixture
def begun(finished: AuditConfig, data: Path, tmp_path: Path) -> AuditConfig:
    """The same over images that may change, when the second shard has lost its rows, as after a stop."""
    RunFolder(finished.out).rows_file("full", 1).unlink()
    images = shutil.copytree(data / "mini_textocr", tmp_path / "images")
    return finished.model_copy(update={"images": Path(images)})


@pytest.fixture
def clip(data: Path, tmp_path: Path) -> Path:
    """A copy of the tiny CLIP that a test may change."""
    return Path(shutil.copytree(data / "tiny" / "clip", tmp_path / "clip"))


def invert_image_of(settings: AuditConfig, shard: int) -> Path:
    """The one image of a shard gets other content under the same name, of the same size."""
    (name,) = pq.read_table(settings.out / "images" / f"{shard:05d}.parquet").column("image").to_pylist()
    file: Path = settings.images / name
    ImageOps.invert(Image.open(file).convert("RGB")).save(file)
    return file


def touch_up(file: Path) -> None:
    """A change that nobody would see: any other byte counts, for who could say which ones change no row?"""
    file.write_text(file.read_text(encoding="utf-8") + "\n", encoding="utf-8")


def goes_on(settings: AuditConfig) -> None:
    assert audit(settings).missing == 0


def audit_refused(settings: AuditConfig, *words: str) -> None:
    """The audit is refused with these words, and no row is written."""

    def rows() -> dict[Path, bytes]:
        return {file: file.read_bytes() for file in settings.out.glob("rows/*/*.parquet")}

    before = rows()
    refused_with(lambda: audit(settings), *words)
    assert rows() == before


@pytest.mark.parametrize(("shard", "arm", "moved"), [
    (1, "full", False), (0, "random:0.3", False), (0, "full+blank", False), (0, "full+occlude_evidence", False),
    (1, "full", True),
])  # fmt: skip
def test_an_image_that_changed_before_the_run_was_gone_on_with_is_refused_by_name(
    begun: AuditConfig, tmp_path: Path, shard: int, arm: str, moved: bool
) -> None:
    """Resumed or amended, in its folder or in a copy of it; also where the amendment looks at a version of the image
    that the run has no record of yet."""
    images = Path(shutil.copytree(begun.images, tmp_path / "elsewhere")) if moved else begun.images
    settings = begun.model_copy(update={"arms": [arm], "images": images})
    audit_refused(settings, str(invert_image_of(settings, shard)), "--out")


def test_an_image_that_no_row_was_made_from_may_change(begun: AuditConfig) -> None:
    invert_image_of(begun, 1)
    (begun.out / "images" / "00001.parquet").unlink()
    goes_on(begun)


def test_the_same_images_and_checkpoint_in_other_folders_are_the_same_run(begun: AuditConfig, tmp_path: Path) -> None:
    Path(begun.model, "README.md").write_text("Notes determine no row.", encoding="utf-8")
    moved = {
        "model": str(shutil.move(begun.model, tmp_path / "moved")),
        "images": Path(shutil.move(begun.images, tmp_path / "elsewhere")),
    }
    goes_on(begun.model_copy(update={**moved, "arms": ["full", "full+blank"]}))


@pytest.mark.parametrize("name", [
    "config.json", "preprocessor_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
    "added_tokens.json", "additional_chat_templates/default.jinja", "1_Pooling/config.json",
])  # fmt: skip
def test_a_checkpoint_file_that_changed_or_came_is_refused_by_name_unless_accepted(
    finished: AuditConfig, name: str
) -> None:
    file = Path(finished.model, name)
    if file.exists():
        touch_up(file)
    else:
        file.parent.mkdir(exist_ok=True)
        file.write_text("{}", encoding="utf-8")
    audit_refused(finished.model_copy(update={"arms": ["full", "random:0.3"]}), name, "the checkpoint", "--out")
    audit_refused(finished, name, "the checkpoint", "--accept-change")
    if "/" in name:  # a file in a sub-folder is one like the others
        goes_on(finished.model_copy(update={"accept_change": True}))
        touch_up(file)
        audit_refused(finished.model_copy(update={"arms": ["random:0.3"]}), name)


def test_a_clip_checkpoint_is_settled_by_the_first_command_that_names_one(finished: AuditConfig, clip: Path) -> None:
    clipped = finished.model_copy(update={"arms": ["cdpruner:0.3"], "clip": str(clip)})
    for settings in (clipped, finished):  # arms that need none do not ask for it
        goes_on(settings)
    plain = (clip / "tokenizer_config.json").read_text(encoding="utf-8")
    touch_up(clip / "tokenizer_config.json")
    audit_refused(clipped, "tokenizer_config.json", "the CLIP checkpoint")
    (clip / "tokenizer_config.json").write_text(plain, encoding="utf-8")
    weights = load_file(clip / "model.safetensors")
    save_file({name: 2 * tensor for name, tensor in weights.items()}, clip / "model.safetensors", {"format": "pt"})
    audit_refused(clipped.model_copy(update={"arms": ["cdpruner:0.5"]}), "model.safetensors", "the CLIP checkpoint")


def test_a_run_that_recorded_no_such_files_or_settings_goes_on_and_records_files(
    begun: AuditConfig, clip: Path
) -> None:
    settings = begun.model_copy(update={"arms": ["cdpruner:0.3"], "clip": str(clip)})
    goes_on(settings)
    edited(settings.out, **dict.fromkeys(("checkpoint_files", "clip_files", "attention")))
    goes_on(settings.model_copy(update={"arms": ["cdpruner:0.3", "full"]}))
    edited(begun.out, **dict.fromkeys(("batch_tokens", "checkpoint_subfolders", "instructions")))
    goes_on(begun.model_copy(update={"batch_tokens": 300, "arms": ["full", "grid:0.3"]}))
    touch_up(Path(begun.model, "config.json"))
    audit_refused(settings, "config.json")


def rewritten(settings: AuditConfig, change: Any) -> None:
    """``run.json`` as if it had been written so: ``change`` gets its content and changes it."""
    folder = RunFolder(settings.out)
    recorded = folder.manifest()
    change(recorded)
    folder._write_manifest(recorded)


LAST_BITS = [("batch_tokens", 300, 16384), ("batch_images", 2, 1), ("threads", 2, 1), ("attention", "eager", "sdpa")]
"""Settings that decide nothing but the last bits of sums."""


@pytest.mark.parametrize("launcher", ["inline", "queue"])
def test_a_setting_that_moves_the_last_bits_is_refused_by_name_with_both_values_and_the_flag(
    begun: AuditConfig, launcher: str
) -> None:
    for field, value, old in LAST_BITS:
        changed = begun.model_copy(update={field: value, "launcher": launcher})
        audit_refused(changed, f"with {field} {old}", f"this command has {value}", "--accept-change")


@pytest.mark.parametrize(("field", "old"), [("torch", "1.0"), ("transformers", "4.0"), ("device", "NVIDIA Moon")])
def test_other_versions_and_another_device_are_refused_before_a_model_is_loaded(
    begun: AuditConfig, field: str, old: str, request: pytest.FixtureRequest
) -> None:
    rewritten(begun, lambda facts: (facts if field == "device" else facts["versions"]).update({field: old}))
    request.getfixturevalue("no_weights")
    audit_refused(begun, f"with {field} {old}, this command has", "--accept-change")


def test_an_accepted_change_of_last_bits_is_named_by_rows_manifest_verify_and_report(begun: AuditConfig) -> None:
    rewritten(begun, lambda facts: facts["versions"].update(torch="1.0"))
    run = audit(begun.model_copy(update={"batch_tokens": 300, "accept_change": True}))
    tokens = [json.loads(text)["batch_tokens"] for text in run.rows.column("conditions").to_pylist()]
    assert sorted(set(tokens)) == [300, 16384]
    assert run.manifest["mixed"]["batch_tokens"] == [16384, 300]
    assert run.manifest["mixed"]["torch"][0] == run.manifest["versions"]["torch"] == "1.0"
    words = f"batch_tokens 16384 ({tokens.count(16384)} rows), 300 ({tokens.count(300)} rows)"
    assert words in run.mixture
    assert any(words in note for note in read_source([run.path]).notes)
    assert any(words in note for note in verify_folder(run.path).notes)
    goes_on(begun.model_copy(update={"arms": ["random:0.3"]}))  # what the folder has had before needs no flag
    audit_refused(begun.model_copy(update={"batch_tokens": 301}), "batch_tokens 16384, 300, this command has 301")
    audit_refused(
        begun.model_copy(update={"profile": "artifact", "accept_change": True}), "profile", "choose another --out"
    )


def test_without_a_word_about_it_the_folder_s_batch_is_taken(config: Any) -> None:
    settings = config("llava", arms=["full"], limit=1, batch_tokens=700)
    audit(settings)
    later = config("llava", arms=["random:0.3"], limit=1)
    assert json.loads(audit(later).rows.column("conditions")[-1].as_py())["batch_tokens"] == 700
