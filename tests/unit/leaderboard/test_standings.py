"""Ranks, gains and ties of arms whose answers are known."""

import pandas as pd
import pytest

from sightline.statistics.metrics import METRICS
from sightline_leaderboard.contest import Entry
from sightline_leaderboard.standings import RISKS, Standings, metrics_shown, overview, ranking_metric, standings
from tests.refusals import Refused

IMAGES = 40


def rows(arm: str, right: float, ecr: float, regime: str = "box-free method", role: str = "method") -> pd.DataFrame:
    """An arm that answers the first share of its probes right, all of them positives with one region."""
    correct = [place < right * IMAGES for place in range(IMAGES)]
    names = [f"{place:02d}" for place in range(IMAGES)]
    return pd.DataFrame(
        {
            "arm": arm, "probe_id": names, "image_id": names, "label": "yes", "correct": correct, "has_regions": True,
            "predicted": ["yes" if one else "no" for one in correct], "ecr": ecr, "keep": 0.3, "keep_layer_mean": 0.3,
            "margin": [1.0 if one else -1.0 for one in correct], "role": role, "regime": regime,
            "signal_ms": [1.0] * (IMAGES - 1) + [500.0], "select_ms": None,
        }
    )  # fmt: skip


ARMS = {
    "full": rows("full", 1.0, 1.0, "full", "reference"),
    "random": rows("random:0.3", 0.5, 0.3, "box-free control", "control"),
    "grid": rows("grid:0.3", 0.5, 0.2, "box-free control", "control"),
    "good": rows("good:0.3", 0.9, 0.8),
    "rival": rows("rival:0.3", 0.875, 0.9),
    "bad": rows("bad:0.3", 0.1, 0.0),
    "told": rows("told:0.3", 1.0, 1.0, "oracle"),
}


def made(by: str = "accuracy", leave_out: tuple[str, ...] = ()) -> Standings:
    arms = {name: part for name, part in ARMS.items() if name not in leave_out}
    entries = [Entry(name, "" if name == "full" else "0.3", str(part["arm"].iloc[0])) for name, part in arms.items()]
    metrics = [METRICS[name] for name in ("accuracy", "pos_ecr", "unsupported")]
    return standings(pd.concat(arms.values()), entries, METRICS[by], metrics, draws=500, seed=17)


def test_ranks_count_within_a_panel_and_neighbours_that_images_cannot_tell_apart_are_said_to_be_tied() -> None:
    found = made()
    assert [(line["method"], line["rank"]) for line in found.by_budget["0.3"]] == [
        ("good", 1), ("rival", 2), ("grid", 3), ("random", 3), ("bad", 5), ("told", 1),
    ]  # fmt: skip
    assert [line["panel"][0] for line in found.by_budget["0.3"]] == list("AAAAAC")
    assert found.full["selection_ms"] == 1.0, "the median of signals and selection"
    lines = {line["method"]: line for line in found.by_budget["0.3"]}
    assert (lines["good"]["lead"], lines["good"]["tied_with_next"]) == (pytest.approx(0.025), True)
    assert (lines["rival"]["tied_with_first"], lines["rival"]["tied_with_next"]) == (True, False)
    assert lines["grid"]["tied_with_next"]  # the same answers: a difference of exactly nothing
    assert (lines["random"]["gap"], lines["random"]["tied_with_first"]) == (pytest.approx(-0.4), False)
    assert (lines["bad"]["lead"], lines["bad"]["tied_with_next"]) == (None, False)
    frontier = {name for name, line in lines.items() if line["on_frontier"]}
    assert frontier == {"good", "rival", "told"}, "whoever nobody of the panel beats in both"


def test_gains_are_paired_differences_to_random_with_an_interval_around_them() -> None:
    lines = {line["method"]: line for line in made().by_budget["0.3"]}
    assert (lines["random"]["gain"], lines["random"]["gain_low"]) == (0.0, None)  # by construction
    assert lines["good"]["gain"] == pytest.approx(0.4)
    assert 0.2 < lines["good"]["gain_low"] < 0.4 < lines["good"]["gain_high"] < 0.6
    assert lines["bad"]["gain_high"] < 0.0
    assert lines["grid"]["gain"] == 0.0, "the same answers on forty images are not equal for certain"
    assert lines["grid"]["gain_high"] == pytest.approx(1 - 0.025 ** (1 / 40), abs=1e-4)
    assert lines["grid"]["gain_low"] == -lines["grid"]["gain_high"]


def test_a_lower_metric_turns_the_order_round_and_one_without_a_better_side_ranks_nobody(refused: Refused) -> None:
    lines = [line for line in made("unsupported").by_budget["0.3"] if line["panel"].startswith("A")]
    assert (lines[-1]["method"], lines[-1]["unsupported"]) == ("bad", 1.0)
    assert {line["rank"] for line in lines[:-1]} == {1}
    assert ranking_metric("", in_words=True).name == "score"
    assert ranking_metric("", in_words=False).name == "accuracy"
    refused("ranks nobody", ranking_metric, "keep", in_words=False)


def test_means_over_different_cells_stand_apart() -> None:
    by_method = {line["method"]: line for line in overview({"one": made(), "two": made()})}
    assert by_method["grid"]["gain_low"] < -0.05 < 0.05 < by_method["grid"]["gain_high"]
    assert by_method["random"]["gain_low"] is None
    found = overview({"one": made(), "two": made(leave_out=("good",))})
    methods = [(line["method"], line["cells"], line["place"]) for line in found]
    assert methods[:4] == [("rival", 2, 1), ("grid", 2, 2), ("random", 2, 2), ("bad", 2, 4)]
    assert methods[4] == ("good", 1, 1)
    rival = found[0]
    assert (rival["mean_rank"], [rank["rank"] for rank in rival["ranks"]]) == (1.5, [2, 1])
    assert rival["gain_low"] < rival["gain"] < rival["gain_high"]


@pytest.mark.parametrize(("swapped", "more"), [([True, False], RISKS), ([None, None], ())])
def test_risk_by_field_is_told_where_answers_are_about_fields(
    swapped: list[bool | None], more: tuple[str, ...]
) -> None:
    usual = [metric.name for metric in metrics_shown(pd.DataFrame({"score": [1.0, 0.0]}), in_words=True)]
    frame = pd.DataFrame({"score": [1.0, 0.0], "swapped": swapped})
    assert [metric.name for metric in metrics_shown(frame, in_words=True)] == [*usual, *more]
    assert "score" in usual
