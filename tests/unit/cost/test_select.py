"""Timing of selectors: every sample kept, sizes and devices refused clearly, growth fitted."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from sightline.commands.bench import app
from sightline.cost.selection import Inputs, Timing, chooser, devices, growth, time_method, timed_methods
from sightline.errors import SightlineError
from sightline.selectors import SELECTORS
from tests.warm_python import run_python


def timing(n: int, *samples: float) -> Timing:
    return Timing("x", n, 1, 1, "cpu", samples, None, None)


def test_official_times_belong_to_the_methods_that_were_measured() -> None:
    """A variant that inherits its rule does not inherit the time of somebody else's code."""
    measured = {name: kind.official_ms for name, kind in SELECTORS.items() if kind.official_ms is not None}
    assert len(measured) == 30
    assert (measured["target"], measured["spatial_aware"], measured["scope"]) == (23.2, 67.0, 281.0)
    assert not {"prompt", "prumerge_plus", "anchorprune_qwen", "rel_hybrid"} & set(measured)


def test_what_chooses_nothing_is_not_timed() -> None:
    assert set(SELECTORS) - set(timed_methods()) == {"full", "masks", "resize"}


@pytest.mark.parametrize("name", timed_methods())
def test_every_method_can_be_timed(name: str) -> None:
    anchors = chooser(name, 36, 15, 2, torch.device("cpu"), seed=0)()
    assert len(anchors) == 15
    assert len(set(anchors.tolist())) == 15


def test_a_timing_keeps_its_samples() -> None:
    measured = time_method("fastervlm", 576, 1, torch.device("cpu"), repeats=3)
    assert len(measured.samples) == 3
    assert measured.k == 231
    assert measured.official_ms == 0.1
    record = json.loads(json.dumps(measured.record()))
    assert record["median_ms"] == sorted(record["samples"])[1]
    assert record["p10_ms"] <= record["median_ms"] <= record["p90_ms"]


def test_growth_is_the_exponent() -> None:
    assert growth([timing(n, 3e-6 * n**2) for n in (100, 200, 400)]) == pytest.approx(2.0)
    assert growth([timing(100, 1.0)]) is None


def test_inputs_are_the_same_for_every_device_and_differ_by_seed() -> None:
    needs = frozenset({"vision.key@-1"})
    one, again, other = (Inputs(30, torch.device("cpu"), seed).view(needs) for seed in (1, 1, 2))
    assert torch.equal(one.tokens, again.tokens)
    assert not torch.equal(one.tokens, other.tokens)
    assert one.layout == ((5, 6),)
    assert one.cells[-1].tolist() == pytest.approx([5 / 6, 4 / 5, 1.0, 1.0])


def test_the_command_prints_and_writes_everything(tmp_path: Path) -> None:
    arguments = [
        "select",
        "--method",
        "fastv",
        "--method",
        "random",
        "--n",
        "16,64",
        "--batch",
        "1,2",
        "--device",
        "cpu",
    ]
    files = ["--repeats", "2", "--csv", str(tmp_path / "t.csv"), "--json", str(tmp_path / "t.json")]
    result = CliRunner().invoke(app, [*arguments, *files])
    assert result.exit_code == 0, result.output
    assert "p = " in result.output
    records = json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))
    assert len(records) == 8
    assert all(len(record["samples"]) == 2 for record in records)
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["method"] for row in rows] == ["fastv"] * 4 + ["random"] * 4


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: timed_methods(["full"]), "nothing to time"),
        (lambda: timed_methods(["scop"]), "did you mean 'scope'"),
        (lambda: devices("gpu"), "unknown device"),
    ],
)
def test_mistakes_are_named(call: object, sentence: str) -> None:
    with pytest.raises(SightlineError, match=sentence):
        call()  # type: ignore[operator]


def test_timing_needs_neither_pydantic_nor_typer() -> None:
    """A bare machine with torch alone can measure."""
    script = (
        "import sys; sys.modules['pydantic'] = sys.modules['typer'] = sys.modules['transformers'] = None\n"
        "import sightline.cost.selection as bench; print(len(bench.timed_methods()))"
    )
    done = run_python(["-c", script])
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 30
