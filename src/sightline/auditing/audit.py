"""The audit, top to bottom: plan and check, bring up a launcher, open the run folder, have done what is left."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sightline.answering.scorers import SCORERS
from sightline.arms.arm import Arm, recorded_arm
from sightline.arms.plan import ArmPlan, plan_arms, refuse_unusable
from sightline.auditing.config import AuditConfig
from sightline.auditing.launchers import LAUNCHERS, Launcher
from sightline.auditing.shards import Shard, check_images, make_shards, tasks_left, with_boxes
from sightline.backbones.loading import checkpoint_folder, model_type
from sightline.boxes.beside import BoxesBeside
from sightline.boxes.sources import Shown, check_source
from sightline.probes import ProbeSet, read_probes
from sightline.probes.probe_file import probes_text
from sightline.store import Run, RunFolder, load_run


def audit(config: AuditConfig) -> Run:
    """Runs (or resumes, or amends) an audit and returns the finished run."""
    plan = plan_arms(
        config.arms,
        interventions=config.interventions,
        controls=config.matched_controls,
        seed=config.seed,
        profile=config.profile,
        model_type=model_type(checkpoint_folder(config.model)) if config.profile == "artifact" else "",
    )
    check_source(config.box_source)
    SCORERS.get(config.scorer)
    launcher = LAUNCHERS.get(config.launcher)(config)
    probes = read_probes(config.probes, image_prefix=config.image_prefix or None)
    shards = make_shards(probes.probes, config.shard_images, config.limit)
    check_images(config.images, shards)
    refuse_unusable(plan.arms, (probe for shard in shards for probe in shard.probes))
    for arm in plan.arms:
        arm.refuse_execution(config.execution, "leave it out or use --execution eager")
    with BoxesBeside(config.box_source, config.images, [p for shard in shards for p in shard.probes]) as boxes:
        if not boxes.detects:
            shards, shown = with_boxes(shards, boxes)
            run_planned(config, launcher, plan, probes, shards, boxes, shown)
        else:  # what the boxes are like is known when all have been found
            folder = run_planned(config, launcher, plan, probes, shards, boxes, None)
            shards, shown = with_boxes(shards, boxes)
            folder.describe_boxes(shown.facts, probe_bytes(probes, shards))
    return load_run(config.out)


def run_planned(
    config: AuditConfig,
    launcher: Launcher,
    plan: ArmPlan,
    probes: ProbeSet,
    shards: list[Shard],
    boxes: BoxesBeside,
    shown: Shown | None,
) -> RunFolder:
    """The audit once its input has been checked, while a text detector may be at work beside it."""
    digests = input_digests(plan.arms)
    folder = RunFolder(config.out)
    recorded = folder.manifest() if folder.exists else {}
    with launcher:
        launcher.refuse_unserved(plan.arms)
        names = folder.open(
            {
                **launcher.settings(recorded),
                "probe_digest": probes.digest,
                "shards": len(shards),
                "boxes": dict(shown.facts) if shown is not None else recorded.get("boxes", {}),
                "matched_controls": list(dict.fromkeys([*recorded.get("matched_controls", []), *plan.controls])),
                "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            },
            [arm.text for arm in plan.arms],
            probe_bytes(probes, shards),
        )
        planned = {arm.text: arm for arm in plan.arms}
        # Arms of an earlier command under the same folder are finished too: a killed amendment leaves no holes.
        arms = [planned[name] if name in planned else recorded_arm(name) for name in names]
        tasks = tasks_left(folder, shards, arms)
        resumed = {arm.text: arm for task in tasks for arm in task.arms if arm.text not in planned}
        folder.settle_inputs({**digests, **input_digests(resumed.values())})
        launcher.run(folder, tasks, boxes)
    return folder


def input_digests(arms: Iterable[Arm]) -> dict[str, str]:
    """Of the arms that read a file, such as replayed masks."""
    digests = {arm.text: arm.input_digest() for arm in arms}
    return {text: digest for text, digest in digests.items() if digest is not None}


def probe_bytes(probes: ProbeSet, shards: Sequence[Shard]) -> bytes:
    """The audited probes as a probe file of their own, for the run folder."""
    chosen = replace(probes, probes=tuple(probe for shard in shards for probe in shard.probes))
    return probes_text(chosen).encode()
