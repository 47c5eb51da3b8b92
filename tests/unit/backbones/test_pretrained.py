"""Weights are those of the file: under another name of the architecture, and all of them or none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import sightline
from sightline.backbones import BACKBONES, load_backbone
from sightline.backbones.clip import ClipSpace
from sightline.backbones.llava import Llava
from sightline.checks.doctor import examine
from sightline.errors import SightlineError


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


def with_weights(folder: Path, copy: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> Path:
    """A copy of a checkpoint whose tensors were changed."""
    shutil.copytree(folder, copy)
    save_file(change(load_file(folder / "model.safetensors")), copy / "model.safetensors", {"format": "pt"})
    return copy


def every_second(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: weights[name] for name in sorted(weights)[::2]}


@pytest.mark.parametrize("model", ["qwen3vl", "llava", "internvl"])
def test_a_checkpoint_that_lacks_tensors_is_refused_by_their_names(model: str, data: Path, tmp_path: Path) -> None:
    halved = with_weights(data / "tiny" / model, tmp_path / "halved", every_second)
    with pytest.raises(SightlineError, match=r"^halved lacks \d+ tensors that its config\.json asks for: \S+, \S+, "):
        load_backbone(str(halved), device="cpu")
    with pytest.raises(SightlineError, match="halved lacks"):
        examine(str(halved), device="cpu")


def test_one_missing_tensor_is_enough(data: Path, tmp_path: Path) -> None:
    gone = "language_model.lm_head.weight"  # not tied to the embeddings in this checkpoint
    folder = with_weights(
        data / "tiny" / "llava", tmp_path / "headless", lambda weights: {n: weights[n] for n in weights if n != gone}
    )
    with pytest.raises(
        SightlineError, match=r"^headless lacks 1 tensor that its config\.json asks for: lm_head\.weight;"
    ):
        load_backbone(str(folder), device="cpu")


def test_a_tensor_of_another_shape_is_refused_by_name_with_both_shapes(data: Path, tmp_path: Path) -> None:
    short = "language_model.lm_head.weight"
    folder = with_weights(
        data / "tiny" / "llava", tmp_path / "short", lambda weights: {**weights, short: weights[short][:7].clone()}
    )
    rows, columns = load_file(data / "tiny" / "llava" / "model.safetensors")[short].shape
    with pytest.raises(SightlineError) as caught:
        load_backbone(str(folder), device="cpu")
    assert f"lm_head.weight is 7 x {columns}, its config.json asks for {rows} x {columns}" in str(caught.value)


def test_a_clip_checkpoint_that_lacks_tensors_is_refused_by_their_names(data: Path, tmp_path: Path) -> None:
    halved = with_weights(data / "tiny" / "clip", tmp_path / "halved", every_second)
    with pytest.raises(SightlineError, match=r"^halved lacks \d+ tensors that its config\.json asks for: "):
        ClipSpace(str(halved), torch.device("cpu"))


def test_an_output_head_that_is_the_embeddings_is_not_missing() -> None:
    assert "lm_head.weight" not in load_file(Path(sightline.__file__).parent / "assets/reader/model.safetensors")
    model = load_backbone(str(Path(sightline.__file__).parent / "assets/reader"), device="cpu").model
    assert torch.equal(model.lm_head.weight, model.get_input_embeddings().weight)
