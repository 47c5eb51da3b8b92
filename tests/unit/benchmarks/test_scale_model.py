"""The model of what an audit costs: it says what its cards say, and the page says what it prints."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from benchmarks.scale_model import CARDS, HOUR, ORDINARY, Audit, GpuParts, Model, parts_table, suffering
from benchmarks.scale_parts import HostParts
from benchmarks.simulated_workers import simulated

from tests.conftest import REPOSITORY

SMALL = Audit(probes=20_000, images=10_000)


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(GpuParts.read(), HostParts.read())


def test_parts_add_up_to_the_sweep_that_they_were_taken_from(model: Model) -> None:
    (point,) = json.loads((CARDS / "sweep-qwen.json").read_text(encoding="utf-8"))["results"][0]["points"]
    rows = point["extra"]["rows"]
    seconds = 100 * model.gpu.image + rows * model.gpu.row
    assert rows / seconds == pytest.approx(point["extra"]["engine_rows_per_s"])


def test_the_work_of_an_audit_is_all_of_it(model: Model) -> None:
    work = list(model.work(SMALL))
    assert len(work) == SMALL.shards * 2
    assert sum(task.pieces for task in work) == SMALL.files
    device = SMALL.rows * model.gpu.row + 2 * SMALL.images * model.gpu.image
    seconds = sum(task.seconds for task in work)
    assert device < seconds < 1.05 * device, "what the host adds is little"


def test_folders_divide_tasks_and_planning(model: Model) -> None:
    divided = replace(SMALL, folders=4)
    assert len(list(model.work(divided))) == pytest.approx(SMALL.shards * 2 / 4, abs=2)
    assert model.planning(divided) == pytest.approx(model.planning(SMALL) / 4)


def test_an_arm_over_hardly_any_probes_takes_no_less_than_its_launches(model: Model) -> None:
    tiny = model.task(replace(SMALL, shard_images=1), 1)
    assert tiny.piece > model.gpu.least
    assert model.task(SMALL, 1).piece > 64 * 2 * model.gpu.row


def test_workers_that_start_together_share_the_store(model: Model) -> None:
    alone, crowd = model.cluster(1), model.cluster(1024)
    assert alone.first_start == alone.start
    assert crowd.first_start is not None
    assert crowd.first_start > 10 * alone.start
    assert crowd.start == alone.start, "one that is started again reads alone"


def test_more_gpus_take_less_time_and_never_less_work(model: Model) -> None:
    found = [simulated(suffering(model.cluster(gpus), ORDINARY), list(model.work(SMALL))) for gpus in (1, 2, 4, 8)]
    assert [outcome.wall for outcome in found] == sorted((outcome.wall for outcome in found), reverse=True)
    ideal = sum(task.seconds for task in model.work(SMALL))
    assert all(outcome.wall > ideal / outcome.workers * 0.8 for outcome in found)
    assert all(math.isfinite(outcome.wall / HOUR) for outcome in found)


def test_the_page_has_the_table_that_the_program_prints(model: Model) -> None:
    page = (REPOSITORY / "docs" / "scale.md").read_text(encoding="utf-8")
    assert parts_table(model, Audit(), 256) in page
