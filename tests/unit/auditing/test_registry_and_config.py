from __future__ import annotations

from pathlib import Path

import pytest

from sightline.auditing.config import AuditConfig, read_config
from sightline.errors import SightlineError


def test_flags_win_over_the_file_and_unknown_keys_are_errors(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("model: m\nprobes: p.jsonl\nimages: i\nout: o\narms: [full]\nseed: 3\n")
    assert read_config(file, {"seed": None}).seed == 3
    assert read_config(file, {"seed": 4, "arms": []}).seed == 4
    file.write_text("modle: m\n")
    with pytest.raises(SightlineError, match="modle"):
        read_config(file, {"model": "m", "probes": "p", "images": "i", "out": "o", "arms": ["full"]})
    with pytest.raises(SightlineError, match="--probes is needed"):
        read_config(None, {"model": "m"})
    with pytest.raises(SightlineError, match="cannot read config"):
        read_config(tmp_path / "none.yaml", {})
    file.write_text("model: [unclosed\n")
    with pytest.raises(SightlineError, match="not valid YAML"):
        read_config(file, {})


@pytest.mark.parametrize(("device", "gpu", "shard", "tokens"), [
    ("auto", False, 8, 16384), ("auto", True, 64, 32768), ("cpu", True, 8, 16384), ("cuda:1", False, 64, 32768),
])  # fmt: skip
def test_a_gpu_gets_longer_stretches_of_work(
    monkeypatch: pytest.MonkeyPatch, device: str, gpu: bool, shard: int, tokens: int
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    given = {"model": "m", "probes": Path("p"), "images": Path("i"), "out": Path("o"), "arms": ["full"]}
    config = AuditConfig(**given, device=device)
    assert (config.shard_images, config.batch_tokens) == (shard, tokens)
    assert AuditConfig(**given, device=device, shard_images=3).shard_images == 3


def test_the_artifact_profile_has_its_own_seed_unless_one_is_given() -> None:
    given = {"model": "m", "probes": Path("p"), "images": Path("i"), "out": Path("o"), "arms": ["full"]}
    assert AuditConfig(**given).seed == 17
    assert AuditConfig(**given, profile="artifact").seed == 13
    assert AuditConfig(**given, profile="artifact", seed=17).seed == 17
