from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sightline.errors import SightlineError
from sightline.geometry.cells import grid_cells, tile_cells
from sightline.interventions.deletion import edit_selection, edited, touches
from sightline.interventions.edits import DELETION, Edit, split_edit
from sightline.probes import read_probes
from sightline.types import Selection

KEPT = torch.tensor([1, 3, 5, 7, 9, 11, 13])


def mask(indices: list[int], n: int) -> torch.Tensor:
    found = torch.zeros(n, dtype=torch.bool)
    found[torch.tensor(indices, dtype=torch.long)] = True
    return found


def variant(edit: Edit) -> str:
    return edit.kind if edit.kind == "remove_evidence" else f"{edit.kind}_{edit.tag}"


def test_the_golden_vector(shared: Path) -> None:
    expected = json.loads((shared / "protocol" / "golden_json" / "misc.json").read_text())["deletion_restoration"]
    evidence = mask([5, 7, 9], 16)
    for edit in DELETION:
        assert edited(KEPT, evidence, edit, "textocr-a:hard-small-pos").tolist() == expected[variant(edit)]


def reference(shared: Path, name: str) -> list[dict[str, Any]]:
    with gzip.open(shared / "golden_e2e" / "inputs" / f"deletion_restoration_{name}.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("name", "model", "run"), [("qwen", "qwen3vl", "qwen_target30"), ("internvl", "internvl", "internvl_soft50")]
)
def test_every_mask_of_the_reference(shared: Path, name: str, model: str, run: str) -> None:
    folder = shared / "golden_e2e"
    probes = {probe.id: probe for probe in read_probes(folder / "inputs" / "probes_dev.jsonl").probes}
    cells = {}
    with gzip.open(folder / "runs" / f"{model}.jsonl.gz", "rt") as lines:
        for line in lines:
            record = json.loads(line)
            if record["run"] == f"textocr_deletion_restoration/{run}_runs/selected":
                cells[record["sample_id"]] = _cells(record)
    rows = reference(shared, name)
    selected = {row["sample_id"]: row["kept_indices"] for row in rows if row["variant"] == "selected"}
    expected = {(row["sample_id"], row["variant"]): row["kept_indices"] for row in rows}
    checked = 0
    for probe_id, kept in selected.items():
        evidence = touches(torch.from_numpy(cells[probe_id]), probes[probe_id].regions)
        for edit in DELETION:
            found = edited(torch.tensor(kept), evidence, edit, probe_id)
            assert found.tolist() == expected[probe_id, variant(edit)], (probe_id, str(edit))
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
    for edit in DELETION:
        found = set(edited(anchors, flags, edit, probe_id).tolist())
        assert found >= kept - evidence
        if edit.kind == "restore_evidence":
            assert found <= kept
            assert len(found & gone) >= bool(gone)
        elif edit.kind == "restore_random":
            assert not found & evidence
            assert len(found) <= len(kept)
        else:
            assert found == kept - evidence
    assert set(edited(anchors, flags, Edit("restore_evidence", 1.0), probe_id).tolist()) == kept


def test_edits_are_read_and_written_alike() -> None:
    for edit in DELETION:
        assert split_edit(f"masks:file=a+b.jsonl+{edit}") == ("masks:file=a+b.jsonl", edit)
    assert split_edit("masks:file=a+b.jsonl") == ("masks:file=a+b.jsonl", None)


@pytest.mark.parametrize("text", ["remove", "restore_evidence", "restore_random=2", "remove_evidence=1", "blanket"])
def test_an_unknown_edit_is_refused(text: str) -> None:
    with pytest.raises(SightlineError, match=r"is no edit of an arm|needs a share"):
        split_edit(f"target:0.3+{text}")


def test_merged_selections_and_empty_results_are_refused() -> None:
    cells = torch.tensor([[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]])
    left = ((0.1, 0.1, 0.2, 0.2),)
    with pytest.raises(SightlineError, match="merges tokens"):
        edit_selection(Selection(torch.tensor([0]), torch.ones(1, 2)), cells, left, Edit("remove_evidence"), "p")
    with pytest.raises(SightlineError, match="no visual token"):
        edit_selection(Selection(torch.tensor([0])), cells, left, Edit("remove_evidence"), "p")
