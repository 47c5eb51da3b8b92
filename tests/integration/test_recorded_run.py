"""A run folder of an earlier day (tests/data/recorded_run): read, reported, gated, and gone on with."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from sightline import AuditConfig, Run, audit, load_run
from sightline.answering.scorers.yes_no import YesNo
from sightline.core.row import TIME_COLUMNS, row_schema
from sightline.gate.decisions import run_gate
from sightline.report.build import build_report
from sightline.rows.picture import TEXTS
from sightline.store.folder import RunFolder
from sightline.store.verify import verify_folder

ARMS = ["full", "target:0.3", "random:0.3", "visionzip_qwen:0.4", "grid:0.3", "fastv:0.5"]
INTERVENTIONS = ["deletion", "occlusion", "blank", "positions"]
PROBES = 6
COLUMNS = row_schema(YesNo.columns).names
VIEWS = {"orig", "evidence_masked", "random_masked", "blank"}
NUMERIC_NOISE = 1e-4
"""How far losses and what is computed from them may move with the versions of the libraries."""


@pytest.fixture
def recorded(data: Path) -> Path:
    return data / "recorded_run"


def again(data: Path, folder: Path) -> Run:
    """The command that it was made with, on whatever machine this is."""
    return audit(
        AuditConfig(
            model=str(data / "tiny" / "qwen3vl"),
            probes=data / "recorded_run" / "probes.jsonl",
            images=data / "mini_textocr",
            out=folder,
            arms=ARMS,
            interventions=INTERVENTIONS,
            shard_images=2,
            image_options={"max_pixels": 100352},
            dtype="float32",
            device="cpu",
            accept_change=True,
        )
    )


def test_it_is_whole_opens_with_the_columns_of_today_and_is_reported_and_gated(recorded: Path, tmp_path: Path) -> None:
    assert verify_folder(recorded).problems == []
    run = load_run(recorded)
    frame = run.frame()
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

    page = build_report([recorded], tmp_path / "report", draws=50).read_text(encoding="utf-8")
    for arm in ARMS:
        assert arm in page
    written = {file.stem for file in (tmp_path / "report").rglob("*.csv")}
    assert {"main", "deletion", "occlusion", "image_dependence", "positions"} <= written
    main = pd.read_csv(next((tmp_path / "report").rglob("main.csv")))
    assert set(main["arm"]) == {*ARMS, "random:0.4", "grid:0.4", "random:0.5", "grid:0.5"}

    rules = ["pos_ecr(full) >= 0.99", "accuracy(target:0.3) - accuracy(full) >= 1"]
    (whole, gain), _ = run_gate(recorded, rules, least_n=1, draws=50)
    assert whole.value == 1.0
    assert (whole.passed, gain.passed) == (True, False)


def test_a_finished_one_is_left_as_it_is_and_missing_rows_are_computed_as_they_were(
    data: Path, recorded: Path, tmp_path: Path
) -> None:
    copied = Path(shutil.copytree(recorded, tmp_path / "run"))
    rows = {file: file.read_bytes() for file in copied.rglob("rows/*/*.parquet")}
    run = again(data, copied)
    assert {file: file.read_bytes() for file in copied.rglob("rows/*/*.parquet")} == rows
    assert run.manifest["served_by"] == {"images": "Qwen3VL", "language": "loop"}
    before = load_run(recorded)
    pd.testing.assert_frame_equal(run.frame(), before.frame())

    gone = {("target:0.3", 1), ("target:0.3+occlude_evidence", 0), ("visionzip_qwen:0.4+blank", 1)}
    for arm, shard in gone:
        RunFolder(copied).rows_file(arm, shard).unlink()
    assert load_run(copied).missing == len(gone)

    resumed = again(data, copied)
    assert resumed.missing == 0
    assert resumed.arms == before.arms
    restored, found = resumed.frame(), before.frame()
    noisy = ["loss_yes", "loss_no", "margin"]
    exact = [name for name in COLUMNS if name not in {*TIME_COLUMNS, *noisy, "conditions", "versions", "device"}]
    pd.testing.assert_frame_equal(restored[exact], found[exact])
    assert (restored[noisy] - found[noisy]).abs().max().max() < NUMERIC_NOISE
