"""The runs behind a leaderboard: one ordinary run folder per model, resumed and amended as everywhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sightline.auditing.audit import audit, planned_job
from sightline.auditing.config import AuditConfig, read_config
from sightline.auditing.launchers.inline import Inline
from sightline.auditing.reporting_contract import model_name
from sightline.auditing.shards import tasks_left
from sightline.backbones.loading import checkpoint_folder, model_type, weight_digest
from sightline.errors import SightlineError
from sightline.leaderboard.lineup import FULL, RANDOM, Lineup, lineup, said_once
from sightline.store import Run, RunFolder, load_run

RUNS = "runs"


@dataclass(frozen=True)
class Contest:
    """What is compared: methods on models at budgets, over one probe set."""

    out: Path
    models: Mapping[str, str]
    """Checkpoint folder or hub id by the name that tables have for it."""
    probes: Path
    images: Path
    methods: Sequence[str]
    budgets: Sequence[str]
    pages: int | None = None
    """Only the first so many images."""
    clip: str | None = None
    run: Mapping[str, Any] = field(default_factory=dict)
    """Further options of ``sightline run``: device, dtype, box_source, ..."""
    image_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """How images reach a model, by its name."""
    notes: Sequence[str] = ()
    """What whoever reads the ranks should know first."""

    def configuration(self, model: str, arms: Sequence[str]) -> AuditConfig:
        settings: dict[str, Any] = {
            "model": self.models[model],
            "probes": self.probes,
            "images": self.images,
            "arms": list(arms),
            "out": self.out / RUNS / model,
            "limit": self.pages,
            "clip": self.clip,
            "image_options": dict(self.image_options.get(model, {})),
            "matched_controls": False,  # they are among the arms
        }
        return read_config(None, {**settings, **self.run})


@dataclass(frozen=True)
class MeasuredModel:
    """One model's finished run, the entries that have rows there, and the methods that have none."""

    name: str
    run: Run
    lineup: Lineup


def measure(contest: Contest) -> list[MeasuredModel]:
    """Computes what is missing, model after model; what is refused for all of them is refused before any is loaded."""
    lineups = {
        name: lineup(checkpoint_folder(source), contest.methods, contest.budgets, clip=contest.clip is not None)
        for name, source in contest.models.items()
    }
    for name, found in lineups.items():
        planned_job(contest.configuration(name, [entry.arm for entry in found.entries]))
    return [_measured(contest, name, found) for name, found in lineups.items()]


def _measured(contest: Contest, name: str, found: Lineup) -> MeasuredModel:
    """Audits until every entry either has its rows or is known to have none."""
    while True:
        config = contest.configuration(name, [entry.arm for entry in found.entries])
        if finished(config):
            return MeasuredModel(name, load_run(config.out), found)
        try:
            return MeasuredModel(name, audit(config), found)
        except Exception:  # whatever a method may raise, the others are worth comparing
            reasons = _failed(config) or _unserved(config)
            needed = {entry.arm for entry in found.entries if entry.method in (FULL, RANDOM)}
            if not reasons or needed & set(reasons):  # without these two there is nothing to compare with
                raise
        for arm, reason in reasons.items():
            print(f"note: {name}: {arm} is left out: {reason}", file=sys.stderr, flush=True)
        found = _without(found, reasons)


def finished(config: AuditConfig) -> bool:
    """Whether the run folder holds all of it already, made from these probes, settings and weights: no model is needed.

    A folder that holds something else is refused, as ``audit`` would.
    """
    job = planned_job(config)
    if not job.recorded:
        return False
    source = checkpoint_folder(config.model)
    names = {"model": model_name(config), "model_type": model_type(source)}
    job.folder.refuse_other({**names, "weight_digest": weight_digest(source)})
    known = all(arm.text in job.recorded["arms"] for arm in job.plan.arms)
    return known and not tasks_left(job.folder, job.shards, job.plan.arms)


def _failed(config: AuditConfig) -> dict[str, str]:
    """Arms of this command that raised an error while they ran, with the reason that the run folder keeps."""
    folder = RunFolder(config.out)
    aside = folder.manifest().get("set_aside", {}) if folder.exists else {}
    return {arm: str(aside[arm]) for arm in config.arms if arm in aside}


def _unserved(config: AuditConfig) -> dict[str, str]:
    """Arms that the loaded model refuses although its description did not say so, such as an image too large to fit."""
    job = planned_job(config)
    reasons: dict[str, str] = {}
    with Inline(job.config) as launcher:
        for arm in job.plan.arms:
            try:
                launcher.refuse_unserved([arm], job.sizes)
            except SightlineError as error:
                reasons[arm.text] = str(error)
    return reasons


def _without(found: Lineup, reasons: Mapping[str, str]) -> Lineup:
    """The lineup less some arms, each with its reason."""
    refusals = []
    for method in dict.fromkeys(entry.method for entry in found.entries):
        own = [entry for entry in found.entries if entry.method == method]
        gone = {entry.budget: reasons[entry.arm] for entry in own if entry.arm in reasons}
        refusals += said_once(method, gone, len(own)) if gone else []
    kept = tuple(entry for entry in found.entries if entry.arm not in reasons)
    return Lineup(kept, (*found.refusals, *refusals))
