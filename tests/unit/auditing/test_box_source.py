"""Which boxes an audit asks for under each profile, decided before any model is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sightline.auditing.audit import plan_audit
from sightline.auditing.config import AuditConfig
from sightline.boxes.detectors import EasyOcr
from sightline.errors import SightlineError


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EasyOcr, "require", classmethod(lambda cls: "1.7"))


def config(data: Path, out: Path, **options: Any) -> AuditConfig:
    return AuditConfig(
        model=str(data / "tiny" / "qwen3vl"),
        probes=data / "recorded_run" / "probes.jsonl",
        images=data / "mini_textocr",
        out=out,
        arms=["protected:0.4"],
        **options,
    )


@pytest.mark.parametrize(
    ("profile", "asked", "meant"),
    [
        ("paper", "easyocr", "easyocr"),
        ("artifact", "easyocr", "easyocr:confidence=0.2"),
        ("artifact", "easyocr:confidence=0", "easyocr:confidence=0"),
    ],
)
def test_a_profile_decides_which_detections_count(
    data: Path, tmp_path: Path, profile: Any, asked: str, meant: str
) -> None:
    job = plan_audit(config(data, tmp_path / "run", profile=profile, box_source=asked))
    assert job.config.box_source == meant


def test_a_run_with_boxes_of_an_earlier_rule_is_refused_before_anything_is_loaded(data: Path, tmp_path: Path) -> None:
    manifest = json.loads((data / "recorded_run" / "run.json").read_text(encoding="utf-8"))
    rule = "detected and read, confidence of at least 0.20"
    (tmp_path / "run.json").write_text(json.dumps({**manifest, "box_source": "easyocr", "boxes": {"rule": rule}}))
    with pytest.raises(SightlineError, match="easyocr now means"):
        plan_audit(config(data, tmp_path, box_source="easyocr"))
