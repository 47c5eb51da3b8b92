"""``bench prefill|ttft|sweep`` on the command line."""

import json
from pathlib import Path

import pytest

from sightline.cost import measure as measuring
from sightline.cost.benchmarks.prefill import batch_sizes
from sightline.cost.card import CostCard
from sightline.cost.measuring_process import measure_here
from tests.command_line import sightline
from tests.refusals import Refused
from tests.warm_python import warm_children

TINY = "--shape tiny-llava --random-weights"


@warm_children()
def test_prefill_writes_a_card_and_prints_it(tmp_path: Path) -> None:
    out = tmp_path / "card.json"
    asked = f"{TINY} --device cpu --arm full --arm target:0.2 --batch 2 --execution eager --repeats 2 --warm-up 1"
    done = sightline("bench", "prefill", *asked.split(), "--share-process", "--out", out)
    assert "no GPU was used" in done.output
    assert done.output == out.with_suffix(".md").read_text(encoding="utf-8")
    (result,) = json.loads(out.read_text(encoding="utf-8"))["results"]
    assert [point["arm"] for point in result["points"]] == ["full", "target:0.2"]


def test_batch_sizes_may_grow() -> None:
    assert batch_sizes("1,32,max") == [{"batch": 1}, {"batch": 32}, {"batch": 1, "grow": True}]
    assert batch_sizes("max") == [{"batch": 1, "grow": True}]


REFUSED = {
    "prefill": "name what to measure",
    "prefill --shape tiny-llava": "add --random-weights",
    f"prefill {TINY} --batch 0": "--batch 0: give positive whole numbers",
    f"prefill {TINY} --batch many": "--batch many: give positive whole numbers",
    f"ttft {TINY} --image-size large": "write WIDTHxHEIGHT",
    f"ttft {TINY} --decode x": "--decode x: give positive",
    f"sweep {TINY} --arm tarxet:0.5": "unknown selector 'tarxet'",
    f"sweep {TINY} --execution grahp": "unknown execution 'grahp'; sweep runs",
    f"prefill {TINY} --execution stock": "prefill runs eager, compiled, graph",
    f"repeated {TINY}": "repeated timing is of real probes: give --probes FILE and --images DIR",
    f"repeated {TINY} --probes probes.jsonl": "real probes are a file and its images",
    f"repeated {TINY} --probes p.jsonl --images images --drop 100": "--drop 100 leaves none of 100 probes",
    f"repeated {TINY} --probes p.jsonl --images images --processes 2,3": "--processes 2,3: give one number",
}


def test_bad_options_are_one_line_before_any_process_starts(monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    monkeypatch.setattr(measuring, "measure", lambda _: pytest.fail("a process would have started"))
    for arguments, words in REFUSED.items():
        refused(words, sightline, "bench", *arguments.split())


def test_the_models_own_forward_is_measured_on_the_full_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "measure", measure_here)
    out = tmp_path / "card.json"
    asked = f"{TINY} --device cpu --arm target:0.2 --execution stock,graph --decode 1 --repeats 2 --warm-up 1"
    done = sightline("bench", "ttft", *asked.split(), "--profile", "--out", out)
    stock, pruned = CostCard.read(out).records()
    assert (stock["execution"], stock["arm"]) == ("stock", "full")
    assert pruned["than_stock"] == pytest.approx(stock["ms"] / pruned["ms"])
    assert "Where the time goes" in done.output
