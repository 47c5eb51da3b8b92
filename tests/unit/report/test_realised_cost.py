"""Cost cards in the report: conditions and warnings are visible, ratios are the card's own, bad cards stop it early."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sightline.cost.card import CostCard
from sightline.errors import SightlineError
from sightline.report.build import build_report
from sightline.report.sections import cost
from tests.command_line import sightline
from tests.refusals import Refused
from tests.runs.pages import DRAWS, Page, missing, report_on
from tests.unit.cost.subjects import GIB, result

Cards = dict[str, Path]


@pytest.fixture(scope="module")
def page(run: Path, cards: Cards, tmp_path_factory: pytest.TempPathFactory) -> Page:
    return report_on(tmp_path_factory.mktemp("cost_report"), run, costs=list(cards.values()), cases=2)


def gpu_card(*results: dict[str, Any]) -> CostCard:
    """Of a GPU that is not here, with a checkpoint's weights."""
    return CostCard([{**each, "weights": "checkpoint"} for each in results])


def test_the_section_stands_beside_the_audits_own_times(page: Page, report: Page, tmp_path: Path) -> None:
    found = page.outline
    assert found.ids.index("cost") < found.ids.index("realised-cost")
    assert len(found.ids) == len(set(found.ids))
    text = " ".join("".join(found.text).split())
    facts = ("attention sdpa, on the CPU", "eager, graph", "float32", "compact", "annotation", "TFLOP/s", "SM clock")
    covers = (
        "recorded while auditing, from batched work", "Isolated measurements", "padding the prefixes into one batch",
        "on a GPU resizing, normalising and cutting into patches, vision tower, projector",
        "whole sweep: preprocessing",
    )  # fmt: skip
    assert missing(text, *facts, *covers) == []
    assert page.notes.count(cost.RANDOM) == page.notes.count(cost.NO_GPU) == 3
    assert "realised-cost" not in report.ids, "a run alone says nothing of cards"
    gpu_card(result("eager", "full", [800.0])).write(tmp_path / "card.json")
    (part,) = cost.realised_cost_section(cost.read_cards([tmp_path / "card.json"]), beside_runs=False).parts
    assert part.notes == []
    assert ("device", "NVIDIA H200") in part.facts[0][1]
    assert ("SM clock", "1980..1980 MHz after the samples") in part.facts[0][1]


def test_tables_hold_the_cards_own_numbers(page: Page, cards: Cards) -> None:
    for kind, path in cards.items():
        card = CostCard.read(path)
        expected = card.frame().rename(columns={"low_ms": "ms_low", "high_ms": "ms_high"}).drop(columns="spread")
        written = pd.read_csv(page.file(f"realised_{kind}.csv"))
        pd.testing.assert_frame_equal(written[expected.columns], expected, check_dtype=False)
        for suffix in ("md", "tex"):
            assert page.file(f"realised_{kind}.{suffix}").stat().st_size > 0
    ttft = page.frame("realised_ttft")
    stages = CostCard.read(cards["ttft"]).stages()
    assert ttft["vision_ms"].tolist() == pytest.approx([point["vision"].centre for point in stages])
    assert ttft["vision_ms_high"].tolist() == pytest.approx([point["vision"].high for point in stages])
    assert {"decode_1_ms", "decode_2_ms", "first_token_ms", "estimated_gflop"} <= set(ttft.columns)


def test_charts_show_stages_and_batch_sizes(cards: Cards, tmp_path: Path) -> None:
    def titles(figures: list[Any]) -> list[str]:
        return [found for figure in figures for found in re.findall("<title>(.*?) over the batch size</title>", figure)]

    prefill, ttft, sweep = cost.realised_cost_section(cost.read_cards(list(cards.values())), beside_runs=True).parts
    assert [group.title for group in prefill.charts] == ["Over the batch size: eager", "Over the batch size: graph"]
    assert all(titles(group.figures) == ["Samples/s", "Speed-up"] for group in prefill.charts)
    (drawing,) = ttft.charts[0].figures
    records = CostCard.read(cards["ttft"]).records()
    for record in records:
        shown = f"{record['ms']:.{2 if record['ms'] < 100 else 0}f}"
        assert f"{shown} ms · {record['speedup']:.2f}×" in drawing
    assert drawing.count("prefill") >= len(records)
    assert sweep.charts == []
    card = CostCard.read(cards["prefill"])
    replace(card, results=card.results[:1]).write(tmp_path / "one.json")
    (part,) = cost.realised_cost_section(cost.read_cards([tmp_path / "one.json"]), beside_runs=False).parts
    assert part.charts == [], "one batch size has no curve"
    assert len(part.tables) == 1


def test_a_stage_keeps_its_colour_and_what_lies_between_is_drawn() -> None:
    order = ("preprocess", "detector", "vision", "prefill")
    plain = cost.Bar("full", "eager", {"preprocess": 1.0, "vision": 2.0, "prefill": 3.0}, 7.0, 6.5, 7.5, 1.0)
    detected = replace(plain, label="detected", stages={**plain.stages, "detector": 9.0})
    drawing, lone = (str(cost.stage_bars(bars, order, "Stages")) for bars in ([plain, detected], [plain]))
    for stage, fill in (("vision", "#009e73"), ("prefill", "#cc79a7")):
        for svg in (drawing, lone):
            assert re.search(rf'fill="{fill}"[^>]*><title>eager, full: {stage}', svg), stage
    assert "eager, full: 1.00 ms between stages" in lone
    assert "detector" not in lone
    assert "detected: " in drawing
    assert "ms between stages" not in drawing[drawing.index("eager, detected: prefill") :], "stages exceed the total"


def test_the_sentence_is_made_from_the_numbers_of_one_kernel_and_says_what_was_saved_before(cards: Cards) -> None:
    def table_of(card: CostCard) -> Any:
        return cost.cost_table(card, "x", cost.card_frame(card))

    def sentence(full: list[float], pruned: list[float]) -> str:
        card = gpu_card(result("eager", "full", full, 4 * GIB), result("eager", "target:0.2", pruned))
        return str(table_of(card).sentence)

    at_best = (
        "At best, target:0.2 (eager, batch 32) is 4.00× as fast as the full prefix, with 20% of the visual tokens."
    )
    assert sentence([800.0, 810.0, 820.0], [200.0, 202.5, 210.0]) == at_best
    assert "the two spreads overlap" in sentence([800.0, 810.0, 820.0], [780.0, 790.0, 815.0])
    assert sentence([800.0], [200.0]).endswith("; a single sample, whose spread is not known.")
    assert sentence([800.0], [810.0]) == "No pruned arm was faster than the full prefix under the same conditions."
    mixed = gpu_card(result("eager", "full", [800.0]), result("compiled", "target:0.2", [140.0]))
    table = table_of(mixed)
    ratios = dict(zip(table.frame["arm"], table.frame["speedup"], strict=True))
    assert ratios["full"] == 1.0
    assert pd.isna(ratios["target:0.2"])
    assert table.sentence.startswith("No full prefix was timed under the conditions of a pruned one")
    # Preprocessing does not depend on the arm: where it differs, the difference is not what pruning saved.
    content = json.loads(cards["ttft"].read_text(encoding="utf-8"))
    full, pruned = content["results"][0]["points"]
    for point, early, total in ((full, 5.0, 9.0), (pruned, 3.0, 6.0)):
        point["samples_ms"] |= {"preprocess": [early] * 3, "vision": [1.0] * 3, "total": [total] * 3}
    assert table_of(CostCard(content["results"][:1])).sentence.endswith(
        " Of the 3.00 ms saved, 2.00 lie before selection (preprocess, vision)."
    )


def test_memory_is_shown_where_counted_and_a_batch_that_did_not_fit_says_so(cards: Cards, tmp_path: Path) -> None:
    card = gpu_card(result("eager", "full", [800.0], 4 * GIB), result("eager", "target:0.2", [200.0]))
    text = cost.cost_table(card, "realised_prefill", cost.card_frame(card)).markdown()
    assert missing(text, "| GiB | Memory saved |", "| 4.00 | 0.0% |", "| 1.00 | 75.0% |") == []
    here = CostCard.read(cards["prefill"])
    assert "Memory saved" not in [column.title for column in cost.cost_table(here, "x", cost.card_frame(here)).columns]
    burst = result("eager", "full", [1.0], batch=64)
    burst["points"][0] |= {"samples_ms": {}, "extra": {"out_of_memory": True}, "memory": None, "flops": {}}
    both = gpu_card(result("eager", "full", [800.0]), burst)
    assert cost.cost_table(both, "x", cost.card_frame(both)).markdown().splitlines()[-1].endswith("| out of memory |")
    gpu_card(burst).write(tmp_path / "burst.json")
    assert "out of memory" in build_report([], tmp_path, costs=[tmp_path / "burst.json"]).read_text(encoding="utf-8")


def test_cards_alone_make_a_report_without_torch_and_each_has_tables_of_its_own(cards: Cards, tmp_path: Path) -> None:
    code = (
        "import sys; from sightline.report.build import build_report;"
        f"build_report([], {str(tmp_path)!r}, costs=[{str(cards['ttft'])!r}]); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = Page(tmp_path / "report.html").outline
    assert {"realised-cost", "overview"} & set(found.ids) == {"realised-cost"}
    assert all(reference[1:] in found.ids for reference in found.references)
    assert "Realised cost of tiny-llava" in found.text
    build_report([], tmp_path / "two", costs=[cards["ttft"], cards["ttft"]])
    names = ("realised_ttft", "realised_ttft_2", "realised_ttft_total_speedup", "realised_ttft_2_total_speedup")
    assert {path.name for path in (tmp_path / "two/tables").glob("*.csv")} == {f"{name}.csv" for name in names}


def test_the_command_takes_cards_and_refuses_to_report_nothing(cards: Cards, tmp_path: Path, refused: Refused) -> None:
    asked: tuple[tuple[dict[str, Any], str], ...] = (
        ({}, "name a run, a card (--cost), or both"),
        ({"references": ["random:0.3"]}, "--reference is about arms and probes of a run; name a run folder too"),
        ({"only": "list.txt"}, "--only is about arms and probes of a run"),
        ({"threshold": 0.0}, "--threshold is about arms and probes of a run"),
    )
    for given, about in asked:
        refused(about, build_report, [], tmp_path, costs=[cards["ttft"]] if given else [], **given)
    options = [word for path in cards.values() for word in ("--cost", path)]
    sightline("report", *options, "--out", tmp_path / "out")
    text = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert text.count('<div class="part">') == 3
    refused("name a run, a card (--cost), or both", sightline, "report", "--out", tmp_path / "none")


def spoiled(change: Callable[[dict[str, Any]], object]) -> Callable[[str], str]:
    def edit(text: str) -> str:
        content = json.loads(text)
        change(content)
        return json.dumps(content)

    return edit


def total_of(samples: list[Any]) -> Callable[[str], str]:
    return spoiled(lambda card: card["results"][0]["points"][0]["samples_ms"].update(total=samples))


BAD: tuple[tuple[Callable[[str], str], str], ...] = (
    (lambda text: "[]", "is not a cost card of format 1"),
    (lambda text: '{"arms": 3}', "is not a cost card of format 1"),
    (lambda text: text[:100], "cannot read cost card"),
    (spoiled(lambda card: card.update(format=2)), "is not a cost card of format 1"),
    (spoiled(lambda card: card.pop("results")), r"is not a whole cost card \(no field 'results'\)"),
    (spoiled(lambda card: card.update(results=[])), "at least one measurement"),
    (spoiled(lambda card: card.update(results="ttft")), "is not a whole cost card"),
    (spoiled(lambda card: card["results"][0].pop("points")), r"is not a whole cost card \(no field 'points'\)"),
    (total_of(["fast"]), "is not a whole cost card"),
    (total_of([float("nan")]), "NaN is not a time"),
    (total_of([0.0]), "is not a whole cost card"),
    (spoiled(lambda card: card["results"][1]["request"].update(kind="prefill")), "mixes kinds"),
    (spoiled(lambda card: card["results"][0].update(inside_timer=5)), r"bad\.json"),
    (lambda text: "[" * 3000, r"bad\.json"),
)  # fmt: skip


def test_bad_cards_stop_the_report_before_it_begins(run: Path, cards: Cards, tmp_path: Path) -> None:
    whole = cards["ttft"].read_text(encoding="utf-8")
    (tmp_path / "picture.json").write_bytes(b"\x89PNG\xff")
    bad = [
        (tmp_path / "nowhere.json", r"cannot read cost card .*nowhere\.json: No such file or directory"),
        (run, "cannot read cost card .*Is a directory"),
        (tmp_path / "picture.json", r"cannot read cost card .*picture\.json"),
    ]
    for number, (edit, message) in enumerate(BAD):
        file = tmp_path / str(number) / "bad.json"
        file.parent.mkdir()
        file.write_text(edit(whole), encoding="utf-8")
        bad.append((file, message))
    for card, message in bad:
        with pytest.raises(SightlineError, match=message) as caught:
            build_report([run], tmp_path / "out", costs=[cards["prefill"], card], draws=DRAWS)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
