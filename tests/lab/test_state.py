"""Saves of a training state: a kill at any moment leaves the one before or the new one, never parts of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from lab.reader import state
from lab.reader.state import read_state, save_state
from sightline.errors import SightlineError


def module(value: float) -> nn.Module:
    made = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    for parameter in made.parameters():
        nn.init.constant_(parameter, value)
    return made


def save(folder: Path, value: float) -> None:
    made = module(value)
    save_state(folder, made, torch.optim.AdamW(made.parameters()), {"steps": int(value)})


def values(folder: Path) -> set[float]:
    tensors, _ = read_state(folder)
    return {float(value) for tensor in tensors.values() for value in tensor.flatten()}


@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_save_that_is_killed_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    monkeypatch.setattr(state, "SHARD_BYTES", 100)
    save(tmp_path, 1.0)
    count = [0]

    def killed(*arguments: Any) -> None:
        if count[0] == written:
            raise KeyboardInterrupt
        count[0] += 1
        save_file(*arguments)

    with monkeypatch.context() as stopped:
        stopped.setattr(state, "save_file", killed)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, 2.0)
    assert values(tmp_path) == {1.0}
    save(tmp_path, 3.0)
    assert values(tmp_path) == {3.0}
    assert len(list(tmp_path.glob("state-*.safetensors"))) == read_state(tmp_path)[1]["shards"], "nothing old is left"


@pytest.mark.parametrize("content", [b"", b"[]", b'{"shards": "x"}', b'{"shards": 1, "save": "gone"}', b"[" * 3000])
def test_a_damaged_record_is_one_line(tmp_path: Path, content: bytes) -> None:
    save(tmp_path, 1.0)
    (tmp_path / "state.json").write_bytes(content)
    with pytest.raises(SightlineError, match="no complete training state"):
        read_state(tmp_path)


def test_a_truncated_shard_is_one_line(tmp_path: Path) -> None:
    save(tmp_path, 1.0)
    (file,) = tmp_path.glob("state-*.safetensors")
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(SightlineError, match="no complete training state"):
        read_state(tmp_path)
