"""``--probes`` and ``--images``: prefill and first token over the images and questions of a file."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from sightline.cost.benchmarks.prefill import PrefillRequest
from sightline.cost.benchmarks.ttft import TtftRequest, Way
from sightline.cost.card import CostCard
from sightline.cost.measuring_process import measure_here
from sightline.cost.subject import Subject
from sightline.errors import SightlineError
from tests.unit.cost.probe_files import SIZES, write_probe_file

HERE: dict[str, Any] = {"config": "tiny-qwen3-vl", "device": "cpu", "dtype": "float32", "warm_up": 1}
TOKENS = [width * height // 32**2 for width, height in SIZES]
"""Visual tokens of the images: cells of 32 x 32 pixels, which divide every side."""


@pytest.fixture(scope="module")
def probes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return write_probe_file(tmp_path_factory.mktemp("probes"), 4)


def test_prefixes_of_a_batch_are_those_of_the_probes(probes: dict[str, Any]) -> None:
    request = PrefillRequest("prefill", arms=("full", "target:0.5"), batch=3, repeats=2, **HERE, **probes)
    full, pruned = measure_here(request)["points"]
    assert full["visual_tokens"] == full["kept_tokens"] == round(fmean(TOKENS[:3]))
    assert pruned["kept_tokens"] == round(fmean(tokens / 2 for tokens in TOKENS[:3]))
    assert full["length"] - pruned["length"] == full["kept_tokens"] - pruned["kept_tokens"]
    subject = Subject.of(request)
    expected = fmean(len(subject.prompt_about(i).head) + len(subject.prompt_about(i).tail) for i in range(3))
    assert full["length"] == pytest.approx(expected + fmean(TOKENS[:3]), abs=1)
    assert len({len(subject.prompt_about(i).tail) for i in range(3)}) == 3  # every question its own length


@pytest.mark.parametrize("execution", ["stock", "eager", "graph"])
def test_every_image_goes_through_once_before_the_first_sample(
    execution: str, probes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    first_token = Way.first_token

    def counted(self: Way, image: Any, number: int = 0) -> dict[str, float]:
        seen.append((number, image.size[0] * image.size[1]))
        return first_token(self, image, number)

    monkeypatch.setattr(Way, "first_token", counted)
    request = TtftRequest("ttft", arms=("full",), execution=execution, repeats=5, **HERE, **probes)
    result = measure_here(request)
    (point,) = result["points"]
    assert all(len(samples) == 5 for samples in point["samples_ms"].values())
    assert result["probes"]["count"] == 4
    if execution == "stock":
        assert point["visual_tokens"] == round(fmean(TOKENS))
    else:
        areas = [width * height for width, height in SIZES]
        assert seen == [(i % 4, areas[i % 4]) for i in range(4 + 5)]
        assert point["visual_tokens"] == round(fmean([*TOKENS, TOKENS[0]]))


def test_the_card_says_which_probes_and_no_ratio_crosses_them(probes: dict[str, Any]) -> None:
    request = PrefillRequest("prefill", arms=("full", "target:0.5"), repeats=1, batch=3, **HERE, **probes)
    result = measure_here(request)
    facts = dict(CostCard([result]).facts())
    assert str(Path(probes["image_folder"]).parent) not in json.dumps(result)  # names, never folders
    assert facts["image"].startswith("those of 3 probes of probes.jsonl (sha256:")
    assert facts["image"].endswith("), 256 x 320 to 448 x 256 pixels")
    assert facts["text tokens"] == "those of the questions"
    full, pruned = ({**result, "points": [point]} for point in result["points"])
    assert CostCard([full, pruned]).records()[1]["speedup"] > 0
    others = {**pruned, "probes": {**pruned["probes"], "digest": "sha256:of other probes"}}
    assert "speedup" not in CostCard([full, others]).records()[1]


def test_made_up_and_real_images_do_not_mix(probes: dict[str, Any]) -> None:
    with pytest.raises(SightlineError, match="give --probes FILE and --images DIR"):
        PrefillRequest("prefill", config="tiny-llava", probe_file="probes.jsonl")
    with pytest.raises(SightlineError, match="--image-size is of a made-up image"):
        PrefillRequest("prefill", config="tiny-llava", image_size=(64, 64), **probes)
