from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sightline.auditing.config import AuditConfig
from sightline.probes import HardPairRules, build_hard_pairs, load_regions, write_probes

MODELS = ("qwen3vl", "llava", "internvl")
SMALL: dict[str, dict[str, int]] = {"qwen3vl": {"max_pixels": 100352}, "llava": {}, "internvl": {"max_tiles": 2}}
"""Image limits that keep tiny models quick."""
TEN_ARMS = [
    "full", "target:0.3", "random:0.3", "grid:0.3", "shuffled:0.3", "target_grid:0.3", "protected:0.4",
    "soft_evidence:0.3", "coin:0.2", "fastv:0.5",
]  # fmt: skip


@pytest.fixture(scope="session")
def mini_probes(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hard pairs on the first twelve usable images of the mini set."""
    data = data / "mini_textocr"
    records = load_regions(data / "TextOCR_mini_val.json").records
    pairs = build_hard_pairs(records, HardPairRules(limit_images=12))
    path = tmp_path_factory.mktemp("probes") / "mini.jsonl"
    write_probes(path, pairs.probes)
    return path


@pytest.fixture
def config(data: Path, mini_probes: Path, tmp_path: Path) -> Any:
    """``config("llava", arms=[...], limit=2)`` -> a quick AuditConfig on the mini set."""

    def make(model: str, /, **changes: Any) -> AuditConfig:
        settings: dict[str, Any] = {
            "model": str(data / "tiny" / model),
            "probes": mini_probes,
            "images": data / "mini_textocr",
            "out": tmp_path / "run",
            "arms": ["full", "target:0.3", "random:0.3"],
            "device": "cpu",
            "dtype": "float32",
            "limit": 3,
            "matched_controls": False,
            **changes,
            "image_options": {**SMALL[model], **changes.get("image_options", {})},
        }
        return AuditConfig(**settings)

    return make
