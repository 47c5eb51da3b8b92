"""Thresholds from a development run, and reports over a list of probes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sightline.errors import SightlineError
from sightline.probes.typed_rows import SignedDecision, write_decisions
from sightline.report.build import build_report
from sightline.report.sections.calibration import thresholds_table
from sightline.rows import load_run
from sightline.rows.source import read_source
from sightline.rows.usable import read_probe_list
from sightline.statistics.thresholds import accuracy_optimal, evaluate
from tests.unit.report.fake_run import make_run

ARMS = ("full", "target:0.3", "random:0.3")


def elsewhere(row: dict[str, Any]) -> None:
    """Other images, and margins that lie higher than they should."""
    row["image_id"] = f"dev-{row['image_id']}"
    row["margin"] += 1.5


@pytest.fixture(scope="module")
def development(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "development"
    return make_run(path, images=30, arms=ARMS[:2], seed=8, edit_row=elsewhere)


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "audited", images=12, arms=ARMS)


def test_thresholds_are_chosen_on_the_development_run_and_judged_on_all_images(
    audited: Path, development: Path
) -> None:
    table = thresholds_table(read_source([audited], developments=[development]))
    frame = table.frame.set_index(["arm", "rule"])
    rows, chosen_on = load_run(audited).frame(), load_run(development).frame()
    full = chosen_on[chosen_on["arm"] == "full"]
    shared = accuracy_optimal(full["label"] == "yes", full["margin"]).threshold
    assert shared != 0
    for arm in ARMS:
        here = rows[rows["arm"] == arm]
        line: Any = frame.loc[(arm, "Full's t for all")]
        assert line["threshold"] == shared
        assert line["accuracy"] == evaluate(here["label"] == "yes", here["margin"], shared).accuracy
        assert line["test"] == len(here) == 24
    own = chosen_on[chosen_on["arm"] == "target:0.3"]
    assert frame.loc[("target:0.3", "own t"), "threshold"] == (
        accuracy_optimal(own["label"] == "yes", own["margin"]).threshold
    )
    assert ("random:0.3", "own t") not in frame.index  # the development run does not have it
    assert "all images of the development run development" in table.caption


def test_without_a_development_run_the_images_are_split(audited: Path) -> None:
    table = thresholds_table(read_source([audited]))
    assert (table.frame["dev"] + table.frame["test"] == 24).all()
    assert "SHA-1" in table.caption


def test_a_development_run_must_have_other_images_and_the_same_weights(
    audited: Path, development: Path, tmp_path: Path
) -> None:
    with pytest.raises(SightlineError, match=r"share 12 images .*chosen on other images than they are judged on"):
        read_source([audited], developments=[audited])
    other = make_run(tmp_path / "other", images=4, arms=ARMS, manifest={"weight_digest": "00"}, edit_row=elsewhere)
    with pytest.raises(SightlineError, match="has other weights than every run that is reported"):
        read_source([audited], developments=[development, other])


def test_other_settings_are_said(audited: Path, tmp_path: Path) -> None:
    half = make_run(tmp_path / "half", images=6, arms=ARMS, manifest={"dtype": "bfloat16"}, seed=8, edit_row=elsewhere)
    assert any("half, which has the same weights but other settings" in note for note in
               read_source([audited], developments=[half]).notes)  # fmt: skip


def test_a_report_over_a_list_of_probes(audited: Path, tmp_path: Path) -> None:
    everything = sorted(load_run(audited).frame()["probe_id"].unique())
    wanted = everything[:5]
    listed = tmp_path / "valid.txt"
    listed.write_text("\n".join([*wanted, "", "somebody else's"]))
    (run,) = read_source([audited], only=read_probe_list(listed)).runs
    assert sorted(run.frame["probe_id"].unique()) == wanted
    assert len(run.frame) == 5 * len(ARMS)
    assert run.notes[:2] == [
        "limited to 5 of 24 probes, those that valid.txt lists",
        "listed in valid.txt but not in the run: 1",
    ]


def test_a_probe_file_is_a_list_too(audited: Path, tmp_path: Path) -> None:
    wanted = sorted(load_run(audited).frame()["probe_id"].unique())[:3]
    listed = tmp_path / "probes.jsonl"
    listed.write_text("\n".join([json.dumps({"sightline_probes": 1}), *(json.dumps({"id": name}) for name in wanted)]))
    assert read_probe_list(listed).ids == frozenset(wanted)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "lists no probe; write one probe id per line"),
        (b'{"sightline_probes": 1}\n', "lists no probe"),
        (b'{"id": 3', "neither an id nor JSON"),
        (b'{"name": "x"}', "has a line without an id"),
        (b"\xff\xfe\xff", "cannot read the probe list .*: it is not text"),
    ],
)
def test_a_list_that_is_none_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "list.txt"
    path.write_bytes(content)
    with pytest.raises(SightlineError, match=message):
        read_probe_list(path)
    with pytest.raises(SightlineError, match=r"cannot read the probe list .*: No such file"):
        read_probe_list(tmp_path / "none")


def test_a_list_of_other_probes_is_refused(audited: Path, tmp_path: Path) -> None:
    listed = tmp_path / "list.txt"
    listed.write_text("nothing of this run\n")
    with pytest.raises(SightlineError, match=r"lists no probe of .*audited; its ids look like"):
        read_source([audited], only=read_probe_list(listed))


def test_a_limited_report_says_what_the_limit_changes(audited: Path, tmp_path: Path) -> None:
    run = load_run(audited)
    images = sorted({str(probe["image_id"]) for probe in run.probes})[:-2]
    listed = tmp_path / "decisions.jsonl"
    decisions = [
        SignedDecision(
            image, image, tuple(str(p["id"]) for p in run.probes if p["image_id"] == image), "valid", True, "agreement"
        )
        for image in images
    ]
    write_decisions(listed, {"signed_by": "dora"}, decisions)
    page = build_report([audited], tmp_path / "limited", only=listed, cases=0, draws=100)
    table = pd.read_csv(page.parent / "tables" / "limited.csv")
    assert {"title", "arm", "all", "kept", "change"} <= set(table.columns)
    assert (table["change"] - (table["kept"] - table["all"])).abs().max() < 1e-12
    assert "What the limit changes" in page.read_text(encoding="utf-8")
    assert not (build_report([audited], tmp_path / "whole", cases=0, draws=100).parent / "tables/limited.csv").exists()
