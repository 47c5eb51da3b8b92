"""The measured cards that the documentation quotes: readable, on a GPU, and quoted as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sightline.cost.card import CostCard

ROOT = Path(__file__).parents[3]
CARDS = sorted((ROOT / "benchmarks" / "cards" / "h200").glob("*.json"))
README_ROWS = {
    "Qwen3-VL-8B": [("ttft-qwen", "target:0.2")],
    "LLaVA-1.5-7B": [("ttft-llava", "target:0.4"), ("ttft-llava", "scope:0.4")],
    "InternVL3.5-8B": [("ttft-internvl", "target:0.5")],
}


def record(card: str, execution: str, arm: str) -> dict[str, Any]:
    found = CostCard.read(ROOT / "benchmarks" / "cards" / "h200" / f"{card}.json").records()
    return next(line for line in found if (line["execution"], line["arm"]) == (execution, arm))


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.stem)
def test_a_published_card_was_measured_on_a_gpu(path: Path) -> None:
    card = CostCard.read(path)
    assert {result["machine"]["device"] for result in card.results} == {"cuda"}
    assert all(result["ceiling_tflops"] > 700 for result in card.results)
    assert all(line["out_of_memory"] or line["ms"] > 0 for line in card.records())


@pytest.mark.parametrize(("model", "card", "arm"), [(m, *row) for m, rows in README_ROWS.items() for row in rows])
def test_the_readme_quotes_it(model: str, card: str, arm: str) -> None:
    full, pruned = record(card, "graph", "full"), record(card, "graph", arm)
    line = f"| {model} | `{arm}` | {full['ms']:.3g} ms | {pruned['ms']:.3g} ms | {full['ms'] / pruned['ms']:.2f} |"
    assert line in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.stem)
def test_the_cost_page_quotes_every_ratio(path: Path) -> None:
    """But not those of a batch that grows: one sample each."""
    page = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")
    for line in CostCard.read(path).records():
        for ratio in ("speedup", "than_stock", "throughput_ratio", "ratio_to_model_alone"):
            if ratio in line and line["batching"] == "fixed" and (line["execution"] != "eager" or ratio == "speedup"):
                assert f"{line[ratio]:.2f}" in page, (path.stem, line["execution"], line["arm"], ratio)


def test_the_cost_page_says_where_memory_ends() -> None:
    page = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")
    lines = CostCard.read(ROOT / "benchmarks" / "cards" / "h200" / "prefill-max.json").records()
    (failed,) = [line for line in lines if line["out_of_memory"]]
    assert (failed["arm"], failed["batch"]) == ("full", 2048)
    for arm in ("full", "target:0.2"):
        largest = max((line for line in lines if line["arm"] == arm and "ms" in line), key=lambda line: line["batch"])
        assert f"{largest['batch']:,} prefixes ({largest['incremental_gib']:.0f} GiB)" in page
