"""Real probes of a file: prefill and first token over their images and questions, and the paper's repeated timing."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from sightline.cost import measure as measuring
from sightline.cost.benchmarks.prefill import PrefillRequest
from sightline.cost.benchmarks.repeated import RepeatedRequest, rotated
from sightline.cost.benchmarks.ttft import ImagePath, TtftRequest
from sightline.cost.card import CostCard
from sightline.cost.measuring_process import measure_here
from sightline.cost.request import Measurement
from sightline.cost.subject import Subject
from sightline.report.sections.cost import card_frame, cost_table
from sightline.selectors.target import Target
from tests.command_line import sightline
from tests.refusals import Refused
from tests.unit.cost.subjects import SIZES, result, write_probe_file

CPU: dict[str, Any] = {"device": "cpu", "dtype": "float32"}
HERE: dict[str, Any] = {**CPU, "config": "tiny-qwen3-vl", "warm_up": 1}
AREAS = [width * height for width, height in (*SIZES, *SIZES[:2])]
TOKENS = [area // 32**2 for area in AREAS]
"""Visual tokens of the images: cells of 32 x 32 pixels, which divide every side."""


@pytest.fixture(scope="module")
def probes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return write_probe_file(tmp_path_factory.mktemp("probes"))


def test_the_card_says_which_probes_and_no_ratio_crosses_them(probes: dict[str, Any]) -> None:
    request = PrefillRequest(kind="prefill", arms=("full", "target:0.5"), batch=3, repeats=1, **HERE, **probes)
    result = measure_here(request)
    full, pruned = result["points"]
    assert full["visual_tokens"] == full["kept_tokens"] == round(fmean(TOKENS[:3]))
    assert pruned["kept_tokens"] == round(fmean(tokens / 2 for tokens in TOKENS[:3]))
    assert full["length"] - pruned["length"] == full["kept_tokens"] - pruned["kept_tokens"]
    subject = Subject.of(request)
    expected = fmean(len(subject.prompt_about(i).head) + len(subject.prompt_about(i).tail) for i in range(3))
    assert full["length"] == pytest.approx(expected + fmean(TOKENS[:3]), abs=1)
    assert len({len(subject.prompt_about(i).tail) for i in range(3)}) == 3  # every question its own length
    facts = dict(CostCard([result]).facts())
    assert str(Path(probes["image_folder"]).parent) not in json.dumps(result)  # names, never folders
    assert facts["image"].startswith("those of 3 probes of probes.jsonl (sha256:")
    assert facts["image"].endswith("), 256 x 320 to 448 x 256 pixels")
    assert facts["text tokens"] == "those of the questions"
    whole, part = ({**result, "points": [point]} for point in result["points"])
    assert CostCard([whole, part]).records()[1]["speedup"] > 0
    others = {**part, "probes": {**part["probes"], "digest": "sha256:of other probes"}}
    assert "speedup" not in CostCard([whole, others]).records()[1]


@pytest.mark.parametrize("execution", ["stock", "eager", "graph"])
def test_every_image_goes_through_once_before_the_first_sample(
    execution: str, probes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    first_token = ImagePath.first_token

    def counted(self: ImagePath, image: Any, number: int = 0) -> dict[str, float]:
        seen.append((number, image.size[0] * image.size[1]))
        return first_token(self, image, number)

    monkeypatch.setattr(ImagePath, "first_token", counted)
    request = TtftRequest(kind="ttft", arms=("full",), execution=execution, repeats=7, **HERE, **probes)
    result = measure_here(request)
    (point,) = result["points"]
    assert all(len(samples) == 7 for samples in point["samples_ms"].values())
    assert result["probes"]["count"] == 6
    if execution == "stock":
        assert point["visual_tokens"] == round(fmean(TOKENS))
    else:
        assert seen == [(i % 6, AREAS[i % 6]) for i in range(6 + 7)]
        assert point["visual_tokens"] == round(fmean([*TOKENS, TOKENS[0]]))


REPEATED: dict[str, Any] = {**CPU, "config": "tiny-llava", "probes_per_process": 6, "drop": 2}
ARMS = ("full", "target:0.4", "fastv:0.5")
PARTS = ("vision", "select", "language")
S17 = {
    "full": ([75.06032322631462, 75.61689078636272, 75.6115316768716], "75.43 ± 0.32", 1.00),
    "target:0.4": ([53.28707583616242, 53.4224542776907, 54.938521303579606], "53.88 ± 0.92", 1.40),
}
"""What each of the artifact's processes took on average, what its summary made of it, and the printed speed-up."""


def process(number: int, model: str = "llava-1.5-7b") -> dict[str, Any]:
    """What one process of a GPU machine would hand back with the artifact's means."""
    request = RepeatedRequest(
        kind="repeated", config=model, arms=tuple(S17), repetition=number, probe_file="p.jsonl", image_folder="images"
    )
    points = [
        Measurement(arm, 1, 576, 231, 300, {"total": [ms - 1, ms + 1], **{stage: [1.0, 3.0] for stage in PARTS}})
        for arm, ms in ((arm, means[number]) for arm, (means, _, _) in S17.items())
    ]
    for point in points:
        point.extra["keep"] = 1.0 if point.arm == "full" else 0.401
    made: dict[str, Any] = {"request": request.as_dict(), "points": [point.as_dict() for point in points]}
    return {**result("eager", "full", [1.0]), **made}


@pytest.fixture(scope="module")
def repeated(probes: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """Three processes, and the ids of the probes that Target chose for in their order."""
    chosen: list[str] = []
    select = Target.select

    def counted(self: Target, view: Any, k: int) -> Any:
        chosen.append(view.probe_id)
        return select(self, view, k)

    requests = [RepeatedRequest(kind="repeated", arms=ARMS, repetition=n, **REPEATED, **probes) for n in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Target, "select", counted)
        return [measure_here(request) for request in requests], chosen


def test_each_answer_encodes_and_selects_anew(repeated: tuple[list[dict[str, Any]], list[str]]) -> None:
    assert repeated[1] == [f"p{number}" for number in range(6) for _ in ("yes", "no")] * 3


def test_every_process_begins_with_another_arm_and_drops_its_first_probes(
    repeated: tuple[list[dict[str, Any]], list[str]],
) -> None:
    measured, _ = repeated
    orders = [[point["arm"] for point in each["points"]] for each in measured]
    assert orders == [list(ARMS), [*ARMS[1:], ARMS[0]], [ARMS[2], *ARMS[:2]]]
    assert rotated("abc", 4) == ["b", "c", "a"]
    for point in (point for each in measured for point in each["points"]):
        assert set(point["samples_ms"]) == {*PARTS, "total"}
        assert all(len(samples) == 4 for samples in point["samples_ms"].values())
        for number, total in enumerate(point["samples_ms"]["total"]):
            parts = [point["samples_ms"][stage][number] for stage in PARTS]
            assert all(ms > 0 for ms in parts)
            assert sum(parts) == pytest.approx(total, rel=1e-6)
    full, pruned, inside = measured[0]["points"]
    assert [point["extra"]["keep"] for point in (full, pruned, inside)] == [1.0, 26 / 64, 0.5]


def test_the_table_fills_the_total_with_its_stages(repeated: tuple[list[dict[str, Any]], list[str]]) -> None:
    card = CostCard(repeated[0])
    table = cost_table(card, "realised_repeated", card_frame(card))
    titles = [column.title for column in table.columns]
    assert titles[2:] == ["Keep", "Vision ms", "Select/materialise ms", "Language ms", "Total ms", "Speed-up"]
    assert all(line["total"] in table.markdown() for line in card.records())
    assert table.latex().count(r"$\pm$") == 4 * len(ARMS)
    assert {"ms", "ms_low", "ms_high", "total_ms_sd", "vision_ms"} <= set(table.csv().splitlines()[0].split(","))


def test_the_artifacts_processes_give_the_published_row_beside_that_model_alone() -> None:
    card = CostCard([process(number) for number in range(3)])
    full, target = card.records()
    for record, (means, words, speedup) in zip((full, target), S17.values(), strict=True):
        assert record["ms"] == pytest.approx(sum(means) / 3)
        assert record["total"] == words
        assert round(record["speedup"], 2) == speedup == record["published_speedup"]
        assert record["vision_ms_sd"] == 0.0
    assert (full["published_ms"], target["published_ms"]) == (75.4, 53.9)
    assert "| eager | target:0.4 | 0.401 | 2.00 ± 0.00 |" in card.markdown()
    assert "53.88 ± 0.92 | 1.40x | 53.9 | 1.40x |" in card.markdown()
    assert "- processes: 3, 2 arm(s) each" in card.markdown()
    assert "Stages:" not in card.markdown()  # they are in the one table
    card = CostCard([process(number, "tiny-llava") for number in range(3)])
    assert not any("published_ms" in record for record in card.records())
    assert "published" not in card.markdown().split("| execution")[1]
    alone, _ = CostCard([process(0)]).records()
    assert (alone["total"], "total_ms_sd" in alone) == ("75.06", False), "one process has no deviation"


def test_a_process_and_a_card_each_time(
    probes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    out = tmp_path / "card.json"

    def measure(request: RepeatedRequest) -> dict[str, Any]:
        written.append(len(CostCard.read(out).results) if out.is_file() else 0)
        assert request.arms == ("full", "target:0.4")
        assert request.repetition == len(written) - 1
        return measure_here(request)

    monkeypatch.setattr(measuring, "measure", measure)
    asked = "--shape tiny-llava --random-weights --device cpu --processes 2 --probes-per-process 4 --drop 1"
    material = ("--probes", probes["probe_file"], "--images", probes["image_folder"])
    done = sightline("bench", "repeated", *asked.split(), *material, "--out", out)
    assert written == [0, 1]
    assert "one probe at a time, 4 under each arm, the first 1 dropped" in done.output
    assert "those of 4 probes of probes.jsonl (sha256:" in done.output
    assert "256 x 256 to 448 x 256 pixels" in done.output
    assert CostCard.read(out).records()[1]["samples"] == 2


def test_too_few_probes_are_refused_before_any_model(
    probes: dict[str, Any], monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.setattr("sightline.cost.subject.random_backbone", lambda *_, **__: pytest.fail("a model was made"))
    for words, change in (
        ("probes.jsonl holds 6 probes and 100 are asked for", {"probes_per_process": 100}),
        ("does not exist", {"image_folder": probes["image_folder"] + "x"}),
    ):
        refused(words, measure_here, RepeatedRequest(kind="repeated", **{**REPEATED, **probes, **change}))
