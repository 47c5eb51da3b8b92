"""Memory that a piece of work needed at its peak."""

from __future__ import annotations

import pytest
import torch

from sightline.device import memory as memory_growth
from sightline.device.memory import MemoryGrowth

CPU = torch.device("cpu")
MIB = 2**20


def test_what_was_held_for_a_moment_is_seen() -> None:
    if not memory_growth._peak_forgotten():
        pytest.skip("this kernel does not count the peak anew")
    with MemoryGrowth(CPU) as still:
        pass
    with MemoryGrowth(CPU) as held:
        torch.ones(96 * MIB, dtype=torch.uint8).sum()
    assert still.grown is not None
    assert held.grown is not None
    assert still.grown < 16 * MIB
    assert held.grown > 80 * MIB


def test_a_system_that_does_not_tell_is_not_guessed_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_growth, "FORGET", memory_growth.FORGET / "nowhere")
    with MemoryGrowth(CPU) as growth:
        pass
    assert growth.grown is None
