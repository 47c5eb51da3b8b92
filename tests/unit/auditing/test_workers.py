"""Workers without processes: who gets which device, who is replaced, and when a driver gives up."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sightline import AuditConfig
from sightline.auditing.audit import Job, plan_audit
from sightline.auditing.launchers.local import local_worker_configs
from sightline.auditing.launchers.ray import _cluster, actor_configs
from sightline.auditing.workers import DEATHS, Ended, StartedWorker, run_workers
from sightline.store.leases import LEASES
from sightline.store.manifest import Failure
from tests.refusals import Refused


@pytest.fixture
def config(data: Path, tmp_path: Path) -> AuditConfig:
    return AuditConfig(
        model=str(data / "tiny" / "llava"),
        probes=data / "golden_e2e" / "inputs" / "probes_dev.jsonl",
        images=data / "mini_textocr",
        image_prefix="mini_textocr",
        out=tmp_path / "run",
        arms=["full"],
        limit=1,
        launcher="local",
    )


@pytest.fixture
def job(config: AuditConfig, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr("sightline.auditing.workers.PAUSE", 0.0)
    return plan_audit(config)


class Played(StartedWorker):
    """A worker that ends as it is told."""

    def __init__(self, end: Ended | BaseException | None, log: list[str]) -> None:
        self._end, self._log = end, log
        log.append("start")

    def ended(self) -> Ended | None:
        if isinstance(self._end, BaseException):
            raise self._end
        return self._end

    def stop(self) -> None:
        self._log.append("stop")

    def kill(self) -> None:
        self._log.append("kill")


def playing(log: list[str], *ends: Ended | BaseException | None) -> Callable[[], StartedWorker]:
    """Workers of one place, one after the other."""
    left = iter(ends)
    return lambda: Played(next(left), log)


DIED, DONE = Ended(how="killed by signal 9"), Ended(done=True)


def test_whoever_dies_is_replaced_until_all_died_too_often_while_nothing_moved(job: Job, refused: Refused) -> None:
    log: list[str] = []
    run_workers(job, [playing(log, DIED, DIED, DONE)])
    assert log == ["start"] * 3 + ["stop", "kill"]
    assert not (job.folder.path / LEASES).exists()
    log.clear()
    refused("every worker died, the first like this", run_workers, job, [playing(log, *[DIED] * 10)])
    assert log.count("start") == DEATHS

    def noting() -> StartedWorker:
        """A worker that writes a note before it dies, so that sooner or later all is set aside."""
        job.folder.notes.add_failure(Failure("00000", ("full",), "lost", lost=True))
        return starts()

    log.clear()
    starts = playing(log, *[DIED] * (DEATHS + 2), DONE)
    run_workers(job, [noting])
    assert log.count("start") == DEATHS + 3


def test_an_error_for_the_user_is_passed_on_unless_others_go_on(
    job: Job, capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    workers = [playing([], Ended(error="the model has no eyes")), playing([], DIED, DIED, DIED)]
    refused("the model has no eyes", run_workers, job, workers)
    run_workers(job, [playing([], Ended(error="out of paper")), playing([], DONE)])
    assert "note: a worker ended early: out of paper" in capsys.readouterr().err


def test_a_driver_that_is_done_or_stopped_ends_its_workers(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sightline.auditing.workers.LAST_WORDS", 0.0)
    log: list[str] = []
    run_workers(job, [playing(log, DONE), playing(log, None)])
    assert log.count("kill") == 2, "who has not begun when all is done is not waited for"
    log.clear()
    with pytest.raises(KeyboardInterrupt):
        run_workers(job, [playing(log, None), playing(log, KeyboardInterrupt())])
    assert log == ["start", "start", "stop", "stop", "kill", "kill"]
    assert not (job.folder.path / LEASES).exists()


def test_every_gpu_has_its_worker_and_cores_are_shared_out_by_threads(
    config: AuditConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr("sightline.auditing.launchers.local.usable_cores", lambda: 8)

    def crew(recorded: dict[str, Any], **changes: Any) -> list[tuple[str, int | None, str]]:
        found = local_worker_configs(config.model_copy(update=changes), recorded)
        return [(one.device, one.threads, one.launcher) for one in found]

    gpus = [("cuda:0", None, "queue"), ("cuda:1", None, "queue")]
    assert crew({}) == gpus
    assert crew({}, workers=3) == [*gpus, gpus[0]]
    assert crew({}, device="cuda:1") == gpus[1:]
    assert crew({}, device="cpu", threads=2) == [("cpu", 2, "queue")] * 4
    assert crew({"threads": 4}, device="cpu", workers=3) == [("cpu", 4, "queue")] * 3
    with_gpus = actor_configs(config, {}, {"CPU": 64.0, "GPU": 2.0})
    assert [one.device for one in with_gpus] == ["cuda"] * 2
    without = actor_configs(config, {"threads": 4}, {"CPU": 8.0})
    assert [(one.device, one.threads) for one in without] == [("cpu", 4)] * 2


@pytest.mark.parametrize(("before", "during"), [(None, "0"), ("1", "1")])
def test_ray_is_started_without_its_usage_statistics_unless_somebody_wants_them(
    config: AuditConfig, before: str | None, during: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    fake = SimpleNamespace(
        is_initialized=lambda: False,
        init=lambda **_: seen.append(os.environ.get("RAY_USAGE_STATS_ENABLED")),
        cluster_resources=dict,
        shutdown=lambda: None,
    )
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    if before is not None:
        monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", before)
    with _cluster(config, {}):
        pass
    assert seen == [during]
