"""The audit, top to bottom: plan and check, bring up a launcher, open the run folder, have done what is left."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sightline.answering.scorers import SCORERS
from sightline.arms.arm import ARTIFACT_SEED, SEED, Arm, recorded_arm
from sightline.arms.plan import ArmPlan, plan_arms, refuse_unusable
from sightline.auditing.config import AuditConfig
from sightline.auditing.launchers import LAUNCHERS, Launcher
from sightline.auditing.shards import Shard, check_images, make_shards, tasks_left, with_boxes
from sightline.backbones.loading import checkpoint_folder, model_type
from sightline.boxes.beside import BoxesBeside
from sightline.boxes.sources import check_source, refuse_other_rule, source_under
from sightline.probes import ProbeSet, read_probes
from sightline.probes.probe_file import probes_text
from sightline.statistics.metrics import METRICS
from sightline.store import Run, RunFolder, load_run


def audit(config: AuditConfig) -> Run:
    """Runs (or resumes, or amends) an audit and returns the finished run."""
    job = planned_job(config)
    launcher = LAUNCHERS.get(config.launcher)(job.config)
    asked = [probe for shard in job.shards for probe in shard.probes]
    with BoxesBeside(job.config.box_source, config.images, asked) as boxes:
        if boxes.detects:  # what the boxes are like is known when all have been found
            run_job(job, launcher, boxes, job.recorded.get("boxes", {}))
            shards, shown = with_boxes(job.shards, boxes)
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


def planned_job(config: AuditConfig) -> Job:
    """Everything that can be refused without a model is refused here."""
    folder = RunFolder(config.out)
    recorded = folder.manifest() if folder.exists else {}
    source = source_under(config.profile, config.box_source)
    config = config.model_copy(update={"seed": chosen_seed(config, recorded), "box_source": source})
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
    for metric in SCORERS.get(config.scorer).metrics:
        METRICS.get(metric)
    probes = read_probes(config.probes, image_prefix=config.image_prefix or None)
    shards = make_shards(probes.probes, config.shard_images, config.limit)
    check_images(config.images, shards)
    refuse_unusable(plan.arms, (probe for shard in shards for probe in shard.probes))
    for arm in plan.arms:
        arm.refuse_execution(config.execution, "leave it out or use --execution eager")
    return Job(config, folder, recorded, plan, probes, shards)


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
        launcher.refuse_unserved(plan.arms)
        names = folder.open(
            {
                **launcher.settings(recorded),
                "probe_digest": job.probes.digest,
                "shards": len(job.shards),
                "boxes": dict(box_facts),
                "matched_controls": list(dict.fromkeys([*recorded.get("matched_controls", []), *plan.controls])),
                "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            },
            [arm.text for arm in plan.arms],
            probe_bytes(job.probes, job.shards),
        )
        planned = {arm.text: arm for arm in plan.arms}
        # Arms of an earlier command under the same folder are finished too: a killed amendment leaves no holes.
        arms = [planned[name] if name in planned else recorded_arm(name) for name in names]
        tasks = tasks_left(folder, job.shards, arms)
        resumed = {arm.text: arm for task in tasks for arm in task.arms if arm.text not in planned}
        folder.settle_inputs({**digests, **input_digests(resumed.values())})
        launcher.run(folder, tasks, boxes)


def input_digests(arms: Iterable[Arm]) -> dict[str, str]:
    """Of the arms that read a file, such as replayed masks."""
    digests = {arm.text: arm.input_digest() for arm in arms}
    return {text: digest for text, digest in digests.items() if digest is not None}


def probe_bytes(probes: ProbeSet, shards: Sequence[Shard]) -> bytes:
    """The audited probes as a probe file of their own, for the run folder."""
    chosen = replace(probes, probes=tuple(probe for shard in shards for probe in shard.probes))
    return probes_text(chosen).encode()
