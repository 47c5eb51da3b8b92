"""Everybody takes part or is refused by name; what is measured once is not measured again."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sightline.core.selection import Selection, Selector, TokenView
from sightline.selectors import SELECTORS
from sightline_leaderboard.contest import (
    Contest,
    MeasuredModel,
    Refusal,
    chosen_methods,
    lineup,
    measure,
    read_budgets,
    said_once,
)
from tests.heads import HEADED
from tests.refusals import Refused


@pytest.mark.parametrize("model", ["qwen3vl", "llava", "internvl"])
def test_every_registered_method_takes_part_or_is_refused_with_a_reason(data: Path, model: str) -> None:
    methods = chosen_methods([])
    assert set(methods) == {n for n, kind in SELECTORS.items() if kind.role in ("method", "control")} - set(HEADED)
    found = lineup(data / "tiny" / model, methods, ["0.1", "0.3"], clip=False)
    budgets: dict[str, list[str]] = {}
    for entry in found.entries:
        budgets.setdefault(entry.method, []).append(entry.budget)
    del budgets["full"]
    assert sorted([*budgets, *{refusal.method for refusal in found.refusals}]) == sorted(methods)
    assert all(refusal.reason for refusal in found.refusals)
    assert all(asked == ["0.1", "0.3"] for asked in budgets.values())


def test_who_takes_part_beside_whom(data: Path) -> None:
    def found(method: str, *, clip: bool = False) -> Any:
        return lineup(data / "tiny/llava", [method], ["0.3"], clip=clip)

    assert "--clip" in found("cdpruner").refusals[0].reason, "it compares with a checkpoint of CLIP"
    assert not found("cdpruner", clip=True).refusals
    assert "is an oracle, which is not ranked" in found("evidence_only").refusals[0].reason
    entries = found("scope:alpha=0").entries
    assert [entry.arm for entry in entries] == ["full", "random:0.3", "grid:0.3", "scope:0.3:alpha=0.0"]
    assert entries[-1].method == "scope:alpha=0"


def test_methods_that_cannot_be_ranked_are_refused_by_name(refused: Refused) -> None:
    for about, methods in (
        ("did you mean", ["targt"]), ("'0.3' is not an argument of target", ["target:0.3"]),
        ("which is not ranked", ["full"]), ("is target again", ["target", "target:weight=0.85"]),
    ):  # fmt: skip
        refused(about, chosen_methods, methods)


def test_budgets_come_once_each_in_order(refused: Refused) -> None:
    assert read_budgets(["0.5,0.1", "0.10"]) == ["0.1", "0.5"]
    assert read_budgets(["64t, 8t"]) == ["8t", "64t"]
    assert read_budgets(["0.3/tile"]) == ["0.3/tile"]
    for wrong, about in (("1.0", "Full does already"), (",", "names none"), ("0", "must be in")):
        refused(about, read_budgets, [wrong])


def test_what_holds_for_every_budget_is_said_once() -> None:
    for reasons, said in (
        ({"0.1": "why", "0.3": "why"}, [("", "why")]), ({"0.3": "why"}, [("0.3", "why")]), ({}, []),
        ({"0.1": "why", "0.3": "else"}, [("0.1", "why"), ("0.3", "else")]),
    ):  # fmt: skip
        assert said_once("m", reasons, 2) == [Refusal("m", *each) for each in said]


def test_models_differ_in_what_they_can_serve_and_computing_again_loads_none(
    measured: list[MeasuredModel], contest: Contest, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = {one.name: {refusal.method for refusal in one.lineup.refusals} for one in measured}
    assert refused == {"qwen": {"scope"}, "llava": {"resize"}}
    for one in measured:
        assert set(one.run.arms) == {entry.arm for entry in one.lineup.entries}
        assert not one.run.missing
    before = {file: file.stat().st_mtime_ns for file in contest.out.rglob("*") if file.is_file()}

    def load(*_: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("sightline.auditing.audit.Worker", load)
    again = measure(contest)
    assert [one.lineup for one in again] == [one.lineup for one in measured]
    assert {file: file.stat().st_mtime_ns for file in contest.out.rglob("*") if file.is_file()} == before


def test_another_method_amends_the_run_and_other_probes_or_weights_are_refused_before_a_model_is_loaded(
    fresh: Contest, tmp_path: Path, refused: Refused
) -> None:
    copy = Path(shutil.copytree(fresh.models["llava"], tmp_path / "model"))
    own = replace(fresh, models={"llava": str(copy)})
    measure(own)
    rows = {file: file.stat().st_mtime_ns for file in (own.out / "runs").rglob("rows/*/*.parquet")}
    (amended,) = measure(replace(own, methods=("target", "bottom")))
    assert "bottom:0.3" in amended.run.arms
    assert {file: file.stat().st_mtime_ns for file in rows} == rows
    refused("limit 3, this command has 2", measure, replace(own, pages=2))
    weights = next(copy.glob("*.safetensors"))
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    refused("with other weights", measure, own)


@dataclass(frozen=True)
class Stumbles(Selector):
    """Fails at the larger of two budgets."""

    name: ClassVar[str] = "stumbles"

    def select(self, view: TokenView, k: int) -> Selection:
        import torch

        if k > view.tokens.shape[0] // 3:
            raise RuntimeError("lost its footing")
        return Selection(torch.arange(k))


@pytest.fixture
def _stumbles() -> Iterator[None]:
    SELECTORS.add("stumbles", Stumbles)
    yield
    del SELECTORS._entries["stumbles"]


@pytest.mark.usefixtures("_stumbles")
def test_a_method_that_fails_while_it_runs_is_listed_and_costs_nobody_else(fresh: Contest) -> None:
    (found,) = measure(replace(fresh, methods=("stumbles", "target"), budgets=("0.3", "0.5")))
    (refusal,) = found.lineup.refusals
    assert (refusal.method, refusal.budget) == ("stumbles", "0.5")
    assert "lost its footing" in refusal.reason
    arms = {entry.arm for entry in found.lineup.entries}
    assert {"stumbles:0.3", "target:0.3", "target:0.5"} <= arms
    assert "stumbles:0.5" not in arms


def test_what_only_the_loaded_model_can_tell_is_listed_too(data: Path, contest: Contest, tmp_path: Path) -> None:
    """An image of InternVL cannot have fewer tokens than one tile; the description of the model does not say so."""
    models, options = {"internvl": str(data / "tiny/internvl")}, {"internvl": {"max_tiles": 2}}
    asked = replace(contest, out=tmp_path, models=models, image_options=options)
    (found,) = measure(replace(asked, methods=("resize",), budgets=("2t",)))
    (refusal,) = found.lineup.refusals
    assert refusal.method == "resize"
    assert "arm 'resize:2t'" in refusal.reason
    assert [entry.arm for entry in found.lineup.entries] == ["full", "random:2t", "grid:2t"]


@pytest.mark.usefixtures("_stumbles")
def test_without_the_control_that_gains_are_counted_from_there_is_no_leaderboard(
    fresh: Contest, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.setattr(SELECTORS.get("random"), "select", Stumbles.select)
    refused("selector random failed", measure, replace(fresh, budgets=("0.5",)))
