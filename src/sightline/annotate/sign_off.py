"""Final decisions: refused while anything is open, then written with a name and the digests of what they rest on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from sightline.annotate.readings import ItemReadings, all_readings
from sightline.annotate.task_folder import TaskFolder
from sightline.annotate.work_queue import check_name
from sightline.errors import SightlineError
from sightline.places.writing import refuse_unusable_place
from sightline.probes.decision_file import SignedDecision, write_decisions


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
