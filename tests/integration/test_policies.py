"""Arms with a policy, run for real, and budgets of every tile: what a replay of rows says is what the model does."""

import json
import math
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sightline import Run, audit, load_run, read_probes
from sightline.analysis.policy_replay import fixed_answers
from sightline.analysis.policy_verdict import judge_run, tune
from sightline.answering.scorers import SCORERS
from sightline.answering.scorers.yes_no import YesNo
from sightline.arms import parse_arm
from sightline.auditing.mask_export import exported_masks
from sightline.gate.decisions import run_gate
from sightline.probes import write_probes
from sightline.report.build import build_report
from sightline.store.shard_files import unpack_mask
from tests.command_line import sightline
from tests.integration.conftest import make_config
from tests.refusals import Refused

LEVELS = "0.3/0.5/0.7"
SATURATION = f"policy:evidence_saturation:target_grid:{LEVELS}:mass=0.8"
STABILITY = f"policy:answer_stability:target_grid:{LEVELS}"
FIXED = tuple(f"target_grid:{level}" for level in LEVELS.split("/"))


def fallback(run: Run) -> str:
    """A fallback at the median confidence of the lowest level: about half of the probes go up."""
    frame = run.frame()
    sure = float(frame.loc[frame["arm"] == FIXED[0], "margin"].abs().median())
    return f"policy:confidence_fallback:target_grid:{LEVELS}:threshold={sure!r}"


@pytest.fixture(scope="module")
def finished(data: Path, mini_probes: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Fixed arms and policies, the last ones by amending: what their thresholds are is known from the first."""
    out = tmp_path_factory.mktemp("policies")
    settings = partial(make_config, data, mini_probes, out / "run", "qwen3vl", limit=None, matched_controls=True)
    run = audit(settings(arms=["full", SATURATION, STABILITY]))
    for name, levels, file in (("learned_risk", LEVELS, "learned.json"), ("conformal", "0.3/0.7", "bounds.json")):
        chosen = ["--policy", name, "--selector", "target_grid", "--levels", levels]
        fit(run, *chosen, "--out", str(out / file))
    policies = [
        fallback(run),
        f"policy:learned_risk:target_grid:{LEVELS}:file={out / 'learned.json'}",
        f"policy:conformal:target_grid:0.3/0.7:file={out / 'bounds.json'},eps=0.5",
    ]
    return audit(settings(arms=policies))


def fit(run: Run, *words: str, code: int = 1) -> str:
    return sightline("policy", "fit", run.path, *words, "--draws", 200, code=code).output


def rows(run: Run, arm: str) -> pd.DataFrame:
    frame = run.frame()
    return frame[frame["arm"] == arm].set_index("probe_id").sort_index()


def test_every_policy_run_for_real_chooses_as_a_replay_of_fixed_rows_says(finished: Run) -> None:
    names = set()
    for text in (arm for arm in finished.arms if arm.startswith("policy:")):
        arm = parse_arm(text)
        assert arm.policy is not None
        names.add(arm.policy.name)
        replayed = fixed_answers(finished, "target_grid", arm.levels, arm.policy).replay(arm.policy)
        real = rows(finished, text).loc[replayed.asked.ids.tolist()]
        assert tuple(real["levels"]) == replayed.levels, text
        assert real["correct"].tolist() == (replayed.scores == 1.0).tolist()
        assert real["keep"].tolist() == replayed.keep.tolist()
        assert real["keep_spent"].tolist() == pytest.approx(replayed.spent.tolist())
        fixed_rows = {level: rows(finished, f"target_grid:{level}").to_dict("index") for level in LEVELS.split("/")}
        for probe, row in real.to_dict("index").items():
            fixed = fixed_rows[row["levels"].split("/")[-1]][probe]
            assert row["predicted"] == fixed["predicted"]
            assert row["margin"] == pytest.approx(fixed["margin"], abs=1e-4)
            assert row["kept_mask"] == fixed["kept_mask"]
            assert row["ecr"] == fixed["ecr"]
    assert names == {"evidence_saturation", "answer_stability", "confidence_fallback", "learned_risk", "conformal"}

    for text in (SATURATION, STABILITY, fallback(finished)):
        assert rows(finished, text)["levels"].nunique() > 1, text


def test_rows_say_what_was_spent_and_why_beside_controls_at_every_level_and_are_reported(
    finished: Run, tmp_path: Path
) -> None:
    cascade = rows(finished, STABILITY)
    assert set(cascade["policy"]) == {"answer_stability"}
    assert set(cascade["budget"]) == {LEVELS}, "the levels to choose from; those that were run stand in levels"
    assert (cascade["keep_spent"] > cascade["keep"]).all(), "at least two passes each"
    for row in cascade.to_dict("records"):
        run = row["levels"].split("/")
        assert row["keep_requested"] == float(run[-1])
        assert len(json.loads(row["decided_on"])["confidence"]) == len(run)
    seen = [json.loads(text) for text in rows(finished, SATURATION)["decided_on"]]
    assert all(len(each["mass"]) == len(each["cells"]) == 3 for each in seen)
    for arm in ("full", *FIXED):
        plain = rows(finished, arm)
        assert (plain["keep_spent"] == plain["keep"]).all()
        assert set(plain["policy"]) == {"none"}
        assert (plain["levels"] == plain["budget"]).all()
        assert plain["decided_on"].isna().all()

    assert finished.manifest["matched_controls"] == list(FIXED)

    page = build_report([finished.path], tmp_path, draws=100, cases=2).read_text(encoding="utf-8")
    assert "this section cannot be made" not in page
    assert SATURATION in page
    assert load_run(finished.path).arms == finished.arms


def test_rows_decided_by_another_file_are_not_mixed(
    config: Any, tmp_path: Path, mini_probes: Path, refused: Refused
) -> None:
    risks = tmp_path / "risk.csv"
    probes = [probe.id for probe in read_probes(mini_probes).probes]
    risks.write_text("probe_id,risk\n" + "".join(f"{probe},{i}\n" for i, probe in enumerate(probes)))
    arm = f"policy:risk_bucket:target:0.15/0.3/0.7:file={risks}"
    run = audit(config("qwen3vl", arms=[arm], limit=2, shard_images=1))
    assert set(rows(run, arm)["levels"]) == {"0.15"}, "the first four of all probes are the least risky"
    (next((run.path / "rows").iterdir()) / "00001.parquet").unlink()
    risks.write_text("probe_id,risk\n" + "".join(f"{probe},{-i}\n" for i, probe in enumerate(probes)))
    refused("risk_bucket", audit, config("qwen3vl", arms=[arm], limit=2, shard_images=1))


def test_a_scorer_without_confidence_is_refused_before_a_model_is_loaded(
    config: Any, monkeypatch: pytest.MonkeyPatch, no_weights: None, refused: Refused
) -> None:
    monkeypatch.setitem(SCORERS._entries, "bare", type("Bare", (YesNo,), {"columns": ()}))
    arms = ["policy:confidence_fallback:target:0.3/0.7:threshold=1"]
    refused("margin or answer_loss", audit, config("qwen3vl", arms=arms, scorer="bare"))


@pytest.fixture
def open_probes(mini_probes: Path, tmp_path: Path) -> Path:
    """The positives of the mini set, asked openly, from two tasks in turn."""
    openly: dict[str, Any] = {
        "question": "What does the sign say?",
        "label": "open",
        "target_text": "",
        "source_text": "",
    }
    positives = (probe for probe in read_probes(mini_probes).probes if probe.label == "yes")
    asked = [
        replace(probe, id=f"open{i}", answers=(probe.source_text,) * 10, task=("textvqa", "docvqa")[i % 2], **openly)
        for i, probe in enumerate(positives)
    ]
    write_probes(tmp_path / "open.jsonl", asked)
    return tmp_path / "open.jsonl"


def test_open_answers_are_cascaded_by_their_probability_and_judged_by_task(config: Any, open_probes: Path) -> None:
    stable = "policy:answer_stability:target:0.3/0.5/0.7"
    settings: dict[str, Any] = {"probes": open_probes, "limit": 8, "matched_controls": True}
    first = rows(audit(config("qwen3vl", arms=[stable], **settings)), "target:0.3")
    threshold = float(np.exp(-first["answer_loss"]).median())
    sure = f"policy:confidence_fallback:target:0.3/0.7:threshold={threshold!r}"
    run = audit(config("qwen3vl", arms=[sure], **settings))
    for text in (sure, stable):
        arm = parse_arm(text)
        assert arm.policy is not None
        replayed = fixed_answers(run, "target", arm.levels, arm.policy).replay(arm.policy)
        real = rows(run, text).loc[replayed.asked.ids.tolist()]
        assert tuple(real["levels"]) == replayed.levels
        assert set(replayed.asked.tasks) == {"textvqa", "docvqa"}
    for row in rows(run, sure).to_dict("records"):
        said = json.loads(row["decided_on"])["confidence"]
        assert said[-1] == pytest.approx(math.exp(-row["answer_loss"]))
        assert (said[0] < threshold) == (row["levels"] == "0.3/0.7")
    assert set(rows(run, sure)["levels"]) == {"0.3", "0.3/0.7"}
    result = sightline("policy", "judge", run.path, "--all", "--draws", 200, code=1)
    assert "gate        refused: 8 probes are fewer than the least n of 50 (--least-n)" in result.output
    (verdict, *_) = judge_run(run, everything=True, draws=200)
    assert verdict.parts[0].words.startswith("both task scores within 0.01 of fixed 70 %: ")


def test_fit_and_judge_refuse_a_model_at_chance_and_find_the_same_numbers(
    finished: Run, tmp_path: Path, refused: Refused
) -> None:
    words = ["--policy", "answer_stability", "--selector", "target_grid", "--levels", LEVELS, "--least-n", "10"]
    said = fit(finished, *words, "--out", str(tmp_path / "p.json"))
    assert re.search(r"^gate +refused: the model answers at chance: nothing about pruning", said, re.MULTILINE)
    assert f"arm         {STABILITY}" in said
    written = json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))
    assert (written["policy"], written["arm"], written["go"]) == ("answer_stability", STABILITY, False)
    judge = ["policy", "judge", finished.path, "--arm", STABILITY, "--draws", 200, "--least-n", 10]
    judged = sightline(*judge, code=1)
    assert [line for line in judged.output.splitlines() if line.startswith("gate")] == [
        line for line in said.splitlines() if line.startswith("gate")
    ]
    levels = parse_arm(STABILITY).levels
    replayed = tune(finished, "answer_stability", "target_grid", levels, draws=200).verdict
    (real,) = judge_run(finished, [STABILITY], draws=200)
    assert replayed.parts == real.parts, "a replay and the arm that was really run are judged alike"
    assert re.search(r"overhead-aware cost [\d.]+ \[.*\] < 0\.70: not shown$", real.parts[2].words)
    loose = ["--tolerance", "1", "--most-keep", "1", "--cost-below", "3"]
    sightline(*judge, *loose, code=1)  # no bound is loose enough for guesses
    refused("target_grid:0.3", sightline, *judge[:3], "--arm", "target_grid:0.3")


ARMS = ["full", "target:0.3/tile", "target:0.3", "random:0.3/tile", "random:6t/tile", "tome:0.5/tile:metric=tokens"]


@pytest.fixture(scope="module")
def run(data: Path, mini_probes: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("tiles") / "run"
    asked: dict[str, Any] = {"image_options": {"min_tiles": 2}, "interventions": ["deletion"], "matched_controls": True}
    return audit(make_config(data, mini_probes, out, "internvl", arms=ARMS, limit=2, **asked))


def kept_by_tile(run: Run, row: Any) -> tuple[list[int], list[int]]:
    """Tokens of every tile of a row's image, and how many of them were kept."""
    records = {record["image_key"]: json.loads(record["layout"]) for record in run.images.to_pylist()}
    sizes = [rows * columns for rows, columns in records[row.image_key]]
    mask = unpack_mask(row.kept_mask, row.n_tokens)
    return sizes, [int(part.sum()) for part in np.split(mask, np.cumsum(sizes)[:-1])]


def test_every_tile_keeps_its_share_and_controls_and_interventions_follow(run: Run) -> None:
    assert {"grid:0.3/tile", "grid:0.3", "random:0.3"} <= set(run.arms), "controls have the budgets of their arms"
    row: Any
    plain: Any
    for text in ("target:0.3/tile", "random:0.3/tile", "grid:0.3/tile", "random:6t/tile", ARMS[-1]):
        budget, tiled = parse_arm(text).budget, rows(run, text)
        assert (tiled["budget"] == str(budget)).all()
        assert len(tiled) == 4
        for row in tiled.itertuples():
            sizes, kept = kept_by_tile(run, row)
            assert len(sizes) > 1, "the image is cut into tiles"
            assert kept == [budget.resolve(size) for size in sizes]
            assert row.k_tokens == sum(kept)
            assert row.keep == row.k_tokens / row.n_tokens
    assert rows(run, ARMS[-1])["lineage_mask"].notna().all()
    usual = rows(run, "target:0.3")
    assert any(len(set(kept_by_tile(run, row)[1])) > 1 for row in usual.itertuples()), "tiles share the usual budget"

    removed = rows(run, "target:0.3/tile+remove_evidence")
    whole = rows(run, "target:0.3/tile").loc[removed.index]
    assert (removed["plain_arm"] == "target:0.3/tile").all()
    assert (removed["budget"] == "0.3/tile").all()
    assert (removed["k_tokens"] <= whole["k_tokens"]).all()
    for row, plain in zip(removed.itertuples(), whole.itertuples(), strict=True):
        before, after = (unpack_mask(each.kept_mask, each.n_tokens) for each in (plain, row))
        assert not (after & ~before).any()


def test_report_gate_and_masks_read_such_a_run(run: Run, tmp_path: Path) -> None:
    folders = [path for path in run.path.glob("rows/*") if path.is_dir()]
    assert len(folders) == len(run.arms), "a slash in an arm makes no folder"
    build_report([run.path], tmp_path / "report")
    tables = {name: pd.read_csv(tmp_path / "report" / "tables" / f"{name}.csv") for name in ("main", "contract")}
    assert "target:0.3/tile" in tables["main"].to_csv()
    assert "0.3/tile" in set(tables["contract"]["budget"].astype(str))
    outcomes, _ = run_gate(run.path, ["keep(target:0.3/tile) >= 0.3", "keep(target:0.3/tile) <= 0.4"], least_n=1)
    assert [outcome.passed for outcome in outcomes] == [True, True]
    lines = list(exported_masks(run, "target:0.3/tile"))
    assert {line["sample_id"]: len(line["kept_indices"]) for line in lines} == (
        rows(run, "target:0.3/tile")["k_tokens"].to_dict()
    )
