from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from sightline.boxes.quality import iou
from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.interventions.occlusion import occlusion_probes, occlusion_views, random_region, with_occlusion
from sightline.probes import read_probes, write_probes

PROBE = Probe(
    id="p:1", image="a.jpg", image_id="a", question="q", label="yes", target_text="OPEN", source_text="OPEN",
    regions=((0.1, 0.1, 0.2, 0.15), (0.6, 0.6, 0.7, 0.7)),
)  # fmt: skip


def test_the_golden_vectors(data: Path) -> None:
    misc = json.loads((data / "protocol" / "golden_json" / "misc.json").read_text())
    for case in misc["occlusion_random_region"]:
        assert list(random_region(tuple(case["evidence"]), case["sample_id"])) == case["region"]


def test_the_reference_probe_file(data: Path, tmp_path: Path) -> None:
    inputs = data / "golden_e2e" / "inputs"
    probes = read_probes(inputs / "probes_dev.jsonl", image_prefix="mini_textocr").probes
    write_probes(
        tmp_path / "occlusion.jsonl", occlusion_probes(probes, 60), layout="artifact", image_prefix="mini_textocr"
    )
    with gzip.open(inputs / "occlusion_probes.jsonl.gz", "rt", encoding="utf-8") as lines:
        expected = [json.loads(line) for line in lines]
    found = [json.loads(line) for line in (tmp_path / "occlusion.jsonl").read_text().splitlines()]
    assert found == expected
    assert [list(row) for row in found] == [list(row) for row in expected]


def test_views_gray_all_regions_or_one_box_elsewhere() -> None:
    hidden, elsewhere = occlusion_views(PROBE)
    assert (hidden.view, elsewhere.view) == ("evidence_masked", "random_masked")
    assert hidden.occlude == PROBE.regions
    assert hidden.regions == elsewhere.regions == PROBE.regions
    (box,) = elsewhere.occlude
    assert iou(box, PROBE.regions[0]) <= 0.05
    assert [box[2] - box[0], box[3] - box[1]] == pytest.approx([0.1, 0.05])


def test_an_expanded_set_is_read_back_and_not_expanded_again(tmp_path: Path) -> None:
    probes = with_occlusion([PROBE])
    assert [probe.view for probe in with_occlusion(probes[1:])] == ["evidence_masked", "random_masked"]
    write_probes(tmp_path / "probes.jsonl", probes)
    assert read_probes(tmp_path / "probes.jsonl").probes == tuple(probes)


def test_a_probe_without_regions_is_refused_by_name() -> None:
    with pytest.raises(SightlineError, match="probe 'p:1' has no regions"):
        occlusion_views(replace(PROBE, regions=()))
    with pytest.raises(SightlineError, match="no probe has regions"):
        occlusion_probes([replace(PROBE, regions=())])
