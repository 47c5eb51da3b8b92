"""Ranges over the settings of one factor, and which arms differ in one factor alone."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from sightline.errors import SightlineError
from sightline.report.sections.differences import one_factor_sweeps, sweep_range

SUMMARY = pd.DataFrame(
    {
        "arm": ["target:0.3:weight=0.5", "target:0.3", "target:0.3:weight=1.0"],
        "accuracy": [0.757, 0.786, 0.788],
        "hfpr": [0.294, 0.246, 0.232],
        "auroc": [0.84, math.nan, 0.85],
        "pn_average": [0.611, 0.564, 0.544],
    }
)


def test_a_range_is_smallest_and_largest_beside_the_frozen_value() -> None:
    settings = {"0.50": "target:0.3:weight=0.5", "0.85": "target:0.3", "1.00": "target:0.3:weight=1.0"}
    found = sweep_range(SUMMARY, settings, frozen="0.85")
    assert (found["settings"], found["n_settings"], found["frozen"]) == ("0.50, 0.85, 1.00", 3, "0.85")
    assert (found["accuracy"], found["accuracy_low"], found["accuracy_high"]) == (0.786, 0.757, 0.788)
    assert (found["hfpr_low"], found["hfpr_high"]) == (0.232, 0.294)
    assert (found["pn_average_low"], found["pn_average_high"]) == (0.544, 0.611)
    assert (found["auroc_low"], found["auroc_high"]) == (0.84, 0.85), "what one arm lacks the others still have"


def test_arms_alone_are_their_own_settings_and_nothing_need_be_frozen() -> None:
    found = sweep_range(SUMMARY, SUMMARY["arm"].tolist()[:2])
    assert found["settings"] == "target:0.3:weight=0.5, target:0.3"
    assert found["frozen"] == ""
    assert math.isnan(found["accuracy"])
    assert found["accuracy_high"] == 0.786


def test_bad_sweeps_are_named() -> None:
    with pytest.raises(SightlineError, match=r"no arm 'grid:0\.3' to sweep over"):
        sweep_range(SUMMARY, ["target:0.3", "grid:0.3"])
    with pytest.raises(SightlineError, match="at least one arm"):
        sweep_range(SUMMARY, [])
    with pytest.raises(SightlineError, match="frozen setting '2' is not one of 1"):
        sweep_range(SUMMARY, {"1": "target:0.3"}, frozen="2")


def test_arms_are_swept_by_the_one_argument_in_which_they_differ() -> None:
    arms = {
        "target:0.3": '{"weight": 0.85, "top": 2}',
        "target:0.3:weight=1.0": '{"weight": 1.0, "top": 2}',
        "target:0.3:weight=0.5": '{"weight": 0.5, "top": 2}',
        "target:0.3:top=10": '{"weight": 0.85, "top": 10}',
        "target:0.3:weight=0.5,top=10": '{"weight": 0.5, "top": 10}',
        "target:0.5:weight=0.5": '{"weight": 0.5, "top": 2}',
        "random:0.3": '{"seed": 17}',
        "random:0.3:seed=101": '{"seed": 101}',
    }
    rows = pd.DataFrame(
        {
            "plain_arm": arm, "arm": f"run · {arm}", "selector": arm.split(":")[0], "budget": arm.split(":")[1],
            "arguments": arguments,
        }
        for arm, arguments in arms.items()
        for _ in range(2)
    )  # fmt: skip
    found = {(sweep.family, sweep.factor, tuple(sweep.arms)): sweep for sweep in one_factor_sweeps(rows)}
    assert set(found) == {
        ("target:0.3", "weight", ("0.5", "0.85", "1.0")),
        ("target:0.3", "top", ("2", "10")),
        ("target:0.3", "weight", ("0.5", "0.85")),
    }
    weight = found["target:0.3", "weight", ("0.5", "0.85", "1.0")]
    assert weight.frozen == "0.85"
    assert weight.arms["0.85"] == "run · target:0.3"
    assert found["target:0.3", "weight", ("0.5", "0.85")].frozen is None, "neither of them is the plain arm"
