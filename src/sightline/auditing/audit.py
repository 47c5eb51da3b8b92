"""The way of ``sightline run``, top to bottom: configuration, plan, shards, the loop, the row.

``audit`` plans (``plan_audit``: all that can be refused without a model is refused there) and hands the job to a
launcher. One that computes in this process (``Here``) takes its place in the run folder, loads the model, opens the
folder, and goes through what is left: task by task, arm by arm, one file of rows each (``compute_rows``). How a shard
is cut is in ``shards``, how the device is kept busy and what a row says in ``loop``, what the loaded model does in
``worker``; how several processes share a folder, in ``shards`` and ``store.leases``.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from sightline.answering.scorers import SCORERS, Scorer
from sightline.arms.arm import ARTIFACT_SEED, SEED, Arm, ArmPlan, parse_arm, plan_arms, refuse_unusable
from sightline.auditing.config import AuditConfig, flag_of
from sightline.auditing.engine_worker import EngineWorker, engine_settings, refuse_arms, refuse_options
from sightline.auditing.loop import LoopOptions, answer_shards, image_records, row_records
from sightline.auditing.shards import (
    PAUSE,
    Shard,
    SharedTasks,
    Task,
    check_image,
    check_images,
    is_known,
    lacks_images,
    longest_first,
    make_shards,
    tasks_left,
    with_boxes,
)
from sightline.auditing.worker import Worker, settings_before_loading, use_threads
from sightline.backbones.attention import without_planned_kernels
from sightline.backbones.loading import Served, checkpoint_folder, choose_device, model_type
from sightline.boxes.sources import BoxesBeside, box_source, check_source, source_under
from sightline.core.prefix import NO_CELLS
from sightline.core.registry import Registry, import_files, imported_digest
from sightline.device import moved
from sightline.device.work import free_memory
from sightline.engines import Engine, engine_of
from sightline.errors import OutageError, SightlineError
from sightline.places.listing import is_remote, refuse_without_creation
from sightline.places.writing import remove_leftovers
from sightline.probes import ProbeSet, read_probes
from sightline.probes.images import image_digests
from sightline.probes.probe_file import probes_text
from sightline.progress import Progress, in_json, say, waiting_for
from sightline.rows.run import Run, load_run
from sightline.statistics.metrics import METRICS
from sightline.store.folder import MANIFEST, RunFolder
from sightline.store.leases import MEMBER, FolderAccess
from sightline.store.manifest import ACCEPTABLE


def audit(config: AuditConfig) -> Run:
    """Runs (or resumes, or amends) an audit and returns the finished run."""
    with in_json(config.json_progress):
        with waiting_for("checking probes, images and model", logged=False):
            job = plan_audit(config)
        # One line about arms that nobody named, when they are new.
        if new := [arm for arm in job.plan.controls if arm not in job.recorded.get("arms", ())]:
            flag = flag_of("matched_controls").replace("--", "--no-")
            say(f"added as matched controls: {', '.join(new)} ({flag} leaves them out)", err=True)
        LAUNCHERS.get(config.launcher)(job.config).launch(job)
    return load_run(config.out)


def audit_as_worker(config: AuditConfig) -> None:
    """What one of several workers does of an audit; whoever started it says the rest."""
    job = plan_audit(config)
    LAUNCHERS.get(config.launcher)(job.config).launch(job)


# The plan: arms, probes, shards, images. Everything that can be refused without a model is refused here.


@dataclass(frozen=True)
class Job:
    """An audit whose input has been read and checked: everything that a launcher needs to know."""

    config: AuditConfig
    folder: RunFolder
    recorded: Mapping[str, Any]
    """The folder's manifest; empty for a new run."""
    plan: ArmPlan
    probes: ProbeSet
    shards: list[Shard]
    sizes: Mapping[str, tuple[int, int]]
    """(width, height) of every image by name."""
    bad: Mapping[str, str]
    """Images that are known to be unreadable, with the reason; empty unless they are to be skipped."""
    imports: Mapping[str, str]
    """Digests of imported files, by name."""

    @property
    def own_shards(self) -> list[Shard]:
        """Those that this command computes: all, or every N-th of a part."""
        first, step = self.config.share or (1, 1)
        return self.shards[first - 1 :: step]


def probe_bytes(probes: ProbeSet, shards: Sequence[Shard]) -> bytes:
    """The audited probes as a probe file of their own, for the run folder."""
    chosen = replace(probes, probes=tuple(probe for shard in shards for probe in shard.probes))
    return probes_text(chosen).encode()


def plan_audit(config: AuditConfig) -> Job:
    """Reads and checks all that a configuration names, and what the run folder says already; loads no weights."""
    imports = import_files(config.imports)
    folder = RunFolder(config.out)
    recorded = folder.manifest() if folder.exists else {}
    if not recorded:
        folder.refuse_foreign()
    config = as_recorded(config, recorded)
    engine = engine_of(config.model)
    plan = plan_arms(
        config.arms,
        interventions=config.interventions,
        controls=config.matched_controls and engine is None,
        seed=config.seed,
        profile=config.profile,
        model_type=model_type(checkpoint_folder(config.model)) if config.profile == "artifact" else "",
    )
    check_source(config.box_source)
    launcher = LAUNCHERS.get(config.launcher)(config)
    launcher.refuse_unusable()
    if launcher.shares and is_remote(config.out):
        refuse_without_creation(config.out)
    probes = read_probes(config.probes, image_prefix=config.image_prefix or None)
    config = config.model_copy(update={"scorer": choose_scorer(config.scorer, probes, engine)})
    probes = ask_questions(SCORERS.get(config.scorer)(), probes)
    shards = make_shards(probes.probes, config.shard_images, config.limit, config.shard_probes)
    if config.share is not None and config.share[0] > len(shards):
        raise SightlineError(f"--part {config.part}: the run has {len(shards)} shards, so that this part is empty")
    refuse_unusable(plan.arms, (probe for shard in shards for probe in shard.probes))
    for arm in plan.arms:
        arm.refuse_execution(config.execution, "leave it out or use --execution compiled")
        arm.refuse_answers({column.name for column in SCORERS.get(config.scorer).columns})
        arm.selector.check_probes(probe.id for shard in shards for probe in shard.probes)
    # A detector takes far longer than decoding: there a damaged image is found before anything is done.
    sizes, bad = check_images(config.images, shards, decode=box_source(config.box_source).searches)
    if bad and not config.skip_bad_images:
        others = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        skip = flag_of("skip_bad_images")
        raise SightlineError(f"{next(iter(bad.values()))}{others}; mend it, or leave out its probes with {skip}")
    check_description(config, folder, recorded, plan, probes, engine)
    return Job(config, folder, recorded, plan, probes, shards, sizes, bad, imports)


def as_recorded(config: AuditConfig, recorded: Mapping[str, Any]) -> AuditConfig:
    """The configuration with what it leaves open decided: by the run that is gone on with, else by its profile."""
    source = source_under(config.profile, config.box_source)
    config = config.model_copy(update={"seed": choose_seed(config, recorded), "box_source": source})
    if "batch_tokens" in recorded and "batch_tokens" not in config.model_fields_set:
        config = config.model_copy(update={"batch_tokens": recorded["batch_tokens"]})
    return config


def choose_seed(config: AuditConfig, recorded: Mapping[str, Any]) -> int:
    """The one given; else that of the run that is gone on with; else that of the profile."""
    if config.seed is not None:
        return config.seed
    return int(recorded.get("seed") or (ARTIFACT_SEED if config.profile == "artifact" else SEED))


def choose_scorer(name: str, probes: ProbeSet, engine: Engine | None = None) -> str:
    """The one given; without one, what fits the probes: yes and no by word where an engine gives no likelihoods."""
    if name != "auto":
        return name
    yes_no = "yes_no" if engine is None or engine.tells_likelihoods else "generation"
    return "open" if any(probe.is_open for probe in probes.probes) else yes_no


def ask_questions(scorer: Scorer, probes: ProbeSet) -> ProbeSet:
    """The questions that a scorer asks for these probes; what it cannot judge is refused."""
    for metric in scorer.metrics:
        METRICS.get(metric)
    count = sum(probe.is_open for probe in probes.probes)
    if 0 < count < len(probes.probes):
        raise SightlineError(
            f"{count} of {len(probes.probes)} probes are open questions, the others are answered yes or no; a run asks "
            "one kind: put each into a file of its own"
        )
    for probe in probes.probes:
        scorer.check(probe)
    return replace(probes, probes=tuple(asked for probe in probes.probes for asked in scorer.asked(probe)))


def check_description(
    config: AuditConfig,
    folder: RunFolder,
    recorded: Mapping[str, Any],
    plan: ArmPlan,
    probes: ProbeSet,
    engine: Engine | None,
) -> None:
    """Refuses what the checkpoint's ``config.json``, or the engine, and the run folder can tell before it is loaded."""
    if engine is not None:
        refuse_options(config, engine)
        settings = engine_settings(config, engine)
    else:
        choose_device(config.device)
        source = checkpoint_folder(config.model)
        settings = settings_before_loading(config, source)
    if recorded:
        folder.refuse_other(
            {**settings, "probe_digest": probes.digest}, without=ACCEPTABLE if config.accept_change else ()
        )
    if engine is not None:
        refuse_arms(plan.arms, engine)
        return
    served = Served.by_description(source)
    for arm in plan.arms:
        if arm.deployed:
            raise SightlineError(f"arm '{arm.text}' is for engines, not for a checkpoint: --model openvino:DIR")
        served.refuse(arm.selector, clip=config.clip is not None)


# Where the work runs.

LAUNCHERS: Registry[type[Launcher]] = Registry(
    "launcher", group="sightline.launchers", package="sightline.auditing.launchers"
)
"""By name. ``@LAUNCHERS.register("name")`` above a class is all that a new one needs."""


class Launcher(ABC):
    """The run folder is the only truth: work is done when its files are there, whoever wrote them.

    Rows must not depend on the launcher.
    """

    name: ClassVar[str]
    shares: ClassVar[bool] = True
    """Whether several processes may work in one run folder, for which a store must create an object once."""

    def __init__(self, config: AuditConfig) -> None:
        self.config = config

    def refuse_unusable(self) -> None:
        """Refuses what is missing on this machine, before anything is loaded."""
        return None

    @abstractmethod
    def launch(self, job: Job) -> None:
        """Returns when all of the job is in the folder, or set aside there with the reason."""


# In this process: a place in the run folder, the model, the folder opened, the loop.


class Here(Launcher):
    """One worker in this process."""

    locks: ClassVar[bool]
    """Whether this process has the run folder to itself; otherwise it joins whoever is at work there."""
    access: FolderAccess
    worker: Worker

    def refuse_unusable(self) -> None:
        if self.config.workers != "auto":
            raise SightlineError(f"--workers is for --launcher local and ray; {self.name} is one process")

    def launch(self, job: Job) -> None:
        config = self.config
        readable = [shard.without(job.bad) for shard in job.shards]
        asked = [probe for shard in readable for probe in shard.probes]
        with FolderAccess(job.folder.path, config.worker_timeout, config.standstill) as self.access:
            if self.locks:
                self.access.lock()
            with BoxesBeside(config.box_source, config.images, asked, self.access.wait_to_search_boxes) as boxes:
                facts: Mapping[str, Any] = {}
                if not boxes.detects:
                    shards, shown = with_boxes(job.shards, boxes)
                    job, facts = replace(job, shards=shards), shown.facts
                engine = engine_of(config.model)  # while a text detector may be at work beside
                self.worker = Worker(config) if engine is None else EngineWorker(config, engine)
                if job.plan.controls and self.worker.answerer.backbone.no_cells is not None and self.locks:
                    say(f"{NO_CELLS}; left out: {', '.join(job.plan.controls)}", err=True)
                    job = replace(job, plan=job.plan.asked_for)
                self.worker.refuse_unserved(job.plan.arms, job.sizes)
                self.run(job.folder, self._open(job, facts), boxes)
                if boxes.detects:  # what the boxes are like is known when all have been found
                    _, shown = with_boxes(readable, boxes)
                    boxed = {(probe.id, probe.view): probe for probe in shown.probes}
                    shards = [shard.mapped(lambda one: boxed.get((one.id, one.view), one)) for shard in job.shards]
                    with self.access.wait_to_open():
                        job.folder.describe_boxes(shown.facts, probe_bytes(job.probes, shards))

    def _open(self, job: Job, box_facts: Mapping[str, Any]) -> list[Task]:
        """Opens the folder, one process at a time; what is left to do in it."""
        folder = job.folder
        with self.access.wait_to_open():
            alone = self.access.find_other() is None if self.locks else self.access.join()
            folder.files.refresh()
            if alone:
                retry_failed(job)
            if alone and self.locks:
                self.access.clear_tasks()
            recorded = folder.manifest() if folder.exists else {}
            tasks = open_folder(job, recorded, self.worker.settings(recorded), box_facts, alone=alone)
            self.access.opened(folder.path / MANIFEST)
        return tasks

    def run(self, folder: RunFolder, tasks: Sequence[Task], boxes: BoxesBeside) -> None:
        """Returns when every task is in the folder, or set aside there."""
        shared = None if self.locks else SharedTasks(folder, longest_first(tasks), self.access)
        compute_rows(self.worker, folder, shared or OwnTasks(folder, tasks, self.access), boxes)


class OwnTasks:
    """The tasks of a process that has locked the folder: a list, from its first to its last. Nothing is claimed.

    As soon as somebody joins (``--launcher queue``), the rest of the list is shared.
    """

    def __init__(self, folder: RunFolder, tasks: Sequence[Task], access: FolderAccess) -> None:
        self._folder, self._left, self._access = folder, deque(tasks), access
        self.arms = {arm.text for task in tasks for arm in task.arms}
        self.total = sum(task.rows for task in tasks)
        self.progress: Progress | None = None
        self._shared: SharedTasks | None = None
        self._next_look = time.monotonic() + PAUSE

    def ready(self) -> Iterator[Task]:
        """What can be had without waiting. Whoever asks works one task ahead."""
        while self._left and self._shared is None:
            self._access.check()
            moved()
            if self._joined():
                self._shared = SharedTasks(self._folder, list(self._left), self._access)
                self._shared.total, self._shared.progress = self.total, self.progress
            else:
                yield self._left.popleft()
        if self._shared is not None:
            yield from self._shared.ready()

    def _joined(self) -> bool:
        """Whether somebody came to share the folder, looked up now and then."""
        if time.monotonic() < self._next_look:
            return False
        self._next_look = time.monotonic() + PAUSE
        return any(name.startswith(MEMBER) for name in self._access.others())

    def wait(self) -> bool:
        """Until there is something to take; False when all is in the folder or set aside."""
        return self._shared is not None and self._shared.wait()

    def wrote(self, task: Task, arm: Arm) -> None:
        """The rows of one arm of a task are in the folder."""
        moved()
        if self._shared is not None:
            self._shared.wrote(task, arm)

    def fail(self, blamed: Collection[tuple[str, str]], error: Exception) -> bool:
        """Sets the arms aside for the next command, and ends this one."""
        reason = str(error) or type(error).__name__
        self._folder.set_aside({arm for _, arm in blamed if arm}, f"it failed ({reason}); name it to try again")
        return False

    def give_back(self) -> None:
        """Nothing that was taken is done any more."""
        if self._shared is not None:
            self._shared.give_back()


def compute_rows(worker: Worker, folder: RunFolder, tasks: OwnTasks | SharedTasks, boxes: BoxesBeside) -> None:
    """Writes the rows of every task it can get, and records of images that have none yet.

    Returns when all of them are in the folder, whoever wrote them, or set aside.
    """
    if worker.device.type == "cpu":
        boxes.wait()  # the same cores search and score: one after the other, so that times mean something
    config, rehearsed = worker.config, set(tasks.arms) if worker.answerer.step.queues else None
    with without_planned_kernels(), use_threads(worker.threads), Progress("auditing", tasks.total, "rows") as progress:
        tasks.progress = progress
        try:
            more = True
            while more:
                options = LoopOptions(
                    config.batch_tokens, worker.batch_images, rehearsed, worker.setup_ms, worker.rehearse
                )
                try:
                    _write_ready(worker, folder, tasks, boxes, options)
                except OutageError:
                    raise  # which is nobody's fault here: what was claimed is given back
                except Exception as error:
                    if not tasks.fail(options.failed, error):
                        raise
                    if worker.device.type == "cuda" and not is_known(error):
                        raise  # what a kernel left behind may spoil whatever this process does next
                if options.failed:
                    free_memory()  # behind the error, whose traceback held what failed
                more = tasks.wait()
        finally:
            tasks.give_back()
    worker.record_setup(folder)


def _write_ready(
    worker: Worker, folder: RunFolder, tasks: OwnTasks | SharedTasks, boxes: BoxesBeside, options: LoopOptions
) -> None:
    """The tasks that can be had without waiting: a file of rows for every arm of each."""
    for work, arm, answers in answer_shards(
        worker.answerer, tasks.ready(), partial(worker.prepare, folder, boxes), options
    ):
        prepared, shard = work.prepared, work.shard
        if prepared.bad:
            digests = {name: file.digest for name, file in prepared.files.items()}
            folder.notes.write_bad_images(shard.index, prepared.bad, digests)
        if prepared.seen is not None and not folder.has_images(shard.index, shard.version):
            folder.write_images(shard.index, shard.version, image_records(work))
        # Finding boxes is part of a selector's cost if it reads them, or if nobody has said that it does not.
        billed = None if arm.selector.reads_boxes is False else prepared.boxes_ms
        rows = row_records(arm, work, answers, worker.row_facts, billed)
        folder.write_rows(arm.text, shard.index, rows, worker.answerer.scorer.columns)
        tasks.wrote(work.task, arm)
        if tasks.progress is not None:
            tasks.progress.advance(len(rows))
        if arm.text not in worker.noted and note_idle_budget(arm, rows):
            worker.noted.add(arm.text)
        del work, prepared  # the next shard may need the memory of its images


def note_idle_budget(arm: Arm, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Notes a token budget beyond the tokens of an image, or of each of its tiles, which prunes nothing there; whether
    it was so."""
    count, by_tile = arm.budget.count, arm.budget.per == "tile"
    if count is None:
        return False
    beyond = [row for row in rows if (row["k_tokens"] == row["n_tokens"] if by_tile else row["n_tokens"] < count)]
    fewest = min((int(row["n_tokens"]) for row in beyond), default=None)
    if fewest is None:
        return False
    why = "no tile has more than its budget" if by_tile else "its budget is larger"
    say(f"note: {arm.text} keeps all {fewest} tokens of an image: {why}", err=True)
    return True


# Opening the run folder: what may go on, what is left to do. One process at a time does it.


def open_folder(
    job: Job, recorded: Mapping[str, Any], settings: Mapping[str, Any], box_facts: Mapping[str, Any], *, alone: bool
) -> list[Task]:
    """Creates, resumes or amends the folder, whose manifest may be ``recorded`` already; what is left to do in it.

    ``alone``: nobody else is at work in it. ``box_facts`` are left as they are where a detector's are known already.
    """
    folder, plan = job.folder, job.plan
    digests = input_digests(plan.arms)
    share = None if job.config.share is None else list(job.config.share)
    names = folder.open(
        {
            **settings,
            "probe_digest": job.probes.digest,
            "shards": len(job.shards),
            # Which part of the run the folder holds; None for all of it, and for more than one.
            "part": share if not job.recorded or job.recorded.get("part") == share else None,
            "boxes": dict(box_facts or recorded.get("boxes", {})),
            "matched_controls": list(dict.fromkeys([*recorded.get("matched_controls", []), *plan.controls])),
            "imports": {**recorded.get("imports", {}), **job.imports},
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        },
        [arm.text for arm in plan.arms],
        probe_bytes(job.probes, job.shards),
        alone=alone,
        accept=job.config.accept_change,
    )
    # A file that is not what was written, or that belongs to another run, is computed again instead of kept. A store
    # is not asked for the footer of every object: what it holds was put whole, and rows are compared when read.
    for problem in [] if is_remote(folder.path) else folder.damaged_files(names):
        if (aside := problem.set_aside()) is not None:
            say(f"note: {problem.words}; set aside as {aside.name}", err=True)
    resumed = list(resumable_arms(job, recorded, names))
    tasks = tasks_left(folder, job.own_shards, [*resumed, *plan.arms])
    folder.record_inputs({**digests, **input_digests(resumed)})
    return tasks


def retry_failed(job: Job) -> None:
    """What a new command mends in a folder that nobody else works in: what failed, or could not be read, is tried
    again, and what was left half-written goes."""
    if job.folder.exists:
        job.folder.notes.clear_failures(arm.text for arm in job.plan.arms)
        job.folder.forget_shards_of(mended_images(job))
        remove_leftovers(job.folder.path, alone=True)


def mended_images(job: Job) -> list[str]:
    """Images that an earlier command could not read and that can be read now.

    A whole file that the model's own code failed on has to be another one: the same code would fail again.
    """
    recorded = job.recorded.get("bad_images", {})
    readable = [name for name in recorded if not isinstance(check_image(job.config.images, name, decode=True), str)]
    digests = image_digests(job.config.images, [name for name in readable if "digest" in recorded[name]])
    return [name for name in readable if name not in digests or digests[name] != recorded[name]["digest"]]


def resumable_arms(job: Job, recorded: Mapping[str, Any], names: Sequence[str]) -> Iterator[Arm]:
    """Unfinished arms of earlier commands under the same folder: a killed amendment leaves no holes.

    One that failed, or that has no row and cannot be understood any more, is left out, with a note.
    """
    planned = {arm.text for arm in job.plan.arms}
    for failed, reason in recorded.get("set_aside", {}).items():
        if failed not in planned:
            _note_left_out(failed, reason)
    for name in names:
        if name in planned:
            continue
        complete = job.folder.finished_shards(name).issuperset(shard.index for shard in job.own_shards)
        try:
            arm = parse_arm(name)
            if not complete or lacks_images(job.folder, job.own_shards, arm):
                yield arm
        except SightlineError as error:
            if complete:
                continue
            if job.folder.finished_shards(name):
                needed = ", ".join(f"--import {file}" for file in recorded.get("imports", {}))
                raise SightlineError(f"{error} (the run was made with {needed})" if needed else str(error)) from error
            job.folder.leave_out(name, str(error))
            _note_left_out(name, str(error))


def _note_left_out(arm: str, reason: str) -> None:
    say(f"note: {arm} of an earlier command is left out: {reason}", err=True)


def input_digests(arms: Iterable[Arm]) -> dict[str, str]:
    """Of the arms that read a file, such as replayed masks, or whose selector or policy comes from an imported one."""
    digests = {
        arm.text: arm.input_digest() or imported_digest(type(arm.selector)) or imported_digest(type(arm.policy))
        for arm in arms
    }
    return {text: digest for text, digest in digests.items() if digest is not None}
