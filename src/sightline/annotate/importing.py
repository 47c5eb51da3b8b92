"""Answers from files enter the journal like any other: checked, by a name, all of them or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sightline.annotate.artifact_columns import Answer
from sightline.annotate.journal import SECOND
from sightline.annotate.task_folder import TaskFolder
from sightline.annotate.work_queue import check_name
from sightline.errors import SightlineError


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
