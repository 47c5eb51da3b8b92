"""Checkpoints with pickled weights alone: named with the way out, converted, and loaded as what they were."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from sightline.backbones.clip import ClipSpace
from sightline.backbones.loading import convert, load_backbone
from sightline.cli import app
from sightline.errors import SightlineError


@pytest.fixture
def pickled(data: Path, tmp_path: Path) -> Path:
    """The tiny CLIP checkpoint as older repositories have it, a tied tensor among its weights."""
    folder = Path(shutil.copytree(data / "tiny" / "clip", tmp_path / "pickled"))
    (weights,) = folder.glob("*.safetensors")
    tensors = load_file(weights)
    first = next(iter(tensors))
    torch.save({**tensors, "tied": tensors[first]}, folder / "pytorch_model.bin")
    weights.unlink()
    return folder


def test_a_pickled_checkpoint_is_refused_with_the_command_that_converts_it(pickled: Path) -> None:
    with pytest.raises(SightlineError, match=rf"pickle files are not loaded; `sightline convert {pickled} --out"):
        ClipSpace(str(pickled), torch.device("cpu"))


def test_a_pickled_model_is_refused_in_the_same_words(data: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(data / "tiny" / "llava", tmp_path / "llava"))
    for weights in folder.glob("*.safetensors"):
        weights.unlink()
    with pytest.raises(SightlineError, match=r"`sightline convert .* --out NEW_FOLDER` makes safetensors"):
        load_backbone(str(folder), device="cpu")


def test_the_converted_checkpoint_is_the_same_model(data: Path, pickled: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["convert", str(pickled), "--out", str(tmp_path / "new")])
    assert result.exit_code == 0, result.output
    assert not list((tmp_path / "new").glob("*.bin"))
    spaces = [ClipSpace(str(folder), torch.device("cpu")) for folder in (data / "tiny" / "clip", tmp_path / "new")]
    before, after = (space.model.state_dict() for space in spaces)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert torch.equal(*(space.text("where is the total?") for space in spaces))


def test_what_cannot_be_converted_is_one_clear_line(data: Path, pickled: Path, tmp_path: Path) -> None:
    with pytest.raises(SightlineError, match="it has safetensors already"):
        convert(str(data / "tiny" / "clip"), tmp_path / "new")
    with pytest.raises(SightlineError, match="exists and is not empty"):
        convert(str(pickled), pickled)
    (tmp_path / "bare").mkdir()
    with pytest.raises(SightlineError, match=r"it has no pytorch_model\*\.bin"):
        convert(str(tmp_path / "bare"), tmp_path / "new")


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("harm-was-done"),)


@pytest.mark.parametrize("content", [{"weight": Harmful()}, {"epoch": 3}, [1, 2]])
def test_a_pickle_that_holds_more_than_tensors_is_not_opened(
    pickled: Path, tmp_path: Path, content: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(content, pickled / "pytorch_model.bin")
    with pytest.raises(SightlineError, match=r"pytorch_model\.bin is not a plain file of tensors"):
        convert(str(pickled), tmp_path / "new")
    assert not (tmp_path / "harm-was-done").exists()
    assert not (tmp_path / "new").exists()
