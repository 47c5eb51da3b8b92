"""First token and n more: the formula, the detector's time, and what the paper printed beside it."""

from __future__ import annotations

from typing import Any

import pytest

from sightline.cost.benchmarks.ttft import TtftRequest
from sightline.cost.card import CostCard
from sightline.cost.published import FURTHER, published_key
from sightline.cost.request import Measurement
from sightline.errors import SightlineError
from sightline.report.sections.cost import further_tables
from tests.unit.cost.test_card import result


def timed(
    arm: str,
    first: float,
    decode: dict[int, float],
    *,
    model: str = "qwen3-vl-8b",
    detector_ms: float = 0.0,
    source: str = "annotation",
    **stages: float,
) -> dict[str, Any]:
    """What a GPU machine would hand back for one arm."""
    request = TtftRequest("ttft", config=model, arms=(arm,), box_source=source, detector_ms=detector_ms)
    samples = {**stages, "total": first, **{f"decode_{count}": ms for count, ms in decode.items()}}
    point = Measurement(arm, 1, 784, 157, 202, {stage: [ms] for stage, ms in samples.items()})
    point.extra["reads_boxes"] = arm.startswith(("protected", "soft"))
    return {
        **result("eager", arm, [1.0]),
        "request": request.as_dict(),
        "box_source": source,
        "points": [point.as_dict()],
    }


def test_a_total_is_the_first_token_and_n_times_the_token_of_the_longest_decoding() -> None:
    card = CostCard([timed("full", 100.0, {1: 9.0, 32: 640.0}), timed("target:0.2", 60.0, {1: 9.0, 32: 608.0})])
    (table,) = card.further_tables()
    (line,) = table.lines
    assert table.name == "total_speedup"
    assert (line["first_token_ms"], line["token_ms"]) == (60.0, 19.0)
    assert {f"n_{n}" for n in FURTHER} <= set(line)
    assert line["n_0"] == pytest.approx(100 / 60)
    for n in FURTHER:
        assert line[f"n_{n}"] == pytest.approx((100 + 20 * n) / (60 + 19 * n))
    assert line["published"] == "1.065 at 32, 1.018 at 128"
    assert "| eager | target:0.2 | 60 | 19 | 1.667 |" in card.markdown()
    assert "detector" not in card.markdown().split("Speed-up over")[1].split("Stages:")[0].split("\n\n")[1]


def test_a_detector_that_ran_is_in_the_first_token_already() -> None:
    full = timed("full", 60.0, {32: 640.0}, model="llava-1.5-7b", source="easyocr")
    arm = timed("protected:0.4", 300.0, {32: 640.0}, model="llava-1.5-7b", source="easyocr", detector=254.4)
    ((line,),) = (table.lines for table in CostCard([full, arm]).further_tables())
    assert line["first_token_ms"] == 300.0
    assert line["detector_ms"] == 254.4
    assert line["n_32"] == pytest.approx(700 / 940)
    assert line["published"] == "0.830 at 32"


def test_a_detector_timed_elsewhere_is_added_to_arms_that_read_boxes_alone() -> None:
    given: dict[str, Any] = {"model": "internvl3.5-8b", "detector_ms": 254.4}
    card = CostCard(
        [
            timed("full", 100.0, {32: 320.0}, **given),
            timed("soft_evidence:0.5", 60.0, {32: 320.0}, **given),
            timed("target:0.5", 60.0, {32: 320.0}, **given),
        ]
    )
    ((boxed, free),) = (table.lines for table in card.further_tables())
    assert boxed["first_token_ms"] == pytest.approx(314.4)
    assert boxed["n_0"] == pytest.approx(100 / 314.4)
    assert boxed["published"] == "0.907 at 32"
    assert free["n_0"] == pytest.approx(100 / 60)
    assert "detector_ms" not in free
    assert card.records()[1]["speedup"] == pytest.approx(100 / 60)  # the measured table is not touched


def test_no_total_without_decoding_or_without_the_full_prefix() -> None:
    assert not CostCard([timed("full", 100.0, {}), timed("target:0.2", 60.0, {})]).further_tables()
    assert not CostCard([timed("target:0.2", 60.0, {32: 640.0})]).further_tables()


def test_the_page_has_the_table_too() -> None:
    card = CostCard([timed("full", 100.0, {32: 640.0}), timed("target:0.2", 60.0, {32: 640.0})])
    (table,) = further_tables(card, "realised_ttft")
    assert table.name == "realised_ttft_total_speedup"
    assert "1.667" in table.markdown()
    assert "n = 128" in table.latex()
    assert "1.065 at 32" in table.csv()


def test_a_detector_is_timed_or_given_not_both() -> None:
    with pytest.raises(SightlineError, match="--box-source easyocr is timed here: drop --detector-ms"):
        TtftRequest("ttft", config="tiny-llava", box_source="easyocr", detector_ms=1.0)


@pytest.mark.parametrize(
    ("model", "arm", "key"),
    [
        ("Qwen3-VL-8B-Instruct", "target:0.20", ("qwen3-vl-8b", ("target", 0.2))),
        ("InternVL3_5-8B-HF", "soft_evidence:0.5", ("internvl3.5-8b", ("soft_evidence", 0.5))),
        ("llava-1.5-7b-hf", "full", ("llava-1.5-7b", ("full", 1.0))),
        ("llava-1.5-7b-hf", "protected:0.4:score=prompt", None),
        ("tiny-llava", "full", None),
    ],
)
def test_checkpoints_are_known_by_the_beginning_of_their_names(model: str, arm: str, key: object) -> None:
    assert published_key(model, arm) == key
