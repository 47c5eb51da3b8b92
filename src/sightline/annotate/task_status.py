"""How far a task is: counts alone, so that anybody may look while others still work blind."""

from __future__ import annotations

from collections.abc import Iterator

from sightline.annotate.journal import ADJUDICATION, FIRST, SECOND
from sightline.annotate.readings import all_readings
from sightline.annotate.task_folder import TaskFolder


def status_lines(task: TaskFolder) -> Iterator[tuple[str, str]]:
    """Label and words."""
    readings = all_readings(task)
    drafts = [entry for entry in task.journal.current() if entry.fields and not entry.confirmed]
    yield "task", f"{task.kind.name}, {len(task.items)} items"
    wanted = {FIRST: len(task.items), SECOND: sum(item.second for item in task.items)}
    for name in (FIRST, SECOND):
        given = [each.given[name].who for each in readings if name in each.given]
        begun = sum(entry.pass_ == name for entry in drafts)
        people = ", ".join(f"{who} {given.count(who)}" for who in sorted(set(given)))
        yield f"{name} pass", f"{len(given)} of {wanted[name]} done, {begun} begun" + (f" ({people})" if people else "")
    differing = [each for each in readings if each.differing]
    deciders = sorted({each.given[ADJUDICATION].who for each in differing if ADJUDICATION in each.given})
    words = f"{len(differing)}, of which {sum(each.disputed for each in differing)} open"
    yield "disagreements", words + (f" (decided by {', '.join(deciders)})" if deciders else "")
    yield "final", f"{sum(each.final is not None for each in readings)} of {len(task.items)}"
