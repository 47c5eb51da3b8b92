from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.boxes.quality import BoxQuality, best_ious, iou
from sightline.boxes.sources import VARIANTS, simulate
from sightline.core.probe import Box, Probe

ORACLE: tuple[Box, ...] = ((0.41, 0.305, 0.47, 0.333),)


def rows(data: Path, variant: str) -> list[dict[str, Any]]:
    file = data / "golden_e2e" / "inputs" / "box_robustness" / f"{variant}.jsonl.gz"
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def boxes(values: list[list[float]]) -> tuple[Box, ...]:
    return tuple((a, b, c, d) for a, b, c, d in values)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_golden_vector(data: Path, variant: str) -> None:
    misc = json.loads((data / "protocol" / "golden_json" / "misc.json").read_text())
    assert simulate(ORACLE, "textocr-a:hard-small-pos", variant).boxes == boxes(misc["box_sources"][variant])


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_row_of_the_reference_to_the_last_bit(data: Path, variant: str) -> None:
    recorded = rows(data, variant)
    for row in recorded:
        oracle = boxes(row["oracle_evidence_regions"])
        found = simulate(oracle, row["sample_id"], variant)
        assert found.boxes == boxes(row["evidence_regions"])
        assert found.found == row["box_detector_kept_oracle_count"]
        best = best_ious(oracle, found.boxes)
        assert sum(best) / len(best) == pytest.approx(row["box_detector_mean_best_iou"], abs=1e-15)
    assert len(recorded) == 104


@pytest.mark.parametrize("variant", VARIANTS)
def test_quality_over_a_probe_set(data: Path, variant: str) -> None:
    summary = json.loads((data / "golden_e2e" / "inputs" / "box_robustness" / "summary.json").read_text())
    expected = next(entry for entry in summary if entry["variant"] == variant)
    probes = [
        Probe(
            id=row["sample_id"], image="a.jpg", image_id="a", question="q", label="yes", target_text="", source_text="",
            regions=boxes(row["oracle_evidence_regions"]), boxes=boxes(row["evidence_regions"]),
        )
        for row in rows(data, variant)
    ]  # fmt: skip
    quality = BoxQuality.of(probes)
    assert quality.boxes_per_probe == pytest.approx(expected["mean_observed_boxes"])
    assert quality.best_iou == pytest.approx(expected["mean_best_iou"], abs=1e-12)
    assert quality.empty_rate == expected["missing_box_rate"]


def test_iou_of_disjoint_equal_and_half_overlapping_boxes() -> None:
    left: Box = (0.0, 0.0, 0.5, 1.0)
    assert iou(left, left) == 1.0
    assert iou(left, (0.5, 0.0, 1.0, 1.0)) == 0.0
    assert iou(left, (0.25, 0.0, 0.75, 1.0)) == pytest.approx(1 / 3)


corner = st.floats(0.0, 0.98)


@given(st.lists(st.tuples(corner, corner, st.floats(0.001, 1.0), st.floats(0.001, 1.0)), max_size=4), st.text())
def test_simulated_boxes_stay_in_the_image_and_depend_on_nothing_but_their_key(
    places: list[tuple[float, float, float, float]], probe_id: str
) -> None:
    oracle = tuple((x, y, min(1.0, x + w), min(1.0, y + h)) for x, y, w, h in places)
    for variant, noise in VARIANTS.items():
        found = simulate(oracle, probe_id, variant)
        assert found == simulate(oracle, probe_id, variant)
        assert len(found.boxes) == found.found + noise.spurious
        assert all(0.0 <= x1 < x2 <= 1.0 and 0.0 <= y1 < y2 <= 1.0 for x1, y1, x2, y2 in found.boxes)
