"""Selectors of other packages through a whole audit: what their classes say, or leave open, decides what is done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from sightline.auditing.audit import audit
from sightline.auditing.config import AuditConfig
from sightline.core.selection import Parity, QuerySpan, Selection, TokenView
from sightline.selectors import SELECTORS


@dataclass(frozen=True)
class Averaging:
    """Written for the first release: no base class. Every output also holds a little of all other tokens."""

    name: ClassVar[str] = "averaging"
    query: ClassVar[QuerySpan] = "none"
    parity: ClassVar[Parity] = "own"
    needs: ClassVar[frozenset[str]] = frozenset()

    def select(self, view: TokenView, k: int) -> Selection:
        n = view.tokens.shape[0]
        mix = torch.full((k, n), 0.1 / n, device=view.tokens.device)
        mix[torch.arange(k), torch.arange(k)] += 0.9
        return Selection(torch.arange(k), mix)


@dataclass(frozen=True)
class AtBoxes:
    """Written for the first release: reads boxes, and had no way to say so."""

    name: ClassVar[str] = "at_boxes"
    query: ClassVar[QuerySpan] = "none"
    parity: ClassVar[Parity] = "own"
    needs: ClassVar[frozenset[str]] = frozenset()

    def select(self, view: TokenView, k: int) -> Selection:
        middle = (view.cells[:, :2] + view.cells[:, 2:]) / 2.0
        aim = view.boxes[:, :2].mean(dim=0) if len(view.boxes) else torch.zeros(2, dtype=torch.float64)
        return Selection((middle - aim).square().sum(dim=1).argsort(stable=True)[:k])


@dataclass(frozen=True)
class BoxFree(AtBoxes):
    name: ClassVar[str] = "box_free"
    reads_boxes: ClassVar[bool] = False

    def select(self, view: TokenView, k: int) -> Selection:
        return Selection(torch.arange(k))


@pytest.fixture(autouse=True)
def _installed() -> Iterator[None]:
    kinds: list[Any] = [Averaging, AtBoxes, BoxFree]
    for kind in kinds:
        SELECTORS.register(kind.name)(kind)
    yield
    for kind in kinds:
        del SELECTORS._entries[kind.name]


def settings(data: Path, out: Path, **changes: Any) -> AuditConfig:
    return AuditConfig(
        model=str(data / "tiny" / "qwen3vl"),
        probes=data / "golden_e2e" / "inputs" / "probes_dev.jsonl",
        images=data / "mini_textocr",
        image_prefix="mini_textocr",
        out=out,
        dtype="float32",
        device="cpu",
        image_options={"max_pixels": 50176},
        limit=1,
        matched_controls=False,
        **changes,
    )


def test_a_method_that_merges_does_not_abort_a_run_with_deletions(data: Path, tmp_path: Path) -> None:
    run = audit(settings(data, tmp_path / "run", arms=["target:0.3", "averaging:0.3"], interventions=["deletion"]))
    rows = run.frame().groupby(["selector", "intervention"]).size()
    assert ("target", "remove_evidence") in rows.index
    assert {intervention for selector, intervention in rows.index if selector == "averaging"} == {"none"}


def test_detection_is_billed_to_methods_that_read_boxes_or_do_not_say(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    arms = ["at_boxes:0.1", "box_free:0.1", "hybrid:0.1"]
    frame = audit(settings(data, tmp_path / "run", arms=arms, box_source="rapidocr")).frame()
    billed = frame.groupby("selector")["boxes_ms"].count()
    assert billed["at_boxes"] == len(frame) / 3
    assert billed["box_free"] == billed["hybrid"] == 0
