"""A checkpoint under another name: an architecture of another package may share its classes with a known one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from sightline.backbones import BACKBONES, load_backbone
from sightline.backbones.llava import Llava


@pytest.fixture
def renamed(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny LLaVA as ``other_llava``, which a subclass of LLaVA's serves."""
    folder = Path(shutil.copytree(data / "tiny" / "llava", tmp_path / "renamed"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "other_llava"}), encoding="utf-8")
    BACKBONES.names()
    monkeypatch.setitem(BACKBONES._entries, "other_llava", type("OtherLlava", (Llava,), {}))
    return folder


def test_weights_are_those_of_the_file_whatever_the_checkpoint_calls_its_type(renamed: Path, data: Path) -> None:
    # The file names its output head as older versions of transformers did; the rename goes by the type.
    stored = load_file(renamed / "model.safetensors")["language_model.lm_head.weight"]
    known = load_backbone(str(data / "tiny" / "llava"), device="cpu").model.state_dict()
    model = load_backbone(str(renamed), device="cpu").model
    loaded = model.state_dict()
    assert model.config.model_type == "other_llava"
    assert torch.equal(loaded["lm_head.weight"], stored)
    assert loaded.keys() == known.keys()
    assert all(torch.equal(loaded[name], known[name]) for name in known)


def test_the_tokenizer_is_the_one_of_the_known_type(renamed: Path, data: Path) -> None:
    known, other = (load_backbone(str(folder), device="cpu").tokenizer for folder in (data / "tiny" / "llava", renamed))
    assert type(other) is type(known)
    assert other("Is the word exit visible?").input_ids == known("Is the word exit visible?").input_ids
