"""A run folder of the first release (tests/data/run_v1, row schema 1): read, reported, gated, and gone on with."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from sightline.answering.scorers.yes_no import YesNo
from sightline.auditing.audit import audit
from sightline.auditing.config import AuditConfig
from sightline.core.row import SCHEMA_VERSION, TIME_COLUMNS, row_schema
from sightline.geometry.coverage import RegionGeometry
from sightline.report.build import build_report
from sightline.report.gate import run_gate
from sightline.store import Run, RunFolder, load_run
from sightline.store.load import unpack_cells, unpack_mask
from sightline.store.probe_picture import TEXTS

ARMS = ["full", "target:0.3", "random:0.3", "visionzip_qwen:0.4", "grid:0.3", "fastv:0.5"]
INTERVENTIONS = ["deletion", "occlusion", "blank", "positions"]
PROBES, SHARDS = 6, 2
COLUMNS = row_schema(YesNo.columns).names
VIEWS = {"orig", "evidence_masked", "random_masked", "blank"}
NUMERIC_NOISE = 1e-4
"""How far losses and what is computed from them may move with the versions of the libraries."""


@pytest.fixture
def old(data: Path, tmp_path: Path) -> Path:
    """A copy that may be written to."""
    return Path(shutil.copytree(data / "run_v1", tmp_path / "run"))


def again(data: Path, folder: Path) -> Run:
    """The command that the first release was given, given to this one."""
    return audit(
        AuditConfig(
            model=str(data / "tiny" / "qwen3vl"),
            probes=data / "run_v1" / "probes.jsonl",
            images=data / "mini_textocr",
            out=folder,
            arms=ARMS,
            interventions=INTERVENTIONS,
            shard_images=2,
            image_options={"max_pixels": 100352},
            dtype="float32",
            device="cpu",
        )
    )


def schema_of(folder: Path) -> int:
    """As the file says it, not as a reader might answer for it."""
    return int(json.loads((folder / "run.json").read_text(encoding="utf-8"))["schema"])


def test_it_opens_with_the_columns_of_today(data: Path) -> None:
    run = load_run(data / "run_v1")
    frame = run.frame()
    assert schema_of(run.path) == 1
    assert run.missing == 0
    assert list(frame.columns) == [*COLUMNS, *TEXTS]
    assert frame["arm"].drop_duplicates().tolist() == run.arms, "a row's arm is the run's arm, intervention included"
    assert (frame.groupby("arm").size() == PROBES).all()
    plain = frame["intervention"] == "none"
    assert (frame["arm"] == frame["plain_arm"])[plain].all()
    assert (frame["arm"].str.partition("+")[0] == frame["plain_arm"]).all()
    assert set(frame[~plain]["plain_arm"]) == {"full", "target:0.3", "visionzip_qwen:0.4", "fastv:0.5"}
    assert set(frame["view"]) == VIEWS
    assert set(frame["image_key"]) <= set(run.images["image_key"].to_pylist())


def test_precision_by_anchors_is_measured_from_its_stored_masks(data: Path) -> None:
    run = load_run(data / "run_v1")
    frame = run.frame()
    merged = frame["lineage_mask"].notna()
    assert merged.any()
    alike = frame[~merged]
    assert (alike["anchor_lpp"] == alike["lpp"]).all()
    assert (alike["anchor_geo_f1"] == alike["geo_f1"]).all()
    regions = {probe["id"]: probe["regions"] for probe in run.probes}
    cells = {image["image_key"]: image["cells"] for image in run.images.to_pylist()}
    for _, row in frame[merged].iterrows():
        kept = unpack_mask(row["kept_mask"], row["n_tokens"])
        alone = RegionGeometry(unpack_cells(cells[row["image_key"]]), regions[row["probe_id"]]).measure(kept)
        assert row["anchor_lpp"] == pytest.approx(alone.lpp, abs=1e-12)
        assert row["anchor_geo_f1"] == pytest.approx(alone.geo_f1, abs=1e-12)
        assert row["anchor_ecr"] == pytest.approx(alone.ecr, abs=1e-6), "stored cells are rounded to float32"


def test_it_is_reported(data: Path, tmp_path: Path) -> None:
    page = build_report([data / "run_v1"], tmp_path / "report", draws=50).read_text(encoding="utf-8")
    for arm in ARMS:
        assert arm in page
    written = {file.stem for file in (tmp_path / "report").rglob("*.csv")}
    assert {"main", "deletion", "occlusion", "image_dependence", "positions"} <= written
    main = pd.read_csv(next((tmp_path / "report").rglob("main.csv")))
    assert set(main["arm"]) == {*ARMS, "random:0.4", "grid:0.4", "random:0.5", "grid:0.5"}


def test_it_is_gated(data: Path) -> None:
    rules = ["pos_ecr(full) >= 0.99", "accuracy(target:0.3) - accuracy(full) >= 1"]
    (whole, gain), _ = run_gate(data / "run_v1", rules, least_n=1, draws=50)
    assert whole.value == 1.0
    assert (whole.passed, gain.passed) == (True, False)


def test_a_finished_one_is_left_as_it_is(data: Path, old: Path) -> None:
    rows = {file: file.read_bytes() for file in old.rglob("rows/*/*.parquet")}
    run = again(data, old)
    assert {file: file.read_bytes() for file in old.rglob("rows/*/*.parquet")} == rows
    assert schema_of(old) == SCHEMA_VERSION == 2
    assert run.manifest["served_by"] == {"images": "Qwen3VL", "language": "loop"}
    pd.testing.assert_frame_equal(run.frame(), load_run(data / "run_v1").frame())


@pytest.mark.parametrize("halfway", [False, True], ids=["untouched", "killed_while_files_were_renamed"])
def test_missing_rows_are_computed_again_as_they_were(data: Path, old: Path, halfway: bool) -> None:
    before = load_run(data / "run_v1")
    gone = {("target:0.3", 1), ("target:0.3+occlude_evidence", 0), ("visionzip_qwen:0.4+blank", 1)}
    for arm, shard in gone:
        RunFolder(old).rows_file(arm, shard).unlink()
    if halfway:
        (old / "images" / "1000000.parquet").rename(old / "images" / "00000.evidence_masked.parquet")
    assert load_run(old).missing == len(gone)

    resumed = again(data, old)
    assert resumed.missing == 0
    assert resumed.arms == before.arms
    assert schema_of(old) == SCHEMA_VERSION == 2
    restored, recorded = resumed.frame(), before.frame()
    noisy = ["loss_yes", "loss_no", "margin"]
    unrecorded = {"role", "legibility", "query_found", "conditions"}
    exact = [name for name in COLUMNS if name not in {*TIME_COLUMNS, *noisy, *unrecorded, "versions", "device"}]
    pd.testing.assert_frame_equal(restored[exact], recorded[exact])
    assert (restored[noisy] - recorded[noisy]).abs().max().max() < NUMERIC_NOISE

    keys = resumed.images["image_key"].to_pylist()
    assert len(keys) == len(set(keys)), "no image record twice"
    assert sorted(keys) == sorted(before.images["image_key"].to_pylist())
    assert {path.name for path in (old / "images").iterdir()} == {
        f"{shard:05d}{'' if view == 'orig' else f'.{view}'}.parquet" for shard in range(SHARDS) for view in VIEWS
    }
