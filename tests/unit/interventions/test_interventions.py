"""Deletion and occlusion against the recorded masks, boxes and probes of the reference."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sightline.boxes.quality import iou
from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.geometry.cells import grid_cells, tile_cells
from sightline.interventions import families, parse_intervention, split_arm
from sightline.interventions.evidence import OnEvidence, Restoration, touches
from sightline.interventions.occlusion import occlusion_probes, occlusion_views, random_region, with_occlusion
from sightline.probes import read_probes, write_probes

DELETION = [one for one in families()["deletion"] if isinstance(one, OnEvidence)]
KEPT = torch.tensor([1, 3, 5, 7, 9, 11, 13])


def mask(indices: list[int], n: int) -> torch.Tensor:
    found = torch.zeros(n, dtype=torch.bool)
    found[torch.tensor(indices, dtype=torch.long)] = True
    return found


def variant(change: OnEvidence) -> str:
    return f"{change.name}_{change.share:.2f}".replace(".", "p") if isinstance(change, Restoration) else change.name


def test_deletion_stands_for_seven_interventions() -> None:
    assert [str(change) for change in DELETION] == [
        "remove_evidence", "restore_evidence=0.25", "restore_random=0.25", "restore_evidence=0.5",
        "restore_random=0.5", "restore_evidence=1.0", "restore_random=1.0",
    ]  # fmt: skip


def test_the_golden_vector_of_deletion(data: Path) -> None:
    expected = json.loads((data / "protocol" / "golden_json" / "misc.json").read_text())["deletion_restoration"]
    evidence = mask([5, 7, 9], 16)
    for change in DELETION:
        assert change.without_evidence(KEPT, evidence, "textocr-a:hard-small-pos").tolist() == expected[variant(change)]


def reference(data: Path, name: str) -> list[dict[str, Any]]:
    with gzip.open(data / "golden_e2e" / "inputs" / f"deletion_restoration_{name}.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("name", "model", "run"), [("qwen", "qwen3vl", "qwen_target30"), ("internvl", "internvl", "internvl_soft50")]
)
def test_every_mask_of_the_reference(data: Path, name: str, model: str, run: str) -> None:
    folder = data / "golden_e2e"
    probes = {probe.id: probe for probe in read_probes(folder / "inputs" / "probes_dev.jsonl").probes}
    cells = {}
    with gzip.open(folder / "runs" / f"{model}.jsonl.gz", "rt") as lines:
        for line in lines:
            record = json.loads(line)
            if record["run"] == f"textocr_deletion_restoration/{run}_runs/selected":
                cells[record["sample_id"]] = _cells(record)
    rows = reference(data, name)
    selected = {row["sample_id"]: row["kept_indices"] for row in rows if row["variant"] == "selected"}
    expected = {(row["sample_id"], row["variant"]): row["kept_indices"] for row in rows}
    checked = 0
    for probe_id, kept in selected.items():
        evidence = touches(torch.from_numpy(cells[probe_id]), probes[probe_id].regions)
        for change in DELETION:
            found = change.without_evidence(torch.tensor(kept), evidence, probe_id)
            assert found.tolist() == expected[probe_id, variant(change)], (probe_id, str(change))
            checked += 1
    assert checked == 62 * 7


def _cells(record: dict[str, Any]) -> np.ndarray:
    if "tile_rows" in record:
        canvas = (record["tile_cols"], record["tile_rows"])
        return tile_cells(canvas, record["num_image_patches"], record["patch_grid_h"], record["patch_grid_w"])
    merge = round((record["grid_h"] * record["grid_w"] / record["full_tokens"]) ** 0.5)
    return grid_cells(record["grid_h"] // merge, record["grid_w"] // merge)


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), *[st.sets(st.integers(0, n - 1))] * 2)), st.text())
def test_variants_touch_nothing_but_evidence(drawn: tuple[int, set[int], set[int]], probe_id: str) -> None:
    n, kept, evidence = drawn
    flags = mask(sorted(evidence), n)
    anchors = torch.tensor(sorted(kept), dtype=torch.long)
    gone = kept & evidence
    for change in DELETION:
        found = set(change.without_evidence(anchors, flags, probe_id).tolist())
        assert found >= kept - evidence
        if change.name == "restore_evidence":
            assert found <= kept
            assert len(found & gone) >= bool(gone)
        elif change.name == "restore_random":
            assert not found & evidence
            assert len(found) <= len(kept)
        else:
            assert found == kept - evidence
    assert set(DELETION[-2].without_evidence(anchors, flags, probe_id).tolist()) == kept


def test_interventions_are_read_and_written_alike() -> None:
    for change in DELETION:
        assert split_arm(f"masks:file=a+b.jsonl+{change}") == ("masks:file=a+b.jsonl", change)
    assert split_arm("masks:file=a+b.jsonl") == ("masks:file=a+b.jsonl", None)


@pytest.mark.parametrize("text", ["remove", "restore_evidence", "restore_random=2", "remove_evidence=1", "blanket"])
def test_an_unknown_intervention_is_refused(text: str) -> None:
    with pytest.raises(SightlineError, match=r"is not an intervention on an arm|needs a share"):
        split_arm(f"target:0.3+{text}")


def test_an_empty_result_is_refused() -> None:
    cells = torch.tensor([[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]])
    probe = Probe("p", "p.png", "p", "?", "yes", "", "", ((0.1, 0.1, 0.2, 0.2),))
    with pytest.raises(SightlineError, match="no visual token"):
        parse_intervention("remove_evidence").kept(torch.tensor([0]), cells, probe)


PROBE = Probe(
    id="p:1", image="a.jpg", image_id="a", question="q", label="yes", target_text="OPEN", source_text="OPEN",
    regions=((0.1, 0.1, 0.2, 0.15), (0.6, 0.6, 0.7, 0.7)),
)  # fmt: skip


def test_the_golden_vectors_of_boxes_elsewhere(data: Path) -> None:
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
