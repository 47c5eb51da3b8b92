"""Deletion and occlusion against the masks, boxes, probes and rows that the reference recorded."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sightline import AuditConfig, Probe, Run, audit, load_run
from sightline.boxes.quality import iou
from sightline.boxes.sources import BoxesBeside
from sightline.interventions import families, parse_intervention, split_arm
from sightline.interventions.evidence import OnEvidence, touches
from sightline.interventions.occlusion import occlusion_probes, occlusion_views, random_region, with_occlusion
from sightline.probes import read_probes, write_probes
from tests.refusals import Refused
from tests.unit.statistics.golden_rows import cells_of

DELETION = [one for one in families()["deletion"] if isinstance(one, OnEvidence)]
KEPT = torch.tensor([1, 3, 5, 7, 9, 11, 13])


def mask(indices: list[int], n: int) -> torch.Tensor:
    found = torch.zeros(n, dtype=torch.bool)
    found[torch.tensor(indices, dtype=torch.long)] = True
    return found


def variant(change: OnEvidence | str) -> str:
    """What the artifact calls it."""
    name, _, share = str(change).partition("=")
    return f"{name}_{float(share):.2f}".replace(".", "p") if share else name


def test_interventions_are_read_and_written_alike_and_stand_for_seven() -> None:
    assert [str(change) for change in DELETION] == [
        "remove_evidence", "restore_evidence=0.25", "restore_random=0.25", "restore_evidence=0.5",
        "restore_random=0.5", "restore_evidence=1.0", "restore_random=1.0",
    ]  # fmt: skip
    for change in DELETION:
        assert split_arm(f"masks:file=a+b.jsonl+{change}") == ("masks:file=a+b.jsonl", change)
    assert split_arm("masks:file=a+b.jsonl") == ("masks:file=a+b.jsonl", None)


def test_the_golden_vectors_of_deletion_and_of_boxes_elsewhere_come_back(data: Path) -> None:
    misc = json.loads((data / "protocol" / "golden_json" / "misc.json").read_text())
    for change in DELETION:
        found = change.without_evidence(KEPT, mask([5, 7, 9], 16), "textocr-a:hard-small-pos")
        assert found.tolist() == misc["deletion_restoration"][variant(change)]
    for case in misc["occlusion_random_region"]:
        assert list(random_region(tuple(case["evidence"]), case["sample_id"])) == case["region"]


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


@pytest.mark.parametrize(
    ("name", "model", "run"), [("qwen", "qwen3vl", "qwen_target30"), ("internvl", "internvl", "internvl_soft50")]
)
def test_every_mask_of_the_reference(data: Path, name: str, model: str, run: str) -> None:
    folder = data / "golden_e2e"
    probes = {probe.id: probe for probe in read_probes(folder / "inputs" / "probes_dev.jsonl").probes}
    cells = {
        record["sample_id"]: cells_of(record)
        for record in lines_of(folder / "runs" / f"{model}.jsonl.gz")
        if record["run"] == f"textocr_deletion_restoration/{run}_runs/selected"
    }
    rows = lines_of(folder / "inputs" / f"deletion_restoration_{name}.jsonl.gz")
    expected = {(row["sample_id"], row["variant"]): row["kept_indices"] for row in rows}
    selected = {probe_id: kept for (probe_id, which), kept in expected.items() if which == "selected"}
    assert len(selected) == 62
    for probe_id, kept in selected.items():
        evidence = touches(torch.from_numpy(cells[probe_id]), probes[probe_id].regions)
        for change in DELETION:
            found = change.without_evidence(torch.tensor(kept), evidence, probe_id)
            assert found.tolist() == expected[probe_id, variant(change)], (probe_id, str(change))


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


def test_unknown_interventions_and_empty_results_are_refused(refused: Refused) -> None:
    for text in ("remove", "restore_evidence", "restore_random=2", "remove_evidence=1", "blanket"):
        refused(f"'{text}'", split_arm, f"target:0.3+{text}")
    cells = torch.tensor([[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]])
    probe = Probe("p", "p.png", "p", "?", "yes", "", "", ((0.1, 0.1, 0.2, 0.2),))
    refused("no visual token", parse_intervention("remove_evidence").kept, torch.tensor([0]), cells, probe)
    refused("probe 'p:1' has no regions", occlusion_views, replace(PROBE, regions=()))
    refused("no probe has regions", occlusion_probes, [replace(PROBE, regions=())])


PROBE = Probe(
    id="p:1", image="a.jpg", image_id="a", question="q", label="yes", target_text="OPEN", source_text="OPEN",
    regions=((0.1, 0.1, 0.2, 0.15), (0.6, 0.6, 0.7, 0.7)),
)  # fmt: skip


def test_the_reference_probe_file(data: Path, tmp_path: Path) -> None:
    inputs, file = data / "golden_e2e" / "inputs", tmp_path / "occlusion.jsonl"
    probes = read_probes(inputs / "probes_dev.jsonl", image_prefix="mini_textocr").probes
    views = occlusion_probes([probe for probe in probes if probe.regions][:60])
    write_probes(file, views, layout="artifact", image_prefix="mini_textocr")
    found = [json.loads(line) for line in file.read_text().splitlines()]
    expected = list(lines_of(inputs / "occlusion_probes.jsonl.gz"))
    assert found == expected
    assert [list(row) for row in found] == [list(row) for row in expected]


def test_views_gray_all_regions_or_one_box_elsewhere_and_are_not_expanded_again(tmp_path: Path) -> None:
    hidden, elsewhere = occlusion_views(PROBE)
    assert (hidden.view, elsewhere.view) == ("evidence_masked", "random_masked")
    assert hidden.occlude == PROBE.regions
    assert hidden.regions == elsewhere.regions == PROBE.regions
    (box,) = elsewhere.occlude
    assert iou(box, PROBE.regions[0]) <= 0.05
    assert [box[2] - box[0], box[3] - box[1]] == pytest.approx([0.1, 0.05])
    probes = with_occlusion([PROBE])
    assert [probe.view for probe in with_occlusion(probes[1:])] == ["evidence_masked", "random_masked"]
    write_probes(tmp_path / "probes.jsonl", probes)
    assert read_probes(tmp_path / "probes.jsonl").probes == tuple(probes)


# Through ``audit``: rows against the recorded runs of the artifact, encoded counted, runs amended.

IMAGES = 4
DELETIONS = "textocr_deletion_restoration/qwen_target30_runs/"
OCCLUSION = "bbox_occlusion_qwen_textocr_hard_200/qwen3_8b_direct_802816"


def settings(data: Path, out: Path, **changes: Any) -> AuditConfig:
    values: dict[str, Any] = {
        "model": str(data / "tiny" / "qwen3vl"),
        "probes": data / "golden_e2e" / "inputs" / "probes_dev.jsonl",
        "images": data / "mini_textocr",
        "image_prefix": "mini_textocr",
        "out": out,
        "arms": ["target:0.3"],
        "dtype": "float32",
        "device": "cpu",
        "attention": "eager",
        "image_options": {"min_pixels": 200704, "max_pixels": 200704},
        "limit": IMAGES,
        "shard_images": 2,
        "profile": "artifact",
    }
    return AuditConfig(**{**values, **changes})


def test_deleted_and_occluded_rows_match_the_recorded_runs(data: Path, tmp_path: Path, encoded: list[int]) -> None:
    frame = audit(settings(data, tmp_path / "run", interventions=["deletion", "occlusion"])).frame()
    # originals once, grayed evidence once per image, another random box for each of the two probes
    assert sum(encoded) == IMAGES * (1 + 1 + 2)
    expected = {
        (row["run"].removeprefix(DELETIONS), row["sample_id"], row["probe"]): row
        for row in lines_of(data / "golden_e2e" / "runs" / "qwen3vl.jsonl.gz")
    }
    checked = {"deletion": 0, "occlusion": 0}
    row: Any
    for row in frame.itertuples():
        if row.selector == "target" and row.view == "orig":
            run, kind = "selected" if row.intervention == "none" else variant(row.intervention), "deletion"
        elif row.selector == "full":
            run, kind = OCCLUSION, "occlusion"
        else:
            continue
        found = expected.get((run, row.probe_id, row.view))
        if found is None:  # the record covers a part of the images
            continue
        assert row.margin == pytest.approx(found["margin"], abs=2e-5), (row.intervention, row.probe_id)
        assert row.k_tokens == found.get("kept_tokens", row.n_tokens)
        if "ecr" in found:
            assert row.ecr == pytest.approx(found["ecr"], abs=1e-9)
        checked[kind] += 1
    assert checked["deletion"] >= 8 * IMAGES
    assert checked["occlusion"] >= 3 * IMAGES


def test_a_run_with_interventions_resumes_where_it_was_killed(data: Path, tmp_path: Path) -> None:
    config = settings(data, tmp_path / "run", limit=3, interventions=["deletion", "occlusion"])
    frame = audit(config).frame()
    lost = sorted((tmp_path / "run" / "rows").glob("*/00001.parquet"))[::2]
    for file in lost:
        file.unlink()
    assert load_run(tmp_path / "run").missing == len(lost) > 0
    columns = [name for name in frame.columns if not name.endswith("_ms")]
    assert audit(config).frame()[columns].equals(frame[columns])


def test_edits_of_mask_and_positions_encode_nothing_again_and_swapped_positions_keep_the_mask(
    data: Path, tmp_path: Path, encoded: list[int]
) -> None:
    frame = audit(settings(data, tmp_path / "run", limit=2, interventions=["deletion", "positions"])).frame()
    assert sum(encoded) == 2
    target = frame[(frame["selector"] == "target") & frame["intervention"].isin(["none", "swap_positions"])]
    policies = target.pivot(index="probe_id", columns="positions", values=["kept_mask", "margin"])
    assert set(target["positions"]) == {"preserve", "compact"}
    assert (policies["kept_mask"]["preserve"] == policies["kept_mask"]["compact"]).all()
    assert (policies["margin"]["preserve"] != policies["margin"]["compact"]).any()


def test_interventions_amend_a_finished_run(data: Path, tmp_path: Path) -> None:
    first = audit(settings(data, tmp_path / "run", limit=2, arms=["full", "target:0.3"]))
    before = first.frame()
    amended = audit(settings(data, tmp_path / "run", limit=2, arms=["target:0.3"], interventions=["occlusion"]))
    after = amended.frame()
    plain = after[after["intervention"] == "none"]
    columns = ["arm", "probe_id", "margin", "kept_mask"]
    assert plain[columns].reset_index(drop=True).equals(before[columns])
    assert set(after["view"]) == {"orig", "evidence_masked", "random_masked"}
    assert set(after["plain_arm"]) == {"full", "target:0.3", "random:0.3:seed=13", "grid:0.3:cells=truncated"}
    assert set(after["arm"]) == set(amended.arms)
    keys = set(amended.images.column("image_key").to_pylist())
    assert set(after["image_key"]) <= keys


def test_matched_controls_are_added_recorded_and_can_be_left_out(data: Path, tmp_path: Path) -> None:
    run = audit(settings(data, tmp_path / "with", limit=1, profile="paper", arms=["target:0.3", "random:0.3"]))
    assert run.arms == ["target:0.3", "random:0.3", "grid:0.3"]
    assert run.manifest["matched_controls"] == ["grid:0.3"]
    counts = run.frame().groupby(["arm", "probe_id"])["k_tokens"].first().unstack()
    assert (counts.nunique() == 1).all()
    alone = audit(settings(data, tmp_path / "without", limit=1, matched_controls=False))
    assert alone.arms == ["target:0.3"]
    controls = audit(settings(data, tmp_path / "controls", limit=1, arms=["full", "evidence_only:0.3", "random:0.5"]))
    assert controls.manifest["matched_controls"] == []


def test_simulated_boxes_reach_selectors_and_leave_the_audit_alone(
    data: Path, tmp_path: Path, refused: Refused
) -> None:
    def protected(source: str) -> Run:
        changes = {"arms": ["protected:0.1"], "box_source": source, "matched_controls": False}
        return audit(settings(data, tmp_path / source, limit=2, **changes))

    shown, hidden = protected("annotation"), protected("missing")
    assert (shown.frame()["ecr"] == 1.0).all()
    assert hidden.frame()["ecr"].mean() < 1.0
    assert set(hidden.frame()["box_source"]) == {"missing"}
    assert hidden.manifest["boxes"]["empty_rate"] == hidden.manifest["boxes"]["missing_rate"] == 1.0
    assert hidden.frame()["boxes_ms"].isna().all()
    refused("box_source", audit, settings(data, tmp_path / "missing", limit=2, arms=["protected:0.1"]))


@pytest.mark.parametrize("beside", [False, True], ids=["first", "beside"])
def test_a_detector_is_billed_to_the_arms_that_read_its_boxes(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: bool
) -> None:
    """``beside``: a shard is scored while the next one is searched, as with a GPU."""
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    if beside:
        monkeypatch.setattr(BoxesBeside, "wait", lambda _: None)
    arms = ["protected:0.1", "target:0.1"]
    run = audit(settings(data, tmp_path / "run", limit=1, arms=arms, box_source="rapidocr", matched_controls=False))
    cost = run.frame().groupby("selector")["boxes_ms"]
    assert cost.min()["protected"] > 0.0
    assert cost.count()["target"] == 0
    facts = run.manifest["boxes"]
    assert facts["mean_ms"] == pytest.approx(cost.mean()["protected"], rel=1e-5)
    assert 0.0 <= facts["missing_rate"] <= 1.0
    assert facts["rule"].startswith("text detection alone")
    assert {tuple(box) for probe in run.probes for box in probe["regions"]}.isdisjoint(
        tuple(box) for probe in run.probes for box in probe["boxes"]
    )


def test_what_cannot_be_done_is_refused_before_any_work(data: Path, tmp_path: Path, refused: Refused) -> None:
    def wrong(message: str, **changes: Any) -> None:
        refused(message, audit, settings(data, tmp_path / "run", **changes))
        assert not (tmp_path / "run").exists()

    wrong("unknown intervention 'deletions'", interventions=["deletions"])
    wrong("applies to none of the arms", arms=["full"], interventions=["deletion"])
    wrong("unknown box source 'rapidcr'; did you mean 'rapidocr'", box_source="rapidcr")
    wrong("prunes between layers", arms=["fastv:0.3+remove_evidence"])
    bare = tmp_path / "bare.jsonl"
    probes = read_probes(data / "golden_e2e" / "inputs" / "probes_dev.jsonl", image_prefix="mini_textocr").probes
    write_probes(bare, [replace(probes[0], regions=())])
    changes = {"probes": bare, "image_prefix": ""}
    wrong("has no regions, so remove_evidence has nothing to act on", interventions=["deletion"], **changes)
    write_probes(bare, [replace(probes[0], view="blank")])
    wrong("is already about the view 'blank'", interventions=["occlusion"], **changes)
