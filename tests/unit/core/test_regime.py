from __future__ import annotations

import pytest

from sightline.arms.arm import parse_arm
from sightline.auditing.records import boxes_read
from sightline.core.selection import Regime, arm_regime

DETECTED, ANNOTATED = {"box_source": "rapidocr"}, {"box_source": "annotation"}


@pytest.mark.parametrize(
    ("arm", "regime", "with_detector"),
    [
        ("full", "full", "full"),
        ("target:0.3", "box-free method", "box-free method"),
        ("random:0.3", "box-free control", "box-free control"),
        ("protected:0.3", "oracle", "detector-assisted"),
        ("evidence_only:0.3", "oracle", "detector-assisted"),
        ("target:0.3:score=overlap", "oracle", "detector-assisted"),
        ("shuffled:0.3:score=overlap", "oracle", "detector-assisted"),
        ("masks:file=masks.jsonl", "replay", "replay"),
    ],
)
def test_the_regime_follows_from_what_an_arm_reads(arm: str, regime: Regime, with_detector: Regime) -> None:
    parsed = parse_arm(arm)
    reads = regime == "oracle"
    found = boxes_read(parsed, ANNOTATED, detected=False)
    assert found == {"box_source": "annotation" if reads else "none", "regime": regime}
    found = boxes_read(parsed, DETECTED, detected=True)
    assert found == {"box_source": "rapidocr" if reads else "none", "regime": with_detector}


def test_an_intervention_changes_nothing_about_the_regime() -> None:
    assert boxes_read(parse_arm("target:0.3+remove_evidence"), ANNOTATED, detected=False)["regime"] == "box-free method"


def test_who_does_not_say_whether_it_reads_boxes_is_taken_to_read_them() -> None:
    assert arm_regime("method", None, detected=False) == "oracle"
    assert arm_regime("method", None, detected=True) == "detector-assisted"


def test_an_oracle_that_reads_no_boxes_is_one_all_the_same() -> None:
    assert arm_regime("oracle", False, detected=False) == arm_regime("oracle", False, detected=True) == "oracle"
