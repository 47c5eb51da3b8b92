"""Answers to files, by format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from sightline.annotate.artifact_columns import answers_of, artifact_text, csv_text
from sightline.annotate.label_studio import label_config, label_studio_tasks
from sightline.annotate.readings import all_readings
from sightline.annotate.sign_off import final_decisions
from sightline.annotate.task_folder import TaskFolder
from sightline.errors import SightlineError
from sightline.probes.json_lines import write_text

Written = list[tuple[Path, str]]
"""Files, and what is in each in words."""


def export_answers(task: TaskFolder, file_format: str, out: Path, whose: str) -> Written:
    return _FORMATS[file_format](task, out, whose)


def _artifact(task: TaskFolder, out: Path, whose: str) -> Written:
    answers = answers_of(all_readings(task), whose)
    if not answers:
        raise SightlineError(f"{task.path} has no {whose} answers yet, so there is nothing to write")
    write_text(out, artifact_text(task.kind, answers))
    return [(out, f"{len(answers)} answers")]


def _label_studio(task: TaskFolder, out: Path, whose: str) -> Written:
    tasks = label_studio_tasks(task.kind, all_readings(task))
    config = out.with_suffix(".xml")
    write_text(config, label_config(task.kind, len(task.items[0].views)))
    write_text(out, json.dumps(tasks, ensure_ascii=False, indent=1) + "\n")
    answers = sum(len(each["annotations"]) for each in tasks)
    return [(out, f"{len(tasks)} tasks, {answers} annotations"), (config, "the labelling configuration")]


def _decisions(task: TaskFolder, out: Path, whose: str) -> Written:
    decided = final_decisions(task, all_readings(task))
    rows = [
        {
            "sample_id": each.id,
            "image_id": each.image_id,
            "decision": each.decision,
            "valid": str(each.valid).lower(),
            "provenance": each.provenance,
        }
        for each in decided
    ]
    write_text(out, csv_text(rows))
    return [(out, f"{len(rows)} decisions, not signed off")]


_FORMATS: Mapping[str, Callable[[TaskFolder, Path, str], Written]] = {
    "artifact": _artifact,
    "label-studio": _label_studio,
    "decisions": _decisions,
}
