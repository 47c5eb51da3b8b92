"""Answers in files: the columns of the paper's artifact, what is signed off, what others read and what they wrote."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError
from sightline.places.writing import is_replaced, refuse_other_ending, refuse_unusable_place
from sightline.probes.data_rows import csv_text, read_csv_text, write_text
from sightline.probes.regions import check_roles
from sightline.probes.typed_rows import SignedDecision, TypedBox, TypedRow, read_typed_rows, shown_size, write_decisions
from sightline_annotate.campaign import Campaign, Judgements, check_name, read_judgements
from sightline_annotate.items import BOXES, REGION, ROLE, STATUS, TEXT, Answer, AnswerError, CampaignKind, WorkItem
from sightline_annotate.journal import ADJUDICATION, FIRST, SECOND
from sightline_annotate.label_studio import ITEM, label_config, label_studio_tasks

# Boxes that people drew as rows of the paper's artifact, and back: pixels of the shown image, labels ``role:text``.


def typed_answer(item: WorkItem, fields: Mapping[str, Any]) -> TypedRow:
    """One person's answer about an item as a row."""
    shown = shown_size(*item.views[0].size)
    boxes = [TypedBox.of(box[REGION], box[ROLE], box[TEXT], shown) for box in fields[BOXES]]
    question_id = item.id.partition(":")[2] or item.id
    units, notes = str(fields.get("evidence_units", "")), str(fields.get("notes", ""))
    return TypedRow(item.id, item.task, question_id, units, tuple(boxes), notes, fields[STATUS])


def fields_of_row(item: WorkItem, row: TypedRow) -> dict[str, Any]:
    """The answer that a row stands for. A box that leaves the image by the pixel that rows allow is clipped."""
    width, height = shown_size(*item.views[0].size)
    evidence = row.evidence(width, height) if row.boxes else None
    regions = () if evidence is None else evidence.regions
    roles = check_roles(() if evidence is None else evidence.roles)
    texts = [box.label.partition(":")[2] for box in row.boxes]
    boxes = [
        {REGION: list(region), ROLE: role, TEXT: text} for region, role, text in zip(regions, roles, texts, strict=True)
    ]
    return {BOXES: boxes, STATUS: row.status, "evidence_units": str(row.evidence_units), "notes": row.notes}


# Answers in the columns of the paper's artifact: CSV for decisions about items, JSON lines for boxes; and back.

FINAL = "final"
KEYS = ("sample_id", "image_id")
ANNOTATOR = "annotator_id"
UNFINISHED = ("in_progress", "unannotated")


def answers_of(judgements: Iterable[Judgements], whose: str) -> list[Answer]:
    """Confirmed answers of one pass, or the final ones, in the order of items."""
    found: list[Answer] = []
    for each in judgements:
        if whose == FINAL:
            final = each.final
            if final is not None:
                found.append((each.item, *final))
        elif (entry := each.given.get(whose)) is not None and entry.fields is not None:
            found.append((each.item, entry.fields, entry.who))
    return found


def artifact_text(kind: CampaignKind, answers: Iterable[Answer]) -> str:
    """A whole file."""
    if kind.draws_boxes:
        rows = (asdict(typed_answer(item, fields)) for item, fields, _ in answers)
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return csv_text([{**manifest_row(item), **_columns(kind, fields, who)} for item, fields, who in answers])


def manifest_row(item: WorkItem) -> dict[str, Any]:
    """What the artifact says of an item before anybody has looked at it."""
    return {
        "sample_id": item.id,
        "image_id": item.image_id,
        "image": item.views[0].image,
        "question": item.question,
        "source_text": item.source_text,
        "target_text": item.target_text,
        "target_answer": "no" if item.target_text else "",
        "evidence_regions_json": json.dumps([list(box) for box in item.views[0].regions]),
        "selection_priority": "suspicious" if item.suspicion else item.stratum,
        "auto_suspicion_reason": ";".join(item.suspicion),
        **{name: "" if value is None else value for name, value in item.facts.items()},
    }


def _columns(kind: CampaignKind, fields: Mapping[str, Any], who: str) -> dict[str, Any]:
    """The fields, the annotator before the last one (the notes)."""
    said = {name: fields.get(name, "") for name in kind.names}
    *before, notes = said
    return {**{name: said[name] for name in before}, ANNOTATOR: who, notes: said[notes]}


def read_artifact(campaign: Campaign, path: Path) -> list[Answer]:
    """The answers in a file of the artifact; rows that nobody filled in are left out."""
    return _drawn_rows(campaign, path) if campaign.kind.draws_boxes else _decided_rows(campaign, path)


def _drawn_rows(campaign: Campaign, path: Path) -> list[Answer]:
    found = []
    for row in read_typed_rows(path):
        if row.status not in UNFINISHED:
            item = campaign.item(row.sample_id)
            found.append((item, campaign.kind.check(fields_of_row(item, row), confirmed=True), ""))
    return found


def _decided_rows(campaign: Campaign, path: Path) -> list[Answer]:
    found: list[Answer] = []
    for number, row in enumerate(read_csv_text(path), start=2):
        try:
            item = next((campaign.by_id[row[key]] for key in KEYS if row.get(key) in campaign.by_id), None)
            if item is None:
                raise SightlineError(f"has no {' or '.join(KEYS)} of an item of {campaign.path}")
            fields = {name: (row.get(name) or "").strip() for name in campaign.kind.names}
            if fields[campaign.kind.decision]:
                found.append((item, campaign.kind.check(fields, confirmed=True), (row.get(ANNOTATOR) or "").strip()))
        except SightlineError as problem:
            column = f"column {problem.field}: " if isinstance(problem, AnswerError) else ""
            raise SightlineError(f"{path} line {number}: {column}{problem}") from None
    return found


# Final decisions: refused while anything is open, then written with a name and the digests of what they rest on.


def final_decisions(campaign: Campaign, judgements: Sequence[Judgements]) -> list[SignedDecision]:
    """One decision per item; refused in one line while somebody still has to speak."""
    refuse_open(campaign.path, judgements)
    decided = []
    for each in judgements:
        assert each.final is not None
        fields, provenance = each.final
        decision, valid = str(fields[campaign.kind.decision]), campaign.kind.is_valid(fields)
        item = each.item
        text = _text_found(campaign.kind, item, fields) if campaign.kind.typed else {}
        decided.append(SignedDecision(item.id, item.image_id, item.probes, decision, valid, provenance, text))
    return decided


def _text_found(kind: CampaignKind, item: WorkItem, fields: Mapping[str, Any]) -> dict[str, Any]:
    """What stands in the box of an item, with all that finds the place again; nothing where nobody could say."""
    text, view = item.source_text if kind.is_valid(fields) else kind.typed_text(fields), item.views[0]
    found = {"image_digest": view.digest, "box": view.regions[0], "reading": item.source_text, "text": text}
    return found if text else {}


def refuse_open(path: Path, judgements: Sequence[Judgements]) -> None:
    missing = Counter(name for each in judgements for name in each.missing)
    if missing:
        counted = " and ".join(f"{count} of the {name} pass" for name, count in missing.items())
        raise SightlineError(f"{path} still has open items: {counted}; 'sightline annotate status' has all counts")
    disputed = [each.item.id for each in judgements if each.disputed]
    if disputed:
        count = f"{len(disputed)} open disagreement{'s' if len(disputed) != 1 else ''}"
        raise SightlineError(
            f"{path} has {count} (first: {disputed[0]!r}); "
            "let a third person decide with 'sightline annotate adjudicate'"
        )


def sign_off(campaign: Campaign, who: str, out: Path) -> Mapping[str, int]:
    """Writes the decision file and returns how many items got each decision."""
    check_name(who)
    refuse_unusable_place(out.parent)
    # The digest before the judgements: an answer that arrives in between makes it stale instead of vouched for.
    journal = campaign.journal.digest()
    decided = final_decisions(campaign, read_judgements(campaign))
    at = datetime.now(UTC).isoformat(timespec="seconds")
    digests = {"items_digest": campaign.digest, "journal_digest": journal}
    write_decisions(out, {"kind": campaign.kind.name, "signed_by": who, "at": at, **digests}, decided)
    return Counter(each.decision for each in decided)


# Answers to files, by format.

MOST_NAMED = 10
"""Items that a line names."""
Written = list[tuple[Path, str]]
"""Files, and what is in each in words."""


def export_answers(campaign: Campaign, file_format: str, out: Path, whose: str) -> Written:
    return _FORMATS[file_format](campaign, out, whose)


def _artifact(campaign: Campaign, out: Path, whose: str) -> Written:
    refuse_other_ending(out, ".jsonl" if campaign.kind.draws_boxes else ".csv")
    judgements = read_judgements(campaign)
    answers = answers_of(judgements, whose)
    if not answers:
        raise SightlineError(f"{campaign.path} has no {whose} answers yet, so there is nothing to write")
    write_text(out, artifact_text(campaign.kind, answers))
    return [(out, f"{len(answers)} answers{_left_out(judgements, whose)}")]


def _left_out(judgements: Sequence[Judgements], whose: str) -> str:
    """Which items are not in the file and what each waits for; nothing where all are."""
    waiting: dict[str, list[str]] = {}
    for each in judgements:
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
    return f"; left out of {len(judgements)} items: {'; '.join(said)}" if said else ""


def _some(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - MOST_NAMED} more" if len(ids) > MOST_NAMED else ""
    return ", ".join(ids[:MOST_NAMED]) + more


def _label_studio(campaign: Campaign, out: Path, whose: str) -> Written:
    tasks = label_studio_tasks(campaign.kind, read_judgements(campaign))
    refuse_other_ending(out, ".json")
    config = out.with_suffix(".xml")
    if not is_replaced(out) or config == out:
        raise SightlineError(f"{out}: two files are written, tasks and a labelling configuration; name a .json file")
    write_text(config, label_config(campaign.kind, len(campaign.items[0].views)))
    write_text(out, json.dumps(tasks, ensure_ascii=False, indent=1) + "\n")
    answers = sum(len(each["annotations"]) for each in tasks)
    bare = [each["data"][ITEM] for each in tasks if not each["annotations"]]
    without = f"; without a confirmed answer: {len(bare)} ({_some(bare)})" if bare else ""
    return [(out, f"{len(tasks)} tasks, {answers} annotations{without}"), (config, "the labelling configuration")]


def _decisions(campaign: Campaign, out: Path, whose: str) -> Written:
    refuse_other_ending(out, ".csv")
    decided = final_decisions(campaign, read_judgements(campaign))
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


_FORMATS: Mapping[str, Callable[[Campaign, Path, str], Written]] = {
    "artifact": _artifact,
    "label-studio": _label_studio,
    "decisions": _decisions,
}


# Answers from files enter the journal like any other: checked, by a name, all of them or none.


def import_answers(campaign: Campaign, answers: Mapping[str, Sequence[Answer]], who: str | None) -> int:
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
        if pass_ == SECOND and not campaign.item(item_id).second:
            raise SightlineError(f"{item_id!r} is not in the second sample of {campaign.path}")
        if not name:
            raise SightlineError(f"nobody is named for {item_id!r}; say whose answers these are with --as")
        check_name(name)
    known = {(entry.pass_, entry.item): entry for entry in campaign.journal.current()}
    waiting = []
    for pass_, name, item_id, fields in new:
        entry = known.get((pass_, item_id))
        if entry is None:
            waiting.append((pass_, name, item_id, fields))
        elif (entry.who, entry.fields, entry.confirmed) != (name, fields, True):
            raise SightlineError(
                f"{entry.who} has already worked on {item_id!r} in the {pass_} pass; nothing was imported"
            )
    campaign.journal.append_all(waiting)
    return len(waiting)
