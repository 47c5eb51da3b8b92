"""How an audit runs is recorded, may not change under one folder, and changes no decision."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sightline.answering.answerer import Answerer
from sightline.answering.select_step import SelectStep
from sightline.auditing.audit import audit
from sightline.backbones.base import Backbone
from sightline.core.row import TIME_COLUMNS
from sightline.core.selection import Selection
from sightline.errors import SightlineError
from sightline.selectors.grid import Grid
from sightline.store import RunFolder
from tests.clock import Clock
from tests.integration.conftest import TEN_ARMS

FAST = {"execution": "graph", "batch_images": 2}


def manifest(folder: Path) -> dict[str, Any]:
    return RunFolder(folder).manifest()


@pytest.mark.parametrize("model", ["qwen3vl", "llava"])
def test_a_faster_way_of_running_decides_alike(
    config: Any, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = ["full", "target:0.3", "grid:0.3"]
    plain = audit(config(model, arms=arms, out=tmp_path / "plain")).frame()
    assert "set-up took" not in capsys.readouterr().err
    fast = audit(config(model, arms=arms, out=tmp_path / "fast", **FAST)).frame()
    assert "graph: set-up took" in capsys.readouterr().err
    assert plain["predicted"].tolist() == fast["predicted"].tolist()
    assert plain["kept_mask"].tolist() == fast["kept_mask"].tolist()
    assert np.allclose(plain["margin"], fast["margin"], atol=1e-4)
    facts = manifest(tmp_path / "fast")
    assert (facts["execution"], facts["batch_images"]) == ("graph", 2)
    assert facts["setup_ms"] > 0
    assert "setup_ms" not in manifest(tmp_path / "plain")


@pytest.mark.parametrize(("field", "value", "shown"), [("execution", "graph", "eager"), ("batch_images", 2, "1")])
def test_another_way_of_running_does_not_amend_a_run(config: Any, field: str, value: Any, shown: str) -> None:
    settings = {"arms": ["full"], "limit": 1}
    audit(config("llava", **settings))
    with pytest.raises(SightlineError, match=f"holds a run with {field} {shown}, this command has {value}"):
        audit(config("llava", **settings, **{field: value}))


def test_a_method_inside_the_model_needs_eager_execution(config: Any) -> None:
    with pytest.raises(SightlineError, match="fastv prunes between layers, which only eager execution does"):
        audit(config("llava", arms=["full", "fastv:0.5"], execution="compiled"))


class Queueing(SelectStep):
    """The select step as it works on a GPU: alike probes in one call, values checked when they are read."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.queues = True


@pytest.mark.parametrize(
    ("step", "anchors", "message"),
    [
        (SelectStep, lambda k: torch.arange(k - 1), "selector grid returned"),
        (SelectStep, lambda k: torch.zeros(k, dtype=torch.long), "selector grid chose a token twice"),
        (Queueing, lambda k: torch.arange(k - 1), "selector grid returned"),
        (Queueing, lambda k: torch.zeros(k, dtype=torch.long), "selector grid chose a token twice"),
    ],
)
def test_a_wrong_selector_costs_no_finished_arm_and_writes_no_row(
    config: Any, monkeypatch: pytest.MonkeyPatch, step: type, anchors: Callable[[int], torch.Tensor], message: str
) -> None:
    """The arm before it is still pending when the launch fails; its rows are written all the same."""
    settings = config("llava", arms=["full", "grid:0.3"], limit=1)
    monkeypatch.setattr(Grid, "select", lambda self, view, k: Selection(anchors(k)))
    monkeypatch.setattr("sightline.answering.answerer.SelectStep", step)
    with pytest.raises(SightlineError, match=message):
        audit(settings)
    folder = RunFolder(settings.out)
    done, missing = folder.manifest()["arms"]
    assert folder.has_rows(done, 0)
    assert not folder.has_rows(missing, 0)


def test_rows_of_a_queueing_device_are_the_same(config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"arms": TEN_ARMS, "interventions": ["deletion"], "matched_controls": True, "limit": 2}
    plain = audit(config("qwen3vl", **settings, out=tmp_path / "plain")).rows
    monkeypatch.setattr("sightline.answering.answerer.SelectStep", Queueing)
    queued = audit(config("qwen3vl", **settings, out=tmp_path / "queued")).rows
    assert queued.drop_columns(list(TIME_COLUMNS)).equals(plain.drop_columns(list(TIME_COLUMNS)))


def test_on_a_queueing_device_every_arm_is_rehearsed_once_off_the_clock(
    config: Any, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """The first run of an arm, where kernels are compiled, takes a second here; no row may show it."""
    launch = Answerer.launch
    probes: dict[str, list[int]] = {}

    def slow_at_first(self: Answerer, arm: Any, asked: Any, *rest: Any) -> Any:
        if arm.text not in probes:
            clock.advance(1.0)
        probes.setdefault(arm.text, []).append(len(asked))
        return launch(self, arm, asked, *rest)

    monkeypatch.setattr("sightline.answering.answerer.SelectStep", Queueing)
    monkeypatch.setattr(Answerer, "launch", slow_at_first)
    settings = config("llava", arms=["full", "grid:0.3"], limit=4, shard_images=2)
    rows = audit(settings).frame()
    assert probes == {"full": [2, 4, 4], "grid:0.3": [2, 4, 4]}
    assert manifest(settings.out)["setup_ms"] == 2000
    assert rows[list(TIME_COLUMNS)].max().max() == 0


def test_compiling_is_no_part_of_a_rows_time(config: Any, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """The first call of compiled code, layers and vision blocks alike, takes a second here, every later call none."""
    compile_function = torch.compile
    compiled: list[str] = []

    def slow_at_first(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        call = compile_function(function, **options)

        def timed(*given: Any) -> Any:
            if function.__name__ not in compiled:
                compiled.append(function.__name__)
                clock.advance(1.0)
            return call(*given)

        return timed

    monkeypatch.setattr("torch.compile", slow_at_first)
    settings = config("llava", arms=["full"], limit=2, execution="compiled")
    rows = audit(settings).frame()
    assert compiled == ["call_block", "call_layer"]
    assert manifest(settings.out)["setup_ms"] == 2000
    assert rows[list(TIME_COLUMNS)].max().max() == 0


def test_the_next_shard_is_encoded_before_the_last_arm_is_read(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    encode, launch, write = Backbone.encode, Answerer.launch, RunFolder.write_rows

    def encoding(self: Backbone, *given: Any) -> Any:
        events.append("encode")
        return encode(self, *given)

    def launching(*given: Any) -> Any:
        events.append("launch")
        collect = launch(*given)
        return lambda: (events.append("read"), collect())[1]

    def writing(self: RunFolder, *given: Any) -> None:
        events.append("write")
        write(self, *given)

    monkeypatch.setattr(Backbone, "encode", encoding)
    monkeypatch.setattr(Answerer, "launch", launching)
    monkeypatch.setattr(RunFolder, "write_rows", writing)
    audit(config("llava", arms=["full", "grid:0.3"], limit=2, shard_images=1))
    assert events == [
        *("encode", "launch", "launch", "read", "write"),  # the first shard; its second arm stays pending
        *("encode", "launch", "read", "write"),  # the second shard is on its way before that arm is read
        *("launch", "read", "write", "read", "write"),
    ]
