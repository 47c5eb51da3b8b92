"""What the fields of an artifact row become."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely

from sightline.core.probe import Box, Probe
from sightline.errors import SightlineError
from sightline.probes import read_probes
from sightline.probes.dialects import artifact_row, probe_from_artifact

ROW: dict[str, Any] = {
    "id": "a:pos",
    "image": "root/train/a.jpg",
    "image_id": "a",
    "question": "q?",
    "target_answer": "yes",
    "target_text": "t",
    "source_text": "t",
    "binary_polarity": "positive",
    "evidence_regions": [[0.1, 0.1, 0.2, 0.2]],
}


def coverage(boxes: tuple[Box, ...], kept: list[int], side: int = 24) -> float:
    """Share of the union of ``boxes`` that lies in kept cells of a square grid over the whole image."""
    if not boxes:
        return 0.0
    rows, columns = np.divmod(np.asarray(kept), side)
    cells = shapely.box(columns / side, rows / side, (columns + 1) / side, (rows + 1) / side)
    wanted = shapely.union_all([shapely.box(*box) for box in boxes])
    return float(shapely.area(shapely.intersection(cells, wanted)).sum() / wanted.area)


def test_regions_are_the_true_boxes_and_boxes_the_shown_ones(data: Path) -> None:
    """Recorded run coverage was measured on shown boxes, the report's ``true_ECR`` on true ones: both can be had."""
    folder = data / "golden_e2e"
    with gzip.open(folder / "runs" / "llava.jsonl.gz", "rt") as stream:
        records = [json.loads(line) for line in stream if '"run": "box_robustness/' in line]
    with open(folder / "analysis" / "box_robustness" / "box_robustness_summary.csv") as stream:
        summary = {row["variant"]: row for row in csv.DictReader(stream) if row["model"] == "LLaVA"}
    for variant in ("jitter_heavy", "detected_like", "missing"):
        probes = {
            probe.id: probe
            for probe in read_probes(folder / "inputs" / "box_robustness" / f"{variant}.jsonl.gz").probes
        }
        runs = [record for record in records if record["run"] == f"box_robustness/llava_{variant}"]
        assert len(runs) == 62
        true = []
        for run in runs:
            probe = probes[run["sample_id"]]
            assert probe.boxes is not None
            assert coverage(probe.visible_boxes, run["kept"]) == pytest.approx(run["ecr"], abs=1e-12)
            true.append(coverage(probe.regions, run["kept"]))
        assert sum(true) / len(true) == pytest.approx(float(summary[variant]["true_ECR"]), abs=1e-12)


def test_a_row_without_oracle_boxes_shows_its_regions() -> None:
    probe = probe_from_artifact(ROW)
    assert probe.regions == ((0.1, 0.1, 0.2, 0.2),)
    assert probe.boxes is None
    assert probe.visible_boxes == probe.regions


def test_missing_boxes_stay_missing() -> None:
    row = ROW | {"evidence_regions": [], "oracle_evidence_regions": [[0.1, 0.1, 0.2, 0.2]]}
    probe = probe_from_artifact(row)
    assert probe.regions == ((0.1, 0.1, 0.2, 0.2),)
    assert probe.visible_boxes == ()


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        ("original", ()),
        ("evidence_masked", ((0.1, 0.1, 0.2, 0.2),)),
        ("mask_regions", ((0.5, 0.5, 0.6, 0.6),)),
    ],
)
def test_views_become_occlusions(view: str, expected: tuple[Box, ...]) -> None:
    row = ROW | {"probe": "name", "rice_view": view, "mask_regions": [[0.5, 0.5, 0.6, 0.6]]}
    probe = probe_from_artifact(row)
    assert probe.view == "name"
    assert probe.occlude == expected


def test_other_views_are_refused() -> None:
    with pytest.raises(SightlineError, match="'flip'"):
        probe_from_artifact(ROW | {"rice_view": "flip"})


def test_a_blank_control_is_its_original_image_all_gray() -> None:
    row = ROW | {"control_type": "blank", "image": "/elsewhere/blank/a.jpg", "original_image": "root/train/a.jpg"}
    probe = probe_from_artifact(row, image_prefix="root")
    assert probe.image == "train/a.jpg"
    assert probe.occlude == ((0.0, 0.0, 1.0, 1.0),)


def test_label_and_polarity_must_agree() -> None:
    with pytest.raises(SightlineError, match="contradicts binary_polarity"):
        probe_from_artifact(ROW | {"target_answer": "no"})


def test_unknown_fields_are_carried_along() -> None:
    probe = probe_from_artifact(ROW | {"novel": [1, {"a": None}]})
    assert probe.extra == {"novel": [1, {"a": None}]}
    assert artifact_row(probe)["novel"] == [1, {"a": None}]


def test_what_is_grayed_in_an_image_survives_the_artifact_layout() -> None:
    boxes = ((0.5, 0.5, 0.6, 0.6), (0.1, 0.1, 0.2, 0.2))
    probe = Probe(
        id="p", image="a.png", image_id="a", question="Is there TOTAL?", label="yes", target_text="TOTAL",
        source_text="TOTAL", regions=((0.1, 0.2, 0.3, 0.4),), occlude=boxes,
    )  # fmt: skip
    row = artifact_row(probe)
    again = probe_from_artifact(row)
    assert again.occlude == boxes
    assert artifact_row(again) == row


def test_an_original_image_that_is_no_name_is_refused_before_it_is_written() -> None:
    probe = Probe(
        id="p", image="a.png", image_id="a", question="Is there TOTAL?", label="yes", target_text="TOTAL",
        source_text="TOTAL", regions=(), extra={"original_image": 5},
    )  # fmt: skip
    with pytest.raises(SightlineError, match="image name 5"):
        artifact_row(probe)
