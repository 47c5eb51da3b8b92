"""Actors of a Ray cluster, each with a model of its own."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from typing import Any, ClassVar

from sightline.auditing.audit import LAUNCHERS, Job, Launcher
from sightline.auditing.config import AuditConfig
from sightline.auditing.workers import (
    TO_END,
    Ended,
    StartedWorker,
    run_workers,
    threads_for,
    usable_cores,
    work,
    worker_configs,
)
from sightline.errors import SightlineError
from sightline.places.writing import Holder, holder_of
from sightline.store.leases import Leases

USAGE = "RAY_USAGE_STATS_ENABLED"
"""Ray tells its makers about clusters unless this is 0; whoever sets it decides."""


@LAUNCHERS.register("ray")
class Ray(Launcher):
    """Actors of a Ray cluster, each with a loaded model; all see the same run folder, probes and images."""

    name: ClassVar[str] = "ray"

    def refuse_unusable(self) -> None:
        if find_spec("ray") is None:
            raise SightlineError("--launcher ray needs Ray: pip install 'sightline[ray]'")

    def launch(self, job: Job) -> None:
        config = job.config
        with _cluster(config, job.recorded) as resources:
            configs = actor_configs(config, job.recorded, resources)
            leases = Leases(job.folder.path, config.worker_timeout)
            run_workers(job, [partial(_Actor, one, leases) for one in configs])


def actor_configs(
    config: AuditConfig, recorded: Mapping[str, Any], resources: Mapping[str, float]
) -> list[AuditConfig]:
    """One per actor. With ``auto``, as many as the cluster has GPUs, or groups of CPU cores."""
    gpus = int(resources.get("GPU", 0)) if config.device != "cpu" else 0
    # Ray shows an actor its own GPU and no other.
    return worker_configs(config, recorded, ["cuda"] * gpus, int(resources.get("CPU", 1)))


@contextmanager
def _cluster(config: AuditConfig, recorded: Mapping[str, Any]) -> Iterator[Mapping[str, float]]:
    """The resources of the cluster that this process is connected to, of the one at the address, or of one that is
    started here and ends with the command."""
    os.environ.setdefault(USAGE, "0")
    ray = importlib.import_module("ray")
    if ray.is_initialized():
        yield ray.cluster_resources()
        return
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if config.address is not None:
        settings["address"] = config.address
    else:
        threads = threads_for(config, recorded)
        cores = usable_cores() if config.workers == "auto" else config.workers * threads
        settings |= {"address": "local", "include_dashboard": False, "num_cpus": max(cores, threads)}
        settings["runtime_env"] = {"env_vars": {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}}
    ours = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(**settings)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise SightlineError(f"no Ray cluster at {config.address or 'this machine'}: {said}; see --address") from None
    with suppress(ValueError):  # only the main thread has signals; Ray's own handler would not let work be given back
        signal.signal(signal.SIGTERM, ours)
    try:
        yield ray.cluster_resources()
    finally:
        ray.shutdown()


class _Actor(StartedWorker):
    """A process somewhere in the cluster. Ray ends it when the driver ends, however that happens."""

    def __init__(self, config: AuditConfig, leases: Leases) -> None:
        ray = importlib.import_module("ray")
        self._ray, self._leases = ray, leases
        wanted = {"num_gpus": 1} if config.device == "cuda" else {"num_cpus": config.threads}
        self._actor = ray.remote(RemoteWorker).options(max_restarts=0, **wanted).remote()
        self._who = self._actor.who.remote()
        self._answer = self._actor.work.remote(config.model_dump(mode="json"), os.getcwd())
        self._holder: Holder | None = None

    def ended(self) -> Ended | None:
        self._look_up_holder()
        ready, _ = self._ray.wait([self._answer], timeout=0)
        if not ready:
            return None
        try:
            answer = self._ray.get(self._answer)
        except Exception as error:  # whatever Ray makes of a death or of an error in the actor
            self._forget()
            return Ended(how=(str(error).splitlines() or [type(error).__name__])[-1])
        return Ended(done=bool(answer.get("done")), error=str(answer.get("error", "")))

    def stop(self) -> None:
        self._ray.kill(self._actor, no_restart=True)

    def kill(self) -> None:
        self._look_up_holder()
        ends = time.monotonic() + TO_END
        while self._holder is not None and self._holder.lives() and time.monotonic() < ends:
            time.sleep(0.05)  # Ray kills in its own time, and until then the actor may claim something
        self._forget()

    def _look_up_holder(self) -> None:
        """Which process the actor is, once it runs; a cluster that ends with its driver can be asked no more."""
        if self._holder is None:
            with suppress(Exception):
                ready, _ = self._ray.wait([self._who], timeout=0)
                self._holder = holder_of(self._ray.get(ready[0])) if ready else None

    def _forget(self) -> None:
        """An actor has no time to give back what it had begun, so that is done for it."""
        with suppress(Exception):
            if self._holder is not None:
                self._leases.remove_of(self._holder)


class RemoteWorker:
    """What runs in an actor."""

    def who(self) -> dict[str, Any]:
        from sightline.places.writing import this_process

        return this_process().as_record()

    def work(self, settings: dict[str, Any], folder: str) -> dict[str, Any]:
        """``folder`` is where the driver runs, which paths are relative to."""
        try:
            os.chdir(folder)
        except OSError as error:
            return {"error": f"a Ray node does not see {folder} ({error.strerror}); all of them need its file system"}
        return work(settings)
