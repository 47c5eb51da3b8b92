"""What may be ranked together stands together, and an oracle is called one wherever something is claimed of it."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest

from sightline.core.selection import NO_BOXES
from sightline.gate.decisions import gate_runs, markdown, run_gate
from sightline.report.build import build_report
from sightline.report.columns import ASSISTED, BOX_FREE, ORACLES, UNKNOWN, panel_of
from sightline.rows.usable import oracle_words
from tests.unit.report.conftest import DRAWS
from tests.unit.report.fake_run import make_run

ARMS = ("full", "protected:0.3", "target:0.3", "evidence_only:0.3", "random:0.3")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("mixed") / "run", arms=ARMS)


@pytest.fixture(scope="module")
def page(mixed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_report([mixed], tmp_path_factory.mktemp("mixed_report"), draws=DRAWS, cases=2)


def table(page: Path, name: str) -> str:
    text = page.read_text(encoding="utf-8")
    found = re.search(rf'<table id="table-{name}">.*?</table>', text, re.S)
    assert found is not None
    return found[0]


def test_every_regime_has_its_panel() -> None:
    assert {panel_of(regime) for regime in ("full", "box-free method", "box-free control")} == {BOX_FREE}
    assert (panel_of("detector-assisted"), panel_of("oracle")) == (ASSISTED, ORACLES)
    assert panel_of("replay") == panel_of(None) == panel_of(float("nan")) == UNKNOWN


@pytest.mark.parametrize("name", ["main", "paired_differences", "correct_positive_provenance"])
def test_tables_put_oracles_under_a_heading_of_their_own(page: Path, name: str) -> None:
    found = table(page, name)
    order = [
        found.index(text) for text in (BOX_FREE, ">random:0.3<", ORACLES, ">protected:0.3<", ">evidence_only:0.3<")
    ]
    assert order == sorted(order)
    assert ASSISTED not in found, "only panels that occur"
    rows = list(csv.DictReader((page.parent / "tables" / f"{name}.csv").open()))
    assert {row["arm"] for row in rows if row["regime"] == "oracle"} == {"protected:0.3", "evidence_only:0.3"}


def test_the_contract_shows_the_regime_and_no_box_source_where_no_box_is_read(page: Path) -> None:
    rows = {row["arm"]: row for row in csv.DictReader((page.parent / "tables" / "contract.csv").open())}
    assert {arm: row["box_source"] for arm, row in rows.items()} == {
        "full": NO_BOXES,
        "protected:0.3": "annotation",
        "target:0.3": NO_BOXES,
        "evidence_only:0.3": "annotation",
        "random:0.3": NO_BOXES,
    }
    assert rows["target:0.3"]["regime"] == "box-free method"


def test_verdicts_of_oracles_say_so_and_stand_apart(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    said = re.findall(r"<li><b>([^<]+)</b> (.*?)</li>", text)
    oracles = [arm for arm, words in said if words.startswith("(oracle: reads the annotated boxes) ")]
    assert oracles == ["protected:0.3", "evidence_only:0.3"]
    assert text.index(f"<h3>{BOX_FREE}</h3>") < text.index(f"<h3>{ORACLES}</h3>")


def test_the_frontier_marks_oracles_by_another_shape(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert ">oracle: reads annotated boxes</text>" in text
    assert "oracles are diagnostics, not a deployable ranking" in text
    assert "protected:0.3 (oracle): Accuracy" in text
    assert "target:0.3: Accuracy" in text


def test_budget_curves_never_join_an_oracle_to_others(tmp_path: Path) -> None:
    arms = ("full", "target:0.3", "target:0.5", "protected:0.3", "protected:0.5")
    text = build_report([make_run(tmp_path / "run", arms=arms)], tmp_path / "out", draws=DRAWS, cases=0).read_text()
    assert ">protected (oracle)</text>" in text
    assert ">target</text>" in text


def test_words_follow_from_what_the_oracle_reads() -> None:
    assert oracle_words("annotation") == "(oracle: reads the annotated boxes)"
    assert oracle_words("heavy_jitter") == "(oracle: reads boxes made from the annotation)"
    assert oracle_words(NO_BOXES) == "(oracle: knows what no deployed method could)"


def test_the_gate_notes_that_a_rule_is_about_an_oracle(mixed: Path) -> None:
    rules = ["pos_ecr(protected:0.3) >= 0.1", "accuracy(protected:0.3) - accuracy(full) >= -1", "pos_ecr(full) >= 0.9"]
    _, notes = run_gate(mixed, rules, least_n=1, draws=DRAWS)
    about = [note for note in notes if "oracle" in note]
    assert about == [
        "protected:0.3 (oracle: reads the annotated boxes): a diagnostic, not a method that could be deployed"
    ], "once, however many rules name it"
    assert not any("oracle" in note for note in run_gate(mixed, rules[2:], least_n=1, draws=DRAWS)[1])
    assert f"- {about[0]}" in markdown(gate_runs([mixed], rules, least_n=1, draws=DRAWS))


def test_replays_and_unknown_methods_are_neither_box_free_nor_oracles(tmp_path: Path) -> None:
    def unknown(row: dict[str, Any]) -> None:
        if row["selector"] == "target":
            row["regime"] = "replay"
        if row["selector"] == "grid":
            row["regime"] = None

    run = make_run(tmp_path / "run", arms=("full", "target:0.3", "grid:0.3"), edit_row=unknown)
    found = table(build_report([run], tmp_path / "out", draws=DRAWS, cases=2), "main")
    order = [found.index(text) for text in (BOX_FREE, ">full<", UNKNOWN, ">target:0.3<", ">grid:0.3<")]
    assert order == sorted(order)


def test_several_runs_have_panels_of_their_own_in_the_order_of_the_title(mixed: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", arms=("full", "target:0.3"), shift=0.2, manifest={"model": "a-model"})
    page = build_report([mixed, other], tmp_path / "out", draws=DRAWS, cases=2)
    found = table(page, "main")
    assert re.findall(r"<span>(.*?)</span></th>", found) == [
        f"reader-mini · {BOX_FREE}",
        f"reader-mini · {ORACLES}",
        f"a-model · {BOX_FREE}",
    ]
    assert "<h1>Visual-token pruning audit of reader-mini, a-model</h1>" in page.read_text(encoding="utf-8")
