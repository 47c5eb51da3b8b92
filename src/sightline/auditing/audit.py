"""The audit, top to bottom: plan and check, then have a launcher do what is left of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sightline.answering.scorers import SCORERS, Scorer
from sightline.arms.arm import ARTIFACT_SEED, SEED
from sightline.arms.plan import ArmPlan, plan_arms, refuse_unusable
from sightline.auditing.config import AuditConfig, flag_of
from sightline.auditing.launchers import LAUNCHERS
from sightline.auditing.launchers.base import Job
from sightline.auditing.records import settings_before_loading
from sightline.auditing.shards import looked_at, make_shards
from sightline.backbones.loading import checkpoint_folder, choose_device, model_type
from sightline.backbones.served import Served
from sightline.boxes.sources import box_source, check_source, source_under
from sightline.core.registry import import_files
from sightline.errors import SightlineError
from sightline.places import is_remote
from sightline.places.listing import refuse_without_creation
from sightline.probes import ProbeSet, read_probes
from sightline.progress import in_json, say, waiting_for
from sightline.statistics.metrics import METRICS
from sightline.store import Run, RunFolder, load_run
from sightline.store.soundness import ACCEPTABLE


def audit(config: AuditConfig) -> Run:
    """Runs (or resumes, or amends) an audit and returns the finished run."""
    with in_json(config.json_progress):
        with waiting_for("checking probes, images and model", logged=False):
            job = planned_job(config)
        announce_controls(job)
        LAUNCHERS.get(config.launcher)(job.config).carry_out(job)
    return load_run(config.out)


def take_part(config: AuditConfig) -> None:
    """What one of several workers does of an audit; whoever started it says the rest."""
    job = planned_job(config)
    LAUNCHERS.get(config.launcher)(job.config).carry_out(job)


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
    if "batch_tokens" in recorded and "batch_tokens" not in config.model_fields_set:
        config = config.model_copy(update={"batch_tokens": recorded["batch_tokens"]})
    plan = plan_arms(
        config.arms,
        interventions=config.interventions,
        controls=config.matched_controls,
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
        folder.refuse_other(
            {**settings, "probe_digest": probes.digest}, without=ACCEPTABLE if config.accept_change else ()
        )
    served = Served.by_description(source)
    for arm in plan.arms:
        served.refuse(arm.selector, clip=config.clip is not None)


def announce_controls(job: Job) -> None:
    """One line about arms that nobody named, when they are new."""
    new = [arm for arm in job.plan.controls if arm not in job.recorded.get("arms", ())]
    if new:
        flag = flag_of("matched_controls").replace("--", "--no-")
        say(f"added as matched controls: {', '.join(new)} ({flag} leaves them out)", err=True)


def _refused_images(bad: Mapping[str, str]) -> str:
    first = next(iter(bad.values()))
    others = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
    return f"{first}{others}; mend it, or leave out its probes with {flag_of('skip_bad_images')}"


def chosen_seed(config: AuditConfig, recorded: Mapping[str, Any]) -> int:
    """The one given; else that of the run that is gone on with; else that of the profile."""
    if config.seed is not None:
        return config.seed
    return int(recorded.get("seed") or (ARTIFACT_SEED if config.profile == "artifact" else SEED))
