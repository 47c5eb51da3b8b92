"""Opening a run folder for a job: what may go on, what is left to do. One process at a time does it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sightline.arms.arm import Arm, recorded_arm
from sightline.auditing.job import Job, probe_bytes
from sightline.auditing.shards import Task, lacks_images, look, tasks_left
from sightline.core.imported_file import imported_digest
from sightline.errors import SightlineError
from sightline.places import is_remote
from sightline.places.writing import remove_leftovers
from sightline.probes.images import image_digests
from sightline.progress import say
from sightline.store import RunFolder
from sightline.store.folder_check import damaged_files


def begin_alone(job: Job) -> None:
    """What a new command mends in a folder that nobody else works in: what failed, or could not be read, is tried
    again, and what was left half-written goes."""
    if not job.folder.exists:
        return
    job.folder.forgive(arm.text for arm in job.plan.arms)
    job.folder.forget_shards_of(mended_images(job))
    remove_leftovers(job.folder.path, alone=True)


def open_for(job: Job, settings: Mapping[str, Any], box_facts: Mapping[str, Any], *, alone: bool) -> list[Task]:
    """Creates, resumes or amends the folder; what is left to do in it.

    ``alone``: nobody else is at work in it. ``box_facts`` are left as they are where a detector's are known already.
    """
    folder, plan = job.folder, job.plan
    recorded = folder.manifest() if folder.exists else {}
    digests = input_digests(plan.arms)
    names = folder.open(
        {
            **settings,
            "probe_digest": job.probes.digest,
            "shards": len(job.shards),
            "part": recorded_part(job),
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
    set_damaged_aside(folder, names)
    resumed = list(resumable(job, recorded, names))
    tasks = tasks_left(folder, job.own_shards, [*resumed, *plan.arms])
    folder.settle_inputs({**digests, **input_digests(resumed)})
    return tasks


def set_damaged_aside(folder: RunFolder, arms: Sequence[str]) -> None:
    """A file that is not what was written, or that belongs to another run, is computed again instead of kept.

    A store is not asked for the footer of every object: what it holds was put whole, and rows are compared when read.
    """
    if is_remote(folder.path):
        return
    for problem in damaged_files(folder, arms):
        aside = problem.set_aside()
        if aside is not None:
            say(f"note: {problem.words}; set aside as {aside.name}", err=True)


def recorded_part(job: Job) -> list[int] | None:
    """Which part of the run the folder holds; None for all of it, and for more than one."""
    share = None if job.config.share is None else list(job.config.share)
    return share if not job.recorded or job.recorded.get("part") == share else None


def mended_images(job: Job) -> list[str]:
    """Images that an earlier command could not read and that can be read now.

    A whole file that the model's own code failed on has to be another one: the same code would fail again.
    """
    recorded = job.recorded.get("bad_images", {})
    readable = [name for name in recorded if not isinstance(look(job.config.images, name, decode=True), str)]
    digests = image_digests(job.config.images, [name for name in readable if "digest" in recorded[name]])
    return [name for name in readable if name not in digests or digests[name] != recorded[name]["digest"]]


def resumable(job: Job, recorded: Mapping[str, Any], names: Sequence[str]) -> Iterator[Arm]:
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
            arm = recorded_arm(name)
            if not complete or lacks_images(job.folder, job.own_shards, arm):
                yield arm
        except SightlineError as error:
            if complete:
                continue
            if job.folder.any_rows(name):
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
