"""Answers to files, by format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sightline.annotate.artifact_columns import FINAL, answers_of, artifact_text, csv_text
from sightline.annotate.journal import ADJUDICATION, FIRST, SECOND
from sightline.annotate.label_studio import ITEM, label_config, label_studio_tasks
from sightline.annotate.readings import ItemReadings, all_readings
from sightline.annotate.sign_off import final_decisions
from sightline.annotate.task_folder import TaskFolder
from sightline.errors import SightlineError
from sightline.places.writing import is_replaced, refuse_other_ending
from sightline.probes.json_lines import write_text

MOST_NAMED = 10
"""Items that a line names."""
Written = list[tuple[Path, str]]
"""Files, and what is in each in words."""


def export_answers(task: TaskFolder, file_format: str, out: Path, whose: str) -> Written:
    return _FORMATS[file_format](task, out, whose)


def _artifact(task: TaskFolder, out: Path, whose: str) -> Written:
    refuse_other_ending(out, ".jsonl" if task.kind.draws_boxes else ".csv")
    readings = all_readings(task)
    answers = answers_of(readings, whose)
    if not answers:
        raise SightlineError(f"{task.path} has no {whose} answers yet, so there is nothing to write")
    write_text(out, artifact_text(task.kind, answers))
    return [(out, f"{len(answers)} answers{_left_out(readings, whose)}")]


def _left_out(readings: Sequence[ItemReadings], whose: str) -> str:
    """Which items are not in the file and what each waits for; nothing where all are."""
    waiting: dict[str, list[str]] = {}
    for each in readings:
        if whose != FINAL:
            asked = {FIRST: True, SECOND: each.item.second, ADJUDICATION: bool(each.differing)}[whose]
            if asked and whose not in each.given:
                waiting.setdefault(f"no answer of the {whose} pass yet", []).append(each.item.id)
        elif each.missing:
            who = " and ".join(f"a {name} person" for name in each.missing)
            waiting.setdefault(f"waiting for {who}", []).append(each.item.id)
        elif each.disputed:
            waiting.setdefault("two people differ, a third has to decide", []).append(each.item.id)
    said = [f"{len(ids)} {why} ({_some(ids)})" for why, ids in waiting.items()]
    return f"; left out of {len(readings)} items: {'; '.join(said)}" if said else ""


def _some(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
    return ", ".join(ids[:MOST_NAMED]) + more


def _label_studio(task: TaskFolder, out: Path, whose: str) -> Written:
    tasks = label_studio_tasks(task.kind, all_readings(task))
    refuse_other_ending(out, ".json")
    config = out.with_suffix(".xml")
    if not is_replaced(out) or config == out:
        raise SightlineError(f"{out}: two files are written, tasks and a labelling configuration; name a .json file")
    write_text(config, label_config(task.kind, len(task.items[0].views)))
    write_text(out, json.dumps(tasks, ensure_ascii=False, indent=1) + "\n")
    answers = sum(len(each["annotations"]) for each in tasks)
    bare = [each["data"][ITEM] for each in tasks if not each["annotations"]]
    without = f"; without a confirmed answer: {len(bare)} ({_some(bare)})" if bare else ""
    return [(out, f"{len(tasks)} tasks, {answers} annotations{without}"), (config, "the labelling configuration")]


def _decisions(task: TaskFolder, out: Path, whose: str) -> Written:
    refuse_other_ending(out, ".csv")
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
