"""A model that does not fit is refused in one line, before any of it is allocated."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sightline.cost import shapes as enough_memory
from sightline.cost.benchmarks.prefill import PrefillRequest
from sightline.cost.measuring_process import measure_here
from sightline.cost.shapes import host_memory, random_backbone, weight_bytes
from sightline.errors import SightlineError

CPU = torch.device("cpu")


def test_a_model_that_does_not_fit_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enough_memory, "host_memory", lambda: 20 * 2**30)
    request = PrefillRequest("prefill", config="llava-1.5-7b", device="cpu")
    with pytest.raises(SightlineError) as refused:
        measure_here(request)
    assert str(refused.value) == (
        "llava-1.5-7b needs 26.3 GiB for its weights alone, and this machine has 20.0 GiB available; "
        "use a smaller shape or dtype, or a GPU"
    )


def test_weights_are_counted_as_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = random_backbone("tiny-llava", device=CPU, dtype=torch.float32).model
    counted = sum(each.numel() * 4 for each in made.parameters())
    assert weight_bytes("tiny-llava", torch.float32) == counted
    assert weight_bytes("tiny-llava", torch.bfloat16) == counted // 2
    monkeypatch.setattr(enough_memory, "host_memory", lambda: counted)
    random_backbone("tiny-llava", device=CPU, dtype=torch.float32)
    monkeypatch.setattr(enough_memory, "host_memory", lambda: counted - 1)
    with pytest.raises(SightlineError, match=r"tiny-llava needs 0\.0 GiB"):
        random_backbone("tiny-llava", device=CPU, dtype=torch.float32)


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_available_is_what_the_system_says_or_what_a_container_leaves(tmp_path: Path) -> None:
    assert host_memory(tmp_path) is None
    write(tmp_path, proc__meminfo="MemTotal:       100 kB\nMemFree: 10 kB\nMemAvailable:    50 kB\n")
    assert host_memory(tmp_path) == 50 * 1024
    group = {"sys__fs__cgroup__memory.max": "max\n", "sys__fs__cgroup__memory.current": "1024\n"}
    write(tmp_path, **group)
    assert host_memory(tmp_path) == 50 * 1024
    write(tmp_path, **{**group, "sys__fs__cgroup__memory.max": "4096\n"})
    assert host_memory(tmp_path) == 3072
    former = {"limit_in_bytes": "2048", "usage_in_bytes": "4096"}
    write(tmp_path, **{f"sys__fs__cgroup__memory__memory.{name}": text for name, text in former.items()})
    assert host_memory(tmp_path) == 0
