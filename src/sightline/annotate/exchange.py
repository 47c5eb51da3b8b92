"""Answers in and out: what is signed off, files that others read, files that others wrote."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from sightline.annotate.columns import FINAL, Answer, answers_of, artifact_text, csv_text
from sightline.annotate.journal import ADJUDICATION, FIRST, SECOND
from sightline.annotate.label_studio import ITEM, label_config, label_studio_tasks
from sightline.annotate.tasks import TaskFolder
from sightline.annotate.work import ItemReadings, all_readings, check_name
from sightline.errors import SightlineError
from sightline.places.writing import is_replaced, refuse_other_ending, refuse_unusable_place
from sightline.probes.data_rows import write_text
from sightline.probes.typed_rows import SignedDecision, write_decisions

# Final decisions: refused while anything is open, then written with a name and the digests of what they rest on.


def final_decisions(task: TaskFolder, readings: Sequence[ItemReadings]) -> list[SignedDecision]:
    """One decision per item; refused in one line while somebody still has to speak."""
    refuse_open(task.path, readings)
    decided = []
    for each in readings:
        assert each.final is not None
        fields, provenance = each.final
        decision = str(fields[task.kind.decision])
        valid = task.kind.is_valid(fields)
        decided.append(SignedDecision(each.item.id, each.item.image_id, each.item.probes, decision, valid, provenance))
    return decided


def refuse_open(path: Path, readings: Sequence[ItemReadings]) -> None:
    missing = Counter(name for each in readings for name in each.missing)
    if missing:
        counted = " and ".join(f"{count} of the {name} pass" for name, count in missing.items())
        raise SightlineError(f"{path} still has open items: {counted}; 'sightline annotate status' has all counts")
    disputed = [each.item.id for each in readings if each.disputed]
    if disputed:
        raise SightlineError(
            f"{path} has {len(disputed)} open disagreements (first: {disputed[0]!r}); "
            "let a third person decide with 'sightline annotate adjudicate'"
        )


def sign_off(task: TaskFolder, who: str, out: Path) -> Mapping[str, int]:
    """Writes the decision file and returns how many items got each decision."""
    check_name(who)
    refuse_unusable_place(out.parent)
    # The digest before the readings: an answer that arrives in between makes it stale instead of vouched for.
    journal = task.journal.digest()
    decided = final_decisions(task, all_readings(task))
    head = {
        "kind": task.kind.name,
        "signed_by": who,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "items_digest": task.digest,
        "journal_digest": journal,
    }
    write_decisions(out, head, decided)
    return Counter(each.decision for each in decided)


# Answers to files, by format.

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


# Answers from files enter the journal like any other: checked, by a name, all of them or none.


def import_answers(task: TaskFolder, answers: Mapping[str, Sequence[Answer]], who: str | None) -> int:
    """Writes down answers by pass and says how many were new. ``who`` stands for names that the file does not have.

    What the same person has confirmed already, word for word, is passed over: an import may be repeated.
    """
    new = [
        (pass_, name, item.id, fields)
        for pass_, given in answers.items()
        for item, fields, said_by in given
        for name in [who or said_by]
    ]
    seen: set[tuple[str, str]] = set()
    for pass_, name, item_id, _ in new:
        if (pass_, item_id) in seen:
            raise SightlineError(f"the file answers {item_id!r} twice in the {pass_} pass; nothing was imported")
        seen.add((pass_, item_id))
        if pass_ == SECOND and not task.item(item_id).second:
            raise SightlineError(f"{item_id!r} is not in the second sample of {task.path}")
        if not name:
            raise SightlineError(f"nobody is named for {item_id!r}; say whose answers these are with --as")
        check_name(name)
    known = {(entry.pass_, entry.item): entry for entry in task.journal.current()}
    waiting = []
    for pass_, name, item_id, fields in new:
        entry = known.get((pass_, item_id))
        if entry is None:
            waiting.append((pass_, name, item_id, fields))
        elif (entry.who, entry.fields, entry.confirmed) != (name, fields, True):
            raise SightlineError(
                f"{entry.who} has already worked on {item_id!r} in the {pass_} pass; nothing was imported"
            )
    task.journal.append_all(waiting)
    return len(waiting)
