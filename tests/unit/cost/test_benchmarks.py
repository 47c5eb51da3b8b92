"""A benchmark says everything about itself: nothing else lists it, and reading it needs no torch."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sightline.core.flags import options_of
from sightline.cost.benchmarks.base import BENCHMARKS
from sightline.cost.card import CostCard
from sightline.cost.measuring_process import measure_here
from sightline.cost.request import Request
from sightline.cost.selection import Inputs, Timing, devices, growth, time_method, timed_call, timed_methods
from sightline.selectors import SELECTORS
from tests.command_line import sightline
from tests.conftest import REPOSITORY
from tests.heads import HEADED
from tests.refusals import Refused
from tests.unit.cost.subjects import result


def test_what_benchmarks_say_fits_together_and_the_cost_page_names_their_stages() -> None:
    page = (REPOSITORY / "docs" / "cost.md").read_text(encoding="utf-8")
    table = page[page.index("## What is inside the timer") : page.index("## Executions")]
    for name in BENCHMARKS:
        benchmark = BENCHMARKS.get(name)()
        assert benchmark.name == name
        assert benchmark.main in benchmark.inside
        assert benchmark.counted <= set(benchmark.inside)
        assert set(benchmark.before_selection) <= set(benchmark.inside)
        assert set(benchmark.usual_executions) <= set(benchmark.executions)
        assert benchmark.description.endswith(".")
        assert all(str(field.description).endswith(".") for field in options_of(benchmark.request).values())
        for stage in benchmark.inside:
            assert re.search(rf"`{stage}(_\d+)?`", table), stage


def test_a_plain_field_hides_an_option_and_a_new_default_keeps_its_words() -> None:
    asked = {name: options_of(BENCHMARKS.get(name).request) for name in BENCHMARKS}
    assert "repeats" not in asked["sweep"]
    first, second = asked["ttft"]["repeats"], asked["prefill"]["repeats"]
    assert (first.description, first.metadata) == (second.description, second.metadata)
    assert (first.default, second.default) == (20, 10)


def test_nothing_else_names_a_benchmark() -> None:
    source = REPOSITORY / "src" / "sightline"
    files = [file for folder in ("cost", "commands", "report") for file in (source / folder).glob("*.py")]
    assert not {file.name for file in files if re.search('"(sweep|ttft)"', file.read_text(encoding="utf-8"))}


def test_help_needs_no_torch() -> None:
    asked = [[], ["bench"], *(["bench", name] for name in BENCHMARKS)]
    script = (
        "import sys; sys.modules['torch'] = None; from sightline.cli import app\n"
        f"for words in {asked}: app([*words, '--help'], standalone_mode=False)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Usage") == len(asked)


def test_a_mistyped_benchmark_is_suggested() -> None:
    assert "Did you mean 'prefill'?" in sightline("bench", "prefil", code=2).stderr


def test_a_benchmark_wants_its_own_request_and_names_one_that_is_not_here(tmp_path: Path, refused: Refused) -> None:
    with pytest.raises(TypeError, match="prefill is asked for with a PrefillRequest"):
        measure_here(Request("prefill", config="tiny-llava"))
    foreign = result("eager", "full", [800.0])
    foreign["request"]["kind"] = "elsewhere"
    (tmp_path / "card.json").write_text(json.dumps({"format": 1, "results": [foreign]}), encoding="utf-8")
    refused("measured by 'elsewhere', a benchmark that is not installed here", CostCard.read, tmp_path / "card.json")


# Timing of selectors: every sample kept, sizes and devices refused clearly, growth fitted.


def test_what_chooses_is_timed_beside_official_times_of_that_very_code() -> None:
    """A variant that inherits its rule does not inherit the time of somebody else's code."""
    measured = {name: kind.official_ms for name, kind in SELECTORS.items() if kind.official_ms is not None}
    assert len(measured) == 30
    assert (measured["target"], measured["spatial_aware"], measured["scope"]) == (23.2, 67.0, 281.0)
    assert not {"prompt", "prumerge_plus", "anchorprune_qwen", "rel_hybrid"} & set(measured)
    assert set(SELECTORS) - set(timed_methods()) == {"full", "masks", "resize", *HEADED}


def test_every_method_can_be_timed() -> None:
    for name in timed_methods():
        anchors = timed_call(name, 36, 15, 2, torch.device("cpu"), seed=0)()
        assert len(anchors) == 15 or (getattr(SELECTORS.get(name), "varies", False) and 0 < len(anchors) < 15), name
        assert len(set(anchors.tolist())) == len(anchors), name


def test_what_cannot_be_timed_is_named(refused: Refused) -> None:
    refused("nothing to time", timed_methods, ["full"])
    refused("did you mean 'scope'", timed_methods, ["scop"])
    refused("unknown device", devices, "gpu")


def test_a_timing_keeps_its_samples_and_growth_is_the_exponent() -> None:
    measured = time_method("fastervlm", 576, 1, torch.device("cpu"), repeats=3)
    assert len(measured.samples) == 3
    assert measured.k == 231
    assert measured.official_ms == 0.1
    record = json.loads(json.dumps(measured.record()))
    assert record["median_ms"] == sorted(record["samples"])[1]
    assert record["p10_ms"] <= record["median_ms"] <= record["p90_ms"]
    timings = [Timing("x", n, 1, 1, "cpu", (3e-6 * n**2,), None, None) for n in (100, 200, 400)]
    assert growth(timings) == pytest.approx(2.0)
    assert growth(timings[:1]) is None


def test_inputs_are_the_same_for_every_device_and_differ_by_seed() -> None:
    needs = frozenset({"vision.key@-1"})
    one, again, other = (Inputs(30, torch.device("cpu"), seed).view(needs) for seed in (1, 1, 2))
    assert torch.equal(one.tokens, again.tokens)
    assert not torch.equal(one.tokens, other.tokens)
    assert one.layout == ((5, 6),)
    assert one.cells[-1].tolist() == pytest.approx([5 / 6, 4 / 5, 1.0, 1.0])


def test_the_command_prints_and_writes_everything(tmp_path: Path) -> None:
    asked = "select --method fastv --method random --n 16,64 --batch 1,2 --device cpu --repeats 2"
    files = ["--csv", tmp_path / "t.csv", "--json", tmp_path / "t.json"]
    assert "p = " in sightline("bench", *asked.split(), *files).output
    records = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    assert len(records) == 8
    assert all(len(record["samples"]) == 2 for record in records)
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["method"] for row in rows] == ["fastv"] * 4 + ["random"] * 4
