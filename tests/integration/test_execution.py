"""How an audit runs is recorded, may not change under one folder, and changes no decision; memory that runs out."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from benchmarks.first_pass import draw_pages
from torch._dynamo.testing import CompileCounter

from sightline import Selection, SightlineError, audit, load_run
from sightline.answering.answerer import Answerer
from sightline.answering.materialise import SelectStep
from sightline.auditing.launchers.here import Inline
from sightline.backbones import Backbone
from sightline.core.row import TIME_COLUMNS
from sightline.selectors.grid import Grid
from sightline.store.folder import RunFolder
from tests.conftest import DATA, Clock
from tests.scarce import Scarce
from tests.warm_python import Popen

FAST = {"execution": "graph", "batch_images": 2}


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
    facts = RunFolder(tmp_path / "fast").manifest()
    assert (facts["execution"], facts["batch_images"]) == ("graph", 2)
    assert facts["setup_ms"] > 0
    assert "setup_ms" not in RunFolder(tmp_path / "plain").manifest()


class Queueing(SelectStep):
    """The select step as it works on a GPU: alike probes in one call, values checked when they are read."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.queues = True


@pytest.mark.parametrize("step", [SelectStep, Queueing])
@pytest.mark.parametrize(("anchors", "message"), [
    (lambda k: torch.arange(k - 1), "selector grid returned"),
    (lambda k: torch.zeros(k, dtype=torch.long), "selector grid chose a token twice"),
])  # fmt: skip
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
    assert RunFolder(settings.out).manifest()["setup_ms"] == 2000
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
    assert RunFolder(settings.out).manifest()["setup_ms"] == 2000
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


ARMS = ["full", "target:0.3", "divprune:0.3"]


@pytest.fixture
def audited(config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """``audited("llava", limit)`` -> (rows, memory) of an audit that may use ``limit`` bytes beside its weights."""
    work = Inline.run

    def make(
        model: str, limit: float = float("inf"), execution: str = "eager", arms: list[str] = ARMS
    ) -> tuple[pd.DataFrame, Scarce]:
        memory = Scarce(limit)

        def capped(*given: Any) -> None:
            with memory:
                work(*given)

        monkeypatch.setattr(Inline, "run", capped)
        settings = {"arms": arms, "limit": 4, "shard_images": 4, "batch_images": 4, "batch_tokens": 1_000_000}
        out = tmp_path / f"{model}-{execution}-{limit}-{len(arms)}"
        return audit(config(model, **settings, execution=execution, out=out)).frame(), memory

    return make


@pytest.mark.parametrize(
    ("model", "execution", "part"), [("llava", "eager", 0.7), ("llava", "graph", 0.7), ("qwen3vl", "eager", 0.9)]
)
def test_smaller_batches_give_the_same_rows(audited: Any, model: str, execution: str, part: float) -> None:
    plenty, memory = audited(model, execution=execution)
    assert memory.refused == 0
    scarce, less = audited(model, memory.peak * part, execution)
    assert less.refused > 0
    assert less.peak < memory.peak
    for column in ("probe_id", "arm", "predicted", "kept_mask"):
        assert scarce[column].tolist() == plenty[column].tolist()
    assert np.allclose(scarce["margin"], plenty["margin"], atol=1e-4)
    assert not plenty["conditions"].str.contains("halved").any()
    assert scarce["conditions"].str.contains("halved").any(), "rows say that their batch was another"


def test_the_limit_is_met_once_far_too_little_is_one_clear_line_and_nothing_outlives_the_audit(audited: Any) -> None:
    _, memory = audited("llava")
    assert memory.live == 0
    _, few = audited("llava", memory.peak * 0.7)
    _, many = audited("llava", memory.peak * 0.7, arms=[*ARMS, "grid:0.9", "random:0.9", "center:0.9"])
    assert many.refused == few.refused > 0, "not with every arm"
    for part in (0.3, 0.1, 0.01):
        with pytest.raises(
            SightlineError, match=r"^out of memory on [^\n]*; use a smaller [^\n]*--shard-images[^\n]*$"
        ):
            audited("llava", memory.peak * part)


def test_rows_written_before_memory_ran_out_are_kept(
    audited: Any, config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, work, write = Scarce(), Inline.run, RunFolder.write_rows

    def capped(*given: Any) -> None:
        with memory:
            work(*given)

    def writing(self: RunFolder, *given: Any) -> None:
        write(self, *given)
        memory.limit = 0.0

    settings = config("llava", arms=ARMS, limit=4, shard_images=2)
    with monkeypatch.context() as patched:
        patched.setattr(Inline, "run", capped)
        patched.setattr(RunFolder, "write_rows", writing)
        with pytest.raises(SightlineError, match="out of memory"):
            audit(settings)
    kept = {path: path.read_bytes() for path in (settings.out / "rows").rglob("*.parquet")}
    assert kept
    resumed = audit(settings).frame()
    assert all(path.read_bytes() == content for path, content in kept.items())
    assert resumed["predicted"].tolist() == audited("llava")[0]["predicted"].tolist()


# What an audit compiles does not grow with the sizes of its pages, and is kept for the next process.


def on_pages(config: Any, model: Path, folder: Path, count: int, **settings: Any) -> Any:
    """Over pages of as many sizes; a second page of one of them, so that one batch holds two alike."""
    if not folder.exists():
        draw_pages(folder, count, count + 1)
    made = config("llava", arms=["full", "grid:0.3", "divprune:0.3"], **settings)
    places = {"model": str(model), "probes": folder / "probes.jsonl", "images": folder, "image_prefix": ""}
    return made.model_copy(update=places)


@pytest.mark.parametrize(("model", "most"), [("qwen3vl", 2), ("llava", 3), ("qwen2_5_vl", 2), ("mistral3", 2)])
def test_an_audit_of_many_sizes_compiles_no_more_than_one_of_few(
    config: Any, model: str, most: int, zoo: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The language layers once; a tower once, or for one sequence and for several."""
    compile_function, found = torch.compile, {}
    folder = DATA / "tiny" / model if model in ("qwen3vl", "llava") else zoo(model)
    for sizes in (3, 12):
        torch._dynamo.reset()
        counter: Any = CompileCounter()
        monkeypatch.setattr(
            "torch.compile",
            lambda *given, counter=counter, **how: compile_function(*given, **{**how, "backend": counter}),
        )
        fast = {"execution": "compiled", "batch_images": 2, "out": tmp_path / f"fast{sizes}"}
        rows = audit(on_pages(config, folder, tmp_path / str(sizes), sizes, **fast)).frame()
        found[sizes] = counter.frame_count
    plain = on_pages(config, folder, tmp_path / "12", 12, batch_images=2, out=tmp_path / "plain")
    expected = audit(plain).frame()
    assert found == {3: most, 12: most}
    assert rows["kept_mask"].tolist() == expected["kept_mask"].tolist()
    assert np.allclose(rows["margin"], expected["margin"], atol=1e-4)


COMPILED_RUN = """
import json, sys
from sightline import audit
from sightline.auditing.config import AuditConfig
audit(AuditConfig(**json.load(sys.stdin)))
"""


def test_the_next_process_finds_all_on_disk_and_makes_the_same_rows(config: Any, tmp_path: Path) -> None:
    """The first two compile at once, into one folder that is empty."""
    environment = {**os.environ, "SIGHTLINE_CACHE": str(tmp_path / "cache")}
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        environment.pop(name, None)

    def begin(name: str) -> Popen:
        how = {"execution": "compiled", "out": tmp_path / name}
        settings = on_pages(config, DATA / "tiny" / "llava", tmp_path / "pages", 3, **how)
        process = Popen([sys.executable, "-c", COMPILED_RUN], env=environment, text=True, stdin=PIPE, stderr=PIPE)
        assert process.stdin is not None
        process.stdin.write(settings.model_dump_json())
        process.stdin.close()
        return process

    def said(process: Popen) -> str:
        assert process.stderr is not None
        words = process.stderr.read()
        assert process.wait() == 0, words
        return words

    for process in [begin("one"), begin("two")]:
        assert "compiled graphs: 2, of which" in said(process)
    assert "compiled graphs: 2, of which 2 were found on disk" in said(begin("three"))
    tables = (load_run(tmp_path / name).rows.drop_columns(list(TIME_COLUMNS)) for name in ("one", "two", "three"))
    first, *others = tables
    assert all(rows.equals(first) for rows in others)
