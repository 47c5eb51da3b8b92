"""The model of what an audit costs, and the simulation of its workers: known answers, and what holds for any seed."""

import json
import math
from dataclasses import replace

import pytest
from benchmarks.scale_model import CARDS, HOUR, ORDINARY, Audit, GpuParts, Model, parts_table, suffering
from benchmarks.scale_parts import HostParts
from benchmarks.simulated_workers import Cluster, Outcome, Simulation, Work, simulated

from tests.conftest import REPOSITORY

SMALL = Audit(probes=20_000, images=10_000)


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(GpuParts.read(), HostParts.read())


def test_parts_add_up_to_the_sweep_and_work_is_all_of_an_audit(model: Model) -> None:
    (point,) = json.loads((CARDS / "sweep-qwen.json").read_text(encoding="utf-8"))["results"][0]["points"]
    rows = point["extra"]["rows"]
    seconds = 100 * model.gpu.image + rows * model.gpu.row
    assert rows / seconds == pytest.approx(point["extra"]["engine_rows_per_s"])
    work = list(model.work(SMALL))
    assert len(work) == SMALL.shards * 2
    assert sum(task.pieces for task in work) == SMALL.files
    device = SMALL.rows * model.gpu.row + 2 * SMALL.images * model.gpu.image
    assert device < sum(task.seconds for task in work) < 1.05 * device, "what the host adds is little"
    divided = replace(SMALL, folders=4)
    assert len(list(model.work(divided))) == pytest.approx(SMALL.shards * 2 / 4, abs=2)
    assert model.planning(divided) == pytest.approx(model.planning(SMALL) / 4)


def test_small_arms_take_their_launches_and_crowds_share_the_store(model: Model) -> None:
    tiny = model.task(replace(SMALL, shard_images=1), 1)
    assert tiny.piece > model.gpu.least
    assert model.task(SMALL, 1).piece > 64 * 2 * model.gpu.row
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


MINUTE = Work(encode=10.0, pieces=5, piece=10.0)
"""A task of sixty seconds."""
TWO = [MINUTE, replace(MINUTE, shard=1)]
HARSH = Cluster(workers=7, start=20.0, spread=0.3, lifetime=900.0, restart=15.0, timeout=60.0)


def parts(outcome: Outcome) -> list[float]:
    return [outcome.useful, outcome.lost, outcome.starting, outcome.waiting]


def test_equal_workers_that_never_die_share_equal_tasks() -> None:
    for workers, count, wall in ((1, 6, 360), (2, 6, 180), (4, 6, 120), (6, 6, 60), (9, 6, 60)):
        outcome = simulated(Cluster(workers, ahead=0), [MINUTE] * count)
        assert outcome.wall == wall
        assert parts(outcome) == [count * 60, 0, 0, workers * wall - count * 60]
        assert outcome.deaths == 0


def test_starting_order_and_claims_ahead_decide_when_all_is_done() -> None:
    outcome = simulated(Cluster(2, start=30.0, first_start=100.0, ahead=0), [MINUTE] * 2)
    assert outcome.wall == 160
    assert outcome.starting == 200
    # Three short tasks and one long one on two workers: whoever begins with the long one is done with it.
    tasks = [Work(0, pieces, 10, shard) for shard, pieces in enumerate((1, 1, 1, 3))]
    assert simulated(Cluster(2, ahead=0), tasks).wall == 30
    assert simulated(Cluster(2, pulls=False), tasks).wall == 40
    tasks = [Work(0, 1, 10)] * 2
    assert simulated(Cluster(2, ahead=0), tasks).wall == 10
    assert simulated(Cluster(2, ahead=1), tasks).wall == 20


def test_finished_arms_outlive_their_worker() -> None:
    for seconds, left in ((0, 5), (9.9, 5), (19.9, 5), (20.1, 4), (35, 3), (59, 1), (60, 1)):
        rest = MINUTE.after(seconds)
        assert rest.pieces == left
        assert rest.encode == MINUTE.encode, "whoever takes over encodes again"


class OneDeath(Simulation):
    """The first worker dies after 35 seconds, nobody else ever does."""

    def _start(self, now: float, number: int, seconds: float) -> None:
        super()._start(now, number, seconds)
        if number == 0 and self._workers[0].life == 1:
            self._at(35.0, "died", 0)


def test_what_a_dead_worker_held_waits_for_its_lease_or_for_its_own_worker() -> None:
    """At 35 s it had two arms (10 s of encoding, 2 x 10 s); the other is free at 60 s and takes over at 35 + 40 s."""
    outcome = OneDeath(Cluster(2, ahead=0, restart=1000.0, timeout=40.0), TWO).outcome()
    assert outcome.wall == 75 + 10 + 3 * 10
    assert outcome.deaths == 1
    assert outcome.lost == 15, "10 s of encoding and half an arm"
    assert outcome.useful == 20 + 60 + 40
    assert outcome.starting == outcome.wall - 35
    outcome = OneDeath(Cluster(2, restart=100.0, pulls=False), TWO).outcome()
    assert outcome.wall == 135 + 10 + 3 * 10


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("pulls", [True, False])
def test_no_time_and_no_work_gets_lost_on_paper(seed: int, pulls: bool) -> None:
    work = [replace(MINUTE, pieces=1 + number % 9, shard=number) for number in range(300)]
    cluster = replace(HARSH, pulls=pulls)
    outcome = simulated(cluster, work, seed)
    assert sum(parts(outcome)) == pytest.approx(outcome.total)
    assert min(parts(outcome)) >= 0
    assert outcome.deaths > 0
    assert outcome.lost > 0
    assert outcome == simulated(cluster, work, seed), "a seed says all"
    fastest = min(worker.slowness for worker in Simulation(cluster, [], seed)._workers)
    assert outcome.useful >= fastest * sum(task.seconds - task.encode for task in work)


def test_pulling_beats_a_static_split_when_workers_differ_and_a_spread_costs_waiting_alone() -> None:
    work = [replace(MINUTE, shard=number) for number in range(700)]
    pulled, split = (simulated(replace(HARSH, pulls=pulls), work, seed=1) for pulls in (True, False))
    assert pulled.wall < 0.9 * split.wall
    assert simulated(replace(HARSH, lifetime=math.inf), [MINUTE] * 50).deaths == 0
    # So that whatever a spread costs is waiting.
    workers = Simulation(Cluster(20_000, spread=0.3), [])._workers
    assert sum(1 / worker.slowness for worker in workers) / len(workers) == pytest.approx(1, abs=0.01)
