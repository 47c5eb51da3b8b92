"""Aims are judged on the measured table, curves are drawn from the log."""

import pytest

from sightline.errors import SightlineError
from sightline.reader.curves import curves_svg, smooth
from sightline.reader.model_card import ARMS, aims, judge, write_card


def table(**changes):
    lines = {arm: {"accuracy": 0.5, "positive_accuracy": 0.4, "hfpr": 0.05, "pos_ecr": 0.3} for arm in ARMS}
    lines["full"] |= {"accuracy": 0.96, "positive_accuracy": 0.95}
    lines["target:0.3"] |= {"accuracy": 0.93, "pos_ecr": 0.9}
    lines["random:0.3"] |= {"accuracy": 0.75}
    for arm, values in changes.items():
        lines[arm] |= values
    return lines


def missed(lines, wrong=0.5):
    return [target.aim for target in judge(lines, {"image_mismatch_seed101": wrong}) if not target.met]


def test_all_aims_met():
    assert missed(table()) == []


@pytest.mark.parametrize(
    ("arm", "values", "words"),
    [
        ("full", {"accuracy": 0.94}, "Full accuracy"),
        ("full", {"hfpr": 0.07}, "hFPR"),
        ("grid:0.3", {"pos_ecr": 0.6}, "PosECR"),
        ("target:0.3", {"accuracy": 0.9}, "within 0.05"),
        ("random:0.3", {"accuracy": 0.9}, "Random"),
        ("full+remove_evidence", {"positive_accuracy": 0.8}, "evidence cells alone removed"),
        ("full+blank", {"accuracy": 0.54}, "blank image"),
    ],
)
def test_a_missed_aim_is_named(arm, values, words):
    found = missed(table(**{arm: values}))
    assert len(found) == 1
    assert words in found[0]


def test_wrong_images_are_judged_and_a_miss_is_printed():
    assert missed(table(), wrong=0.56) == ["wrong image (draw 101): accuracy 0.50 +- 0.03"]
    text = aims(judge(table(), {"image_mismatch_seed101": 0.56}))
    assert text.count("**missed**") == 1
    assert "9 of 10 are met" in text


def test_card_needs_a_training_record(tmp_path):
    with pytest.raises(SightlineError, match=r"training\.json"):
        write_card(tmp_path, tmp_path, tmp_path)


def test_curves():
    assert smooth([0.0, 3.0, 6.0], 3) == [1.5, 3.0, 4.5]
    drawn = curves_svg([{"step": step, "slots": 1.0 / step, "accuracy": 0.5} for step in range(1, 30)])
    assert drawn.count("<polyline") == 2
    assert "step (of 29)" in drawn
