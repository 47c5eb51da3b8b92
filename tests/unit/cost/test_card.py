"""The cost card: ratios under equal conditions only, every sample on disk; totals; what is published beside it."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sightline.cost import published
from sightline.cost.benchmarks.ttft import TtftRequest
from sightline.cost.card import CostCard
from sightline.cost.measuring_process import measure_here
from sightline.cost.request import Measurement
from sightline.report.sections.cost import further_tables
from tests.conftest import REPOSITORY
from tests.refusals import Refused
from tests.unit.cost.subjects import GIB, result


@pytest.fixture
def card() -> CostCard:
    return CostCard([
        result("eager", "full", [800.0, 820.0, 810.0], 4 * GIB), result("eager", "target:0.2", [200.0, 210.0, 205.0]),
        result("compiled", "full", [700.0], 4 * GIB), result("compiled", "target:0.2", [140.0]),
    ])  # fmt: skip


def test_a_ratio_is_of_a_full_prefix_under_the_same_conditions(card: CostCard) -> None:
    records = {(r["execution"], r["arm"]): r for r in card.records()}
    assert records["eager", "target:0.2"]["speedup"] == pytest.approx(810 / 205)
    assert records["compiled", "target:0.2"]["speedup"] == pytest.approx(5.0)
    assert records["eager", "full"]["speedup"] == 1.0
    assert records["eager", "target:0.2"]["memory_saved"] == pytest.approx(0.75)
    assert records["compiled", "target:0.2"]["samples_per_s"] == pytest.approx(32 / 0.140)
    assert records["compiled", "target:0.2"]["of_ceiling"] == pytest.approx(4e14 / 0.140 / 800e12)
    assert card.frame()["incremental_gib"].tolist() == [4.0, 1.0, 4.0, 1.0]
    pruned = result("compiled", "target:0.2", [140.0])
    for other in (result("eager", "full", [800.0]), result("compiled", "full", [800.0], batch=16)):
        assert "speedup" not in CostCard([other, pruned]).records()[1]


def test_the_text_names_the_conditions_and_every_sample_survives_a_round_trip(card: CostCard, tmp_path: Path) -> None:
    text = card.markdown()
    for words in ("NVIDIA H200", "bfloat16", "random weights", "preserve", "annotation", "1980", "all language layers"):
        assert words in text
    assert "| eager | target:0.2 | 32 | 202 | 205 | 200.00..210.00 |" in text
    card.write(tmp_path / "cards" / "qwen.json")
    read = CostCard.read(tmp_path / "cards" / "qwen.json")
    assert read == card
    assert (tmp_path / "cards" / "qwen.md").read_text(encoding="utf-8") == text
    assert read.results[0]["points"][0]["samples_ms"]["prefill"] == [800.0, 820.0, 810.0]


def test_bad_cards_are_refused(tmp_path: Path, refused: Refused) -> None:
    refused("at least one measurement", CostCard, [])
    for name, content, about in (
        ("x", "{", "cannot read cost card"),
        ("y", '{"format": 0}', "not a cost card of format 1"),
    ):
        (tmp_path / f"{name}.json").write_text(content, encoding="utf-8")
        refused(about, CostCard.read, tmp_path / f"{name}.json")


def timed(
    arm: str, first: float, decode: dict[int, float], model: str = "qwen3-vl-8b", source: str = "annotation",
    detector_ms: float = 0.0, **stages: float,
) -> dict[str, Any]:  # fmt: skip
    """What a GPU machine would hand back for one arm."""
    request = TtftRequest(kind="ttft", config=model, arms=(arm,), box_source=source, detector_ms=detector_ms)
    samples = {**stages, "total": first, **{f"decode_{count}": ms for count, ms in decode.items()}}
    point = Measurement(arm, 1, 784, 157, 202, {stage: [ms] for stage, ms in samples.items()})
    point.extra["reads_boxes"] = arm.startswith(("protected", "soft"))
    made: dict[str, Any] = {"request": request.as_dict(), "box_source": source, "points": [point.as_dict()]}
    return {**result("eager", arm, [1.0]), **made}


def decoded() -> CostCard:
    return CostCard([timed("full", 100.0, {1: 9.0, 32: 640.0}), timed("target:0.2", 60.0, {1: 9.0, 32: 608.0})])


def test_a_total_is_the_first_token_and_n_times_the_token_of_the_longest_decoding() -> None:
    card = decoded()
    (table,) = card.further_tables()
    (line,) = table.lines
    assert table.name == "total_speedup"
    assert (line["first_token_ms"], line["token_ms"]) == (60.0, 19.0)
    assert {f"n_{n}" for n in published.FURTHER} <= set(line)
    assert line["n_0"] == pytest.approx(100 / 60)
    for n in published.FURTHER:
        assert line[f"n_{n}"] == pytest.approx((100 + 20 * n) / (60 + 19 * n))
    assert line["published"] == "1.065 at 32, 1.018 at 128"
    assert "| eager | target:0.2 | 60 | 19 | 1.667 |" in card.markdown()
    assert "detector" not in card.markdown().split("Speed-up over")[1].split("Stages:")[0].split("\n\n")[1]


def test_totals_need_decoding_and_the_full_prefix_and_stand_on_the_page() -> None:
    assert not CostCard([timed("full", 100.0, {}), timed("target:0.2", 60.0, {})]).further_tables()
    assert not CostCard([timed("target:0.2", 60.0, {32: 640.0})]).further_tables()
    (printed,) = further_tables(decoded(), "realised_ttft")
    assert printed.name == "realised_ttft_total_speedup"
    assert "1.667" in printed.markdown()
    assert "n = 128" in printed.latex()
    assert "1.065 at 32" in printed.csv()


def test_a_detector_is_in_the_first_token_if_it_ran_or_added_for_arms_that_read_boxes() -> None:
    full = timed("full", 60.0, {32: 640.0}, model="llava-1.5-7b", source="easyocr")
    arm = timed("protected:0.4", 300.0, {32: 640.0}, model="llava-1.5-7b", source="easyocr", detector=254.4)
    ((line,),) = (table.lines for table in CostCard([full, arm]).further_tables())
    assert line["first_token_ms"] == 300.0
    assert line["detector_ms"] == 254.4
    assert line["n_32"] == pytest.approx(700 / 940)
    assert line["published"] == "0.830 at 32"
    given: dict[str, Any] = {"model": "internvl3.5-8b", "detector_ms": 254.4}
    arms = {"full": 100.0, "soft_evidence:0.5": 60.0, "target:0.5": 60.0}
    card = CostCard([timed(arm, ms, {32: 320.0}, **given) for arm, ms in arms.items()])
    ((boxed, free),) = (table.lines for table in card.further_tables())
    assert boxed["first_token_ms"] == pytest.approx(314.4)
    assert boxed["n_0"] == pytest.approx(100 / 314.4)
    assert boxed["published"] == "0.907 at 32"
    assert free["n_0"] == pytest.approx(100 / 60)
    assert "detector_ms" not in free
    assert card.records()[1]["speedup"] == pytest.approx(100 / 60)  # the measured table is not touched


def test_checkpoints_are_known_by_the_beginning_of_their_names() -> None:
    for model, arm, key in (
        ("Qwen3-VL-8B-Instruct", "target:0.20", ("qwen3-vl-8b", ("target", 0.2))),
        ("InternVL3_5-8B-HF", "soft_evidence:0.5", ("internvl3.5-8b", ("soft_evidence", 0.5))),
        ("llava-1.5-7b-hf", "full", ("llava-1.5-7b", ("full", 1.0))),
        ("llava-1.5-7b-hf", "protected:0.4:score=prompt", None),
        ("tiny-llava", "full", None),
    ):
        assert published.published_key(model, arm) == key


README_SAYS = [("Qwen3-VL-8B", "ttft-qwen", "target:0.2"), ("LLaVA-1.5-7B", "ttft-llava", "target:0.4")]


PAGE = (REPOSITORY / "docs" / "cost.md").read_text(encoding="utf-8")
CARDS = {path.stem: path for path in (REPOSITORY / "benchmarks" / "cards" / "h200").glob("*.json")}


def test_published_cards_are_of_a_gpu_and_the_cost_page_quotes_their_ratios() -> None:
    for name, path in CARDS.items():
        card = CostCard.read(path)
        assert {result["machine"]["device"] for result in card.results} == {"cuda"}
        assert all(result["ceiling_tflops"] > 700 for result in card.results)
        assert all(line["out_of_memory"] or line["ms"] > 0 for line in card.records())
        # But not those of a batch that grows: one sample each.
        for line in (line for line in card.records() if line["batching"] == "fixed"):
            for ratio in ("speedup", "than_stock", "throughput_ratio", "ratio_to_model_alone"):
                if ratio in line and (line["execution"] != "eager" or ratio == "speedup"):
                    assert f"{line[ratio]:.2f}" in PAGE, (name, line["execution"], line["arm"], ratio)


def test_the_readme_quotes_times_of_published_cards() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    for model, name, arm in README_SAYS:
        records = CostCard.read(CARDS[name]).records()
        graph = {line["arm"]: line["ms"] for line in records if line["execution"] == "graph"}
        full, pruned = graph["full"], graph[arm]
        times = f"{pruned:.3g} ms instead of {full:.3g} ms ({full / pruned:.2f} times)"
        assert f"{model} with `{arm}` {times}" in readme


def test_the_cost_page_says_where_memory_ends() -> None:
    lines = CostCard.read(CARDS["prefill-max"]).records()
    (failed,) = [line for line in lines if line["out_of_memory"]]
    assert (failed["arm"], failed["batch"]) == ("full", 2048)
    for arm in ("full", "target:0.2"):
        largest = max((line for line in lines if line["arm"] == arm and "ms" in line), key=lambda line: line["batch"])
        assert f"{largest['batch']:,} prefixes ({largest['incremental_gib']:.0f} GiB)" in PAGE


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module that measures in this process, on a few small images."""
    spec = importlib.util.spec_from_file_location("paper_cost", REPOSITORY / "benchmarks" / "paper_cost.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "paper_cost", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "measure", measure_here)
    monkeypatch.setattr(module, "SIZE", (160, 128))
    return module


def test_every_published_number_is_measured(script: ModuleType) -> None:
    asked: dict[str, set[object]] = {}
    for part in script.parts({"probe_file": "probes.jsonl", "image_folder": "images"}):
        for request in part.requests:
            keys = {published.published_key(request.config, arm) for arm in request.arms}
            asked.setdefault(part.name.split("-")[0], set()).update(keys)
            assert request.kind != "prefill" or request.batch == published.PREFILL_BATCH[request.config]
    assert set(published.REPEATED) <= asked["s17"]
    assert set(published.EFFICIENCY) <= asked["prefill"]
    assert set(published.EFFICIENCY) <= asked["single"] | asked["s17"]
    assert {*published.TOTAL, *published.TOTAL_WITH_DETECTOR} <= asked["total"]


def test_what_no_time_is_left_for_is_named(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "measure", lambda _: pytest.fail("there was no time"))
    monkeypatch.setattr(sys, "argv", ["paper_cost.py", "--tiny", "--minutes", "0"])
    script.main()
    assert capsys.readouterr().out.count("left out") == 9


@pytest.mark.slow
def test_it_runs_from_drawing_to_the_last_table(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "S17", ("full", "target:0.4"))
    monkeypatch.setattr(sys, "argv", ["paper_cost.py", "--tiny", "--minutes", "1000", "--out", str(tmp_path)])
    script.main()
    said = capsys.readouterr().out
    assert len(list(tmp_path.glob("*.json"))) == 9
    assert "left out" not in said
    assert len(CostCard.read(tmp_path / "s17-llava.json").results) == 3
    assert all(arm in said for arm in script.S17)
    assert said.count("Speed-up over first token and n further tokens:") == 3
    assert "Table 2, measured and published:" in said
