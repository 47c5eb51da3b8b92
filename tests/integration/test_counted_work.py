"""What is computed, and how often: images are decoded once, signals computed once, whoever asks for them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sightline.auditing import worker
from sightline.auditing.audit import audit
from sightline.backbones.qwen3_vl import Qwen3VL
from sightline.probes import images


def test_an_image_is_decoded_once_for_the_tower_and_the_report(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: Counter[str] = Counter()
    decode = images.open_image_file

    def counted(file: Any, called: Any, **how: Any) -> Any:
        opened[file.name] += 1
        return decode(file, called, **how)

    monkeypatch.setattr(worker, "open_image_file", counted)
    run = audit(config("llava", arms=["full", "target:0.3", "grid:0.3"], limit=3, shard_images=2))
    assert set(opened) == {Path(name).name for name in run.images.column("image").to_pylist()}
    assert set(opened.values()) == {1}
    audit(config("llava", arms=["random:0.3"], limit=3, shard_images=2))
    assert set(opened.values()) == {2}, "an amendment decodes again, and once"


def test_a_vision_signal_is_computed_once_per_image(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: Counter[str] = Counter()
    signal = Qwen3VL.vision_signal

    def counted(self: Qwen3VL, name: str, encoded: Any) -> Any:
        computed[name] += 1
        return signal(self, name, encoded)

    monkeypatch.setattr(Qwen3VL, "vision_signal", counted)
    rows = audit(config("qwen3vl", arms=["visionzip_qwen:0.4", "visionzip_qwen:0.3", "full"], limit=3)).frame()
    assert len(rows) == 18, "two probes on each of three images, three arms"
    assert computed
    assert set(computed.values()) == {3}
    billed = rows[rows["selector"] == "visionzip_qwen"].groupby("image_id")["signal_ms"].nunique()
    assert set(billed) == {1}, "all rows of an image are billed what computing its signals took"
    assert (rows.loc[rows["selector"] == "visionzip_qwen", "signal_ms"] > 0).all()
    assert (rows.loc[rows["selector"] == "full", "signal_ms"] == 0).all()
