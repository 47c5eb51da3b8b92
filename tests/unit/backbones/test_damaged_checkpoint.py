"""Checkpoints with a file that is not what it should be: one line that names the checkpoint. All were tracebacks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from sightline.backbones.clip import ClipSpace
from sightline.backbones.loading import Served, load_backbone
from sightline.errors import SightlineError


@pytest.mark.parametrize("model", ["llava", "qwen3vl", "internvl"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", b""),
        ("model.safetensors", b"\xff" * 64),
        ("tokenizer.json", b"{}"),
        ("tokenizer.json", b""),
        ("tokenizer_config.json", b"[]"),
        ("preprocessor_config.json", b"[]"),
        ("generation_config.json", b"null"),
        ("config.json", b"["),
        ("config.json", b'{"model_type": "llava", "vision_config": true}'),
    ],
)
def test_a_damaged_file_is_one_line(data: Path, tmp_path: Path, model: str, name: str, content: bytes) -> None:
    folder = Path(shutil.copytree(data / "tiny" / model, tmp_path / "checkpoint"))
    (folder / name).write_bytes(content)
    with pytest.raises(SightlineError, match="checkpoint"):
        load_backbone(str(folder), device="cpu")


def test_truncated_weights_are_one_line(data: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(data / "tiny" / "llava", tmp_path / "checkpoint"))
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(SightlineError, match="cannot load checkpoint"):
        load_backbone(str(folder), device="cpu")


def test_a_part_of_a_description_that_is_no_object_is_named(data: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llava", "vision_config": 5}')
    with pytest.raises(SightlineError, match="vision_config is no JSON object"):
        Served.by_description(tmp_path)


def test_a_damaged_clip_checkpoint_is_one_line(data: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(data / "tiny" / "clip", tmp_path / "clip"))
    (folder / "model.safetensors").write_bytes(b"\0" * 100)
    with pytest.raises(SightlineError, match="cannot load CLIP from clip"):
        ClipSpace(str(folder), torch.device("cpu"))


def test_code_that_comes_with_a_checkpoint_is_never_run(data: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(data / "tiny" / "llava", tmp_path / "checkpoint"))
    ran = tmp_path / "ran"
    (folder / "modeling_llava.py").write_text(f"open({str(ran)!r}, 'w').write('x')\n")
    text = (folder / "config.json").read_text(encoding="utf-8").strip()
    (folder / "config.json").write_text(
        text[:-1] + ', "auto_map": {"AutoModel": "modeling_llava.X", "AutoConfig": "modeling_llava.X"}}'
    )
    load_backbone(str(folder), device="cpu")
    assert not ran.exists()
