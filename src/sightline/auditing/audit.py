"""The audit, top to bottom: plan and check, bring up a launcher, open the run folder, have done what is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sightline.answering.scorers import SCORERS, Scorer
from sightline.arms.arm import ARTIFACT_SEED, SEED, Arm, recorded_arm
from sightline.arms.plan import ArmPlan, plan_arms, refuse_unusable
from sightline.auditing.config import AuditConfig, flag_of
from sightline.auditing.launchers import LAUNCHERS, Launcher
from sightline.auditing.reporting_contract import settings_before_loading
from sightline.auditing.shards import Shard, lacks_images, look, looked_at, make_shards, tasks_left, with_boxes
from sightline.backbones.loading import checkpoint_folder, choose_device, model_type
from sightline.backbones.served import Served
from sightline.boxes.beside import BoxesBeside
from sightline.boxes.sources import box_source, check_source, refuse_other_rule, source_under
from sightline.core.imported_file import import_files, imported_digest
from sightline.errors import SightlineError
from sightline.probes import ProbeSet, read_probes
from sightline.probes.probe_file import probes_text
from sightline.progress import waiting_for
from sightline.statistics.metrics import METRICS
from sightline.store import Run, RunFolder, load_run
from sightline.store.folder_check import damaged_files


def audit(config: AuditConfig) -> Run:
    """Runs (or resumes, or amends) an audit and returns the finished run."""
    with waiting_for("checking probes, images and model", logged=False):
        job = planned_job(config)
    announce_controls(job)
    launcher = LAUNCHERS.get(config.launcher)(job.config)
    readable = [shard.without(job.bad) for shard in job.shards]
    asked = [probe for shard in readable for probe in shard.probes]
    with BoxesBeside(job.config.box_source, config.images, asked) as boxes:
        if boxes.detects:  # what the boxes are like is known when all have been found
            run_job(job, launcher, boxes, job.recorded.get("boxes", {}))
            _, shown = with_boxes(readable, boxes)
            boxed = {(probe.id, probe.view): probe for probe in shown.probes}
            shards = [shard.mapped(lambda probe: boxed.get((probe.id, probe.view), probe)) for shard in job.shards]
            job.folder.describe_boxes(shown.facts, probe_bytes(job.probes, shards))
        else:
            shards, shown = with_boxes(job.shards, boxes)
            run_job(replace(job, shards=shards), launcher, boxes, shown.facts)
    return load_run(config.out)


@dataclass(frozen=True)
class Job:
    """An audit whose input has been read and checked, before any model is loaded."""

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


def planned_job(config: AuditConfig) -> Job:
    """Everything that can be refused without a model is refused here."""
    imports = import_files(config.imports)
    folder = RunFolder(config.out)
    recorded = folder.manifest() if folder.exists else {}
    if not recorded:
        folder.refuse_foreign()
    source = source_under(config.profile, config.box_source)
    config = config.model_copy(update={"seed": chosen_seed(config, recorded), "box_source": source})
    if recorded and "shard_probes" not in recorded and "shard_probes" not in config.model_fields_set:
        config = config.model_copy(update={"shard_probes": None})  # shards of that release were bounded by images alone
    plan = plan_arms(
        config.arms,
        interventions=config.interventions,
        controls=config.matched_controls,
        seed=config.seed,
        profile=config.profile,
        model_type=model_type(checkpoint_folder(config.model)) if config.profile == "artifact" else "",
    )
    check_source(config.box_source)
    refuse_other_rule(config.box_source, recorded.get("boxes") or {}, config.out)
    LAUNCHERS.get(config.launcher)
    probes = read_probes(config.probes, image_prefix=config.image_prefix or None)
    config = config.model_copy(update={"scorer": chosen_scorer(config.scorer, probes)})
    probes = put_by(SCORERS.get(config.scorer)(), probes)
    shards = make_shards(probes.probes, config.shard_images, config.limit, config.shard_probes)
    if config.share is not None and config.share[0] > len(shards):
        raise SightlineError(f"--part {config.part}: the run has {len(shards)} shards, so that this part is empty")
    refuse_unusable(plan.arms, (probe for shard in shards for probe in shard.probes))
    for arm in plan.arms:
        arm.refuse_execution(config.execution, "leave it out or use --execution eager")
        arm.refuse_answers({column.name for column in SCORERS.get(config.scorer).columns})
        arm.selector.check_probes(probe.id for shard in shards for probe in shard.probes)
    # A detector takes far longer than decoding: there a damaged image is found before anything is done.
    sizes, bad = looked_at(config.images, shards, decode=box_source(config.box_source).searches)
    if bad and not config.skip_bad_images:
        raise SightlineError(_refused_images(bad))
    refuse_by_description(config, folder, recorded, plan, probes)
    return Job(config, folder, recorded, plan, probes, shards, sizes, bad, imports)


def chosen_scorer(name: str, probes: ProbeSet) -> str:
    """The one given; without one, what fits the probes."""
    if name != "auto":
        return name
    return "open" if any(probe.is_open for probe in probes.probes) else "yes_no"


def put_by(scorer: Scorer, probes: ProbeSet) -> ProbeSet:
    """The questions that a scorer puts for these probes; what it cannot judge is refused."""
    for metric in scorer.metrics:
        METRICS.get(metric)
    for probe in probes.probes:
        scorer.check(probe)
    return replace(probes, probes=tuple(asked for probe in probes.probes for asked in scorer.asked(probe)))


def refuse_by_description(
    config: AuditConfig, folder: RunFolder, recorded: Mapping[str, Any], plan: ArmPlan, probes: ProbeSet
) -> None:
    """What the checkpoint's ``config.json`` and the run folder can tell before weights are read."""
    choose_device(config.device)
    source = checkpoint_folder(config.model)
    settings = settings_before_loading(config, source, recorded)
    if recorded:
        folder.refuse_other({**settings, "probe_digest": probes.digest})
    served = Served.by_description(source)
    for arm in plan.arms:
        served.refuse(arm.selector, clip=config.clip is not None)


def announce_controls(job: Job) -> None:
    """One line about arms that nobody named, when they are new."""
    new = [arm for arm in job.plan.controls if arm not in job.recorded.get("arms", ())]
    if new:
        flag = flag_of("matched_controls").replace("--", "--no-")
        print(f"added as matched controls: {', '.join(new)} ({flag} leaves them out)", file=sys.stderr, flush=True)


def _refused_images(bad: Mapping[str, str]) -> str:
    first = next(iter(bad.values()))
    others = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    return f"{first}{others}; mend it, or leave out its probes with {flag_of('skip_bad_images')}"


def chosen_seed(config: AuditConfig, recorded: Mapping[str, Any]) -> int:
    """The one given; else that of the run that is gone on with; else that of the profile."""
    if config.seed is not None:
        return config.seed
    return int(recorded.get("seed") or (ARTIFACT_SEED if config.profile == "artifact" else SEED))


def run_job(job: Job, launcher: Launcher, boxes: BoxesBeside, box_facts: Mapping[str, Any]) -> None:
    """Brings up the model, opens the folder and has done what is left, while a text detector may be at work beside."""
    plan, folder, recorded = job.plan, job.folder, job.recorded
    digests = input_digests(plan.arms)
    with launcher:
        launcher.refuse_unserved(plan.arms, job.sizes)
        names = folder.open(
            {
                **launcher.settings(recorded),
                "probe_digest": job.probes.digest,
                "shards": len(job.shards),
                "part": recorded_part(job),
                "boxes": dict(box_facts),
                "matched_controls": list(dict.fromkeys([*recorded.get("matched_controls", []), *plan.controls])),
                "imports": {**recorded.get("imports", {}), **job.imports},
                "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            },
            [arm.text for arm in plan.arms],
            probe_bytes(job.probes, job.shards),
        )
        set_damaged_aside(folder, names)
        folder.forget_shards_of(mended_images(job))
        resumed = list(resumable(job, names))
        tasks = tasks_left(folder, job.own_shards, [*resumed, *plan.arms])
        folder.settle_inputs({**digests, **input_digests(resumed)})
        launcher.run(folder, tasks, boxes)


def set_damaged_aside(folder: RunFolder, arms: Sequence[str]) -> None:
    """A file that is not what was written, or that belongs to another run, is computed again instead of kept."""
    for problem in damaged_files(folder, arms):
        aside = problem.set_aside()
        if aside is not None:
            print(f"note: {problem.words}; set aside as {aside.name}", file=sys.stderr, flush=True)


def recorded_part(job: Job) -> list[int] | None:
    """Which part of the run the folder holds; None for all of it, and for more than one."""
    share = None if job.config.share is None else list(job.config.share)
    return share if not job.recorded or job.recorded.get("part") == share else None


def mended_images(job: Job) -> list[str]:
    """Images that an earlier command could not read and that can be read now."""
    recorded = job.recorded.get("bad_images", {})
    return [name for name in recorded if not isinstance(look(job.config.images, name, decode=True), str)]


def resumable(job: Job, names: Sequence[str]) -> Iterator[Arm]:
    """Unfinished arms of earlier commands under the same folder: a killed amendment leaves no holes.

    One that failed, or that has no row and cannot be understood any more, is left out, with a note.
    """
    planned = {arm.text for arm in job.plan.arms}
    for arm, reason in job.recorded.get("set_aside", {}).items():
        if arm not in planned:
            _note_left_out(arm, reason)
    for name in names:
        if name in planned:
            continue
        complete = job.folder.finished_shards(name).issuperset(shard.index for shard in job.own_shards)
        try:
            arm = recorded_arm(name)
            if not complete or lacks_images(job.folder, job.own_shards, arm):
                yield arm
        except SightlineError as error:
            if complete:
                continue
            if job.folder.any_rows(name):
                needed = ", ".join(f"--import {file}" for file in job.recorded.get("imports", {}))
                raise SightlineError(f"{error} (the run was made with {needed})" if needed else str(error)) from error
            job.folder.leave_out(name, str(error))
            _note_left_out(name, str(error))


def _note_left_out(arm: str, reason: str) -> None:
    print(f"note: {arm} of an earlier command is left out: {reason}", file=sys.stderr, flush=True)


def input_digests(arms: Iterable[Arm]) -> dict[str, str]:
    """Of the arms that read a file, such as replayed masks, or whose selector or policy comes from an imported one."""
    digests = {
        arm.text: arm.input_digest() or imported_digest(type(arm.selector)) or imported_digest(type(arm.policy))
        for arm in arms
    }
    return {text: digest for text, digest in digests.items() if digest is not None}


def probe_bytes(probes: ProbeSet, shards: Sequence[Shard]) -> bytes:
    """The audited probes as a probe file of their own, for the run folder."""
    chosen = replace(probes, probes=tuple(probe for shard in shards for probe in shard.probes))
    return probes_text(chosen).encode()
