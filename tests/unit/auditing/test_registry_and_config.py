from __future__ import annotations

import re
from pathlib import Path

import pytest

from sightline.auditing.audit import choose_seed
from sightline.auditing.config import AuditConfig, read_config
from sightline.errors import SightlineError
from tests.conftest import REPOSITORY

GIVEN = {"model": "m", "probes": Path("p"), "images": Path("i"), "out": Path("o"), "arms": ["full"]}


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


@pytest.mark.parametrize(("device", "gpu", "shard", "tokens", "probes"), [
    ("auto", False, 8, 16384, 512), ("auto", True, 64, 32768, 4096),
    ("cpu", True, 8, 16384, 512), ("cuda:1", False, 64, 32768, 4096),
])  # fmt: skip
def test_a_gpu_gets_longer_stretches_of_work(
    monkeypatch: pytest.MonkeyPatch, device: str, gpu: bool, shard: int, tokens: int, probes: int
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    config = AuditConfig(**GIVEN, device=device)
    assert (config.shard_images, config.batch_tokens, config.shard_probes) == (shard, tokens, probes)
    assert AuditConfig(**GIVEN, device=device, shard_images=3).shard_images == 3


def test_image_options_that_are_not_a_mapping_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("image_options: [max_tiles]\n")
    for overrides in ({}, {"image_options": {"max_tiles": 2}}):
        with pytest.raises(SightlineError, match="--image-option: Input should be a valid dictionary"):
            read_config(file, {**GIVEN, **overrides})
    file.write_text("image_options: [max_tiles]\nmax_tiles: 2\n")
    with pytest.raises(SightlineError, match="--image-option: Input should be a valid dictionary"):
        read_config(file, GIVEN)


@pytest.mark.parametrize("given", ["deletion, occlusion", ["deletion,occlusion"], ["deletion", "occlusion"]])
def test_interventions_may_be_separated_by_commas(given: str | list[str]) -> None:
    assert AuditConfig(**GIVEN, interventions=given).interventions == ["deletion", "occlusion"]


def test_the_config_file_of_the_documentation_is_read(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "runs.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    file = tmp_path / "run.yaml"
    file.write_text(block)
    config = read_config(file, {})
    assert config.arms == ["full", "target:0.3", "protected:0.4"]
    assert config.interventions == ["deletion", "occlusion"]
    assert config.image_options == {"max_pixels": 802816}


def test_the_artifact_profile_has_its_own_seed_unless_one_is_given() -> None:
    assert choose_seed(AuditConfig(**GIVEN), {}) == 17
    assert choose_seed(AuditConfig(**GIVEN, profile="artifact"), {}) == 13
    assert choose_seed(AuditConfig(**GIVEN, profile="artifact", seed=17), {}) == 17
    assert choose_seed(AuditConfig(**GIVEN, profile="artifact"), {"seed": 17}) == 17, "a run goes on as it was begun"
    assert choose_seed(AuditConfig(**GIVEN, seed=5), {"seed": 17}) == 5
