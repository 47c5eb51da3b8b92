"""From a folder of documents to probes in one call: pages, texts, fields, questions; what is left out is said."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightline.core.probe import Box, Probe
from sightline.documents.pages import RULE, DocumentPage, FoundPages, find_pages
from sightline.documents.questions import QuestionRules, asked_probes, page_probes
from sightline.documents.reading import FIRST, NO_TEXT, PageReading, apply_decisions, read_pages, reasons, second_engine
from sightline.documents.settings import KINDS, READING, Wording, check_wording
from sightline.errors import SightlineError
from sightline.places.writing import write_whole
from sightline.probes.annotations import read_annotations
from sightline.probes.data_rows import file_digest, read_objects
from sightline.probes.formats.regions import HEADER
from sightline.probes.images import image_digest
from sightline.probes.probe_file import ProbeSet
from sightline.probes.typed_rows import read_decision_file

PAGES_FILE, PAGES_FOLDER = "pages.jsonl", "pages"
MOST_NAMED = 5
"""Questions without a page that are named; the others are counted."""
TEXTS = "texts"
"""The kind of campaign in which people look at texts that do not count."""


@dataclass(frozen=True)
class DocumentProbes:
    """Probes about the pages of documents, and what became of everything else."""

    probes: tuple[Probe, ...]
    root: Path
    """The folder that image names are relative to."""
    pages: tuple[DocumentPage, ...]
    readings: Mapping[str, PageReading]
    """Image name -> what was read on it."""
    pages_file: Path
    """Where ``write_pages`` puts all texts, those that do not count as boxes without text, with what was read."""
    counts: Mapping[str, int]
    lines: tuple[str, ...]
    """What there is to say, a line each: first what was made, then what was left out and why."""
    construction: Mapping[str, Any]
    """How the probes were made, for the header of a probe file."""


def build_document_probes(
    documents: str | Path | Sequence[str | Path],
    out: Path,
    *,
    questions: Path | Sequence[Path] | None = None,
    ocr: str = FIRST,
    second: str | None = "auto",
    wording: Wording = "place",
    fields_per_page: int = 6,
    seed: int = 17,
    limit_pages: int | None = None,
    gather: bool = False,
    accepted: Path | None = None,
) -> DocumentProbes:
    """Reads documents and asks about them.

    Parameters
    ----------
    documents: a folder, an image, a PDF, or a list of them.
    out: the folder in which pages that have to be converted are written, below ``pages/``.
    questions: a file with image, question and answers: then these are asked, with evidence, instead of fields.
    ocr, second: text detectors that read; the second is ``auto`` (Tesseract where it is installed), a name, or None.
    fields_per_page: so many at most, spread over their kinds; 0 for all.
    limit_pages: only so many first pages.
    gather: all pages stand below ``out``, not where they are.
    accepted: a file of ``sightline annotate sign-off``: texts that people have read count too.
    """
    check_wording(wording)
    rules = QuestionRules(wording, fields_per_page, seed)
    other = second_engine() if second == "auto" else second
    found = find_pages(documents, out / PAGES_FOLDER, limit=limit_pages, gather=gather)
    names = [page.image for page in found.pages]
    readings = read_pages(found.root, names, first=ocr, second=other)
    unfound: list[str] = []
    if accepted is not None:
        readings, unfound = _accept(found, readings, accepted)
    made, refused, unasked = _questions(found, readings, questions, rules)
    if not made and unasked:
        raise SightlineError(f"no question is about one of the {len(found.pages)} pages: {unasked[1]}")
    if not made:
        count = len(found.pages)
        first = next(iter(_left_out(found, readings)), "nothing on them can be asked for")
        raise SightlineError(
            f"{count} page{'s give' if count != 1 else ' gives'} no question: {first.rstrip('.')}; scan "
            "upright at 150 dpi or more, or bring questions of your own"
        )
    counts = _counts(found, readings, made)
    lines = [*_told(found, readings, made, counts, refused, other), *unfound]
    lines += [*(f"left out     {each}" for each in _left_out(found, readings)), *unasked]
    construction = {
        "documents": len({page.source for page in found.pages}), "pages": len(found.pages), "ocr": ocr,
        "second": other or "", "sure": READING["sure"], "misread": READING["misread"], "rendering": RULE,
        "wording": wording, "fields_per_page": fields_per_page, "seed": seed,
        **({} if accepted is None else {"texts": file_digest(accepted)}),
    }  # fmt: skip
    pages_file, told = out / PAGES_FILE, tuple(lines)
    return DocumentProbes(tuple(made), found.root, found.pages, readings, pages_file, counts, told, construction)


def _questions(
    found: FoundPages,
    readings: Mapping[str, PageReading],
    questions: Path | Sequence[Path] | None,
    rules: QuestionRules,
) -> tuple[list[Probe], Counter[str], list[str]]:
    """The probes, why labels with a value became no field, and a line for every question without a page."""
    refused: Counter[str] = Counter()
    usable = [page for page in found.pages if not readings[page.image].problem]
    if questions:
        given = read_annotations(questions, {}, images=found.root)
        if not given.probes:
            raise SightlineError(f"{questions} asks no questions; it needs columns image, question and answers")
        made, lines = asked_probes(given.probes, usable, readings, rules)
        more = [f"{len(lines) - MOST_NAMED} more questions are on none of the pages"] if len(lines) > MOST_NAMED else []
        return made, refused, [f"questions    {', '.join(given.counts.notes())}", *lines[:MOST_NAMED], *more]
    probes: list[Probe] = []
    for page in usable:
        asked, why = page_probes(page, readings[page.image], rules)
        probes += asked
        refused.update(why)
    return probes, refused, []


def write_pages(built: DocumentProbes) -> None:
    """A regions file of all that was read. What does not count is a box without text; its reading stands beside it."""
    rows: list[dict[str, Any]] = [{HEADER: 1, "boxes": "xyxy", "units": "normalised"}]
    for page in built.pages:
        reading = built.readings[page.image]
        words: list[dict[str, Any]] = [{"text": line.text, "box": list(line.box)} for line in reading.lines]
        words += [
            {"text": "", "box": list(line.box), "reading": line.text, "reason": line.reason,
             "confidence": round(line.confidence, 4)}
            for line in reading.dropped
        ]  # fmt: skip
        size = {"width": page.width, "height": page.height}
        rows.append({"image_id": page.page_id, "image": page.image, **size, "words": words})
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_whole(built.pages_file, text.encode(), make_parent=True)


def read_dropped(path: Path) -> ProbeSet:
    """The texts of a pages file that do not count, as questions to people; those without a letter come last."""
    asked: list[Probe] = []
    for number, row in read_objects(path):
        try:
            for place, word in enumerate(row.get("words", ())):
                if "reading" not in word:
                    continue
                x1, y1, x2, y2 = map(float, word["box"])
                reason, reading, sure = word["reason"], word["reading"], word["confidence"]
                question = f"What a program read here does not count: {reason} (confidence {sure:.2f})."
                asked.append(
                    Probe(
                        f"{row['image_id']}:{place}", row["image"], row["image_id"], question, "open", "", reading,
                        ((x1, y1, x2, y2),), kind=reason, extra={"reason": reason, "confidence": sure},
                    )
                )  # fmt: skip
        except (KeyError, TypeError, ValueError) as problem:
            raise SightlineError(f"{path} line {number} is not a page as Sightline writes it: {problem!r}") from None
    if not asked:
        raise SightlineError(
            f"{path} has no text that was dropped; 'sightline audit' and 'sightline probes build --ocr' write them "
            f"into {PAGES_FILE}"
        )
    return ProbeSet(tuple(sorted(asked, key=lambda probe: probe.kind == NO_TEXT)))


def _accept(
    found: FoundPages, readings: Mapping[str, PageReading], path: Path
) -> tuple[dict[str, PageReading], list[str]]:
    """Readings in which texts count that people have read, and a line about those that stand on no page."""
    signed = read_decision_file(path)
    if signed.head.get("kind") != TEXTS:
        raise SightlineError(f"{path} holds decisions of another kind: make it from 'annotate new --kind {TEXTS}'")
    said: dict[str, dict[tuple[str, Box], str]] = {}
    for text in filter(None, (each.text for each in signed.decisions)):
        try:
            x1, y1, x2, y2 = map(float, text["box"])
            digest, reading, stands = (str(text[key]) for key in ("image_digest", "reading", "text"))
        except (KeyError, TypeError, ValueError, OverflowError) as problem:
            raise SightlineError(f"{path} has a text that 'annotate sign-off' does not write: {problem!r}") from None
        said.setdefault(digest, {})[reading, (x1, y1, x2, y2)] = stands
    taken = {
        name: apply_decisions(reading, said.get(image_digest(found.root / name), {})) if reading.dropped else reading
        for name, reading in readings.items()
    }
    lost = sum(map(len, said.values())) - sum(line.by_people for page in taken.values() for line in page.lines)
    return taken, [f"not found    {lost} texts of {path} are not among those dropped here"] if lost > 0 else []


def _counts(found: FoundPages, readings: Mapping[str, PageReading], probes: Sequence[Probe]) -> dict[str, int]:
    kinds = Counter(probe.kind for probe in probes if probe.is_open)
    labels = Counter(probe.label for probe in probes)
    return {
        "pages": len(found.pages),
        "pages_converted": found.converted,
        "pages_with_questions": len({probe.image for probe in probes}),
        "pages_left_out": sum(bool(reading.problem) for reading in readings.values()),
        "files": len({page.source for page in found.pages}),
        "files_refused": len(found.problems),
        "files_of_other_kinds": found.left_out,
        "texts": sum(len(reading.lines) for reading in readings.values()),
        "texts_agreed": sum(line.agreed for reading in readings.values() for line in reading.lines),
        "texts_by_people": sum(line.by_people for reading in readings.values() for line in reading.lines),
        "texts_dropped": sum(len(reading.dropped) for reading in readings.values()),
        **{label: labels[label] for label in ("open", "yes", "no")},
        **{kind: kinds[kind] for kind in KINDS if kinds[kind]},
    }


def _told(
    found: FoundPages,
    readings: Mapping[str, PageReading],
    probes: Sequence[Probe],
    counts: Mapping[str, int],
    refused: Mapping[str, int],
    second: str | None,
) -> list[str]:
    """What was made, in the words and columns of the command line."""
    converted = f"; {counts['pages_converted']} converted ({RULE})" if found.converted else ""
    others = f"; {found.left_out} files of other kinds passed over" if found.left_out else ""
    agreed = f", {counts['texts_agreed']} of them read alike by {second}" if second else ""
    if counts["texts_by_people"]:
        agreed += f", {counts['texts_by_people']} read by people"
    why = ", ".join(f"{count} {reason}" for reason, count in reasons(readings.values()).most_common())
    dropped = f"{counts['texts_dropped']} do not{f': {why}' if why else ''}"
    kinds = ", ".join(f"{counts[kind]} {kind}" for kind in KINDS if kind in counts)
    lines = [
        f"pages        {counts['pages']} pages of {counts['files']} files{converted}{others}",
        f"texts        {counts['texts']} count{agreed}; {dropped}",
        f"built        {len(probes)} probes ({counts['open']} open, {counts['yes']} yes, {counts['no']} no) "
        f"from {counts['pages_with_questions']} pages{f'; {kinds}' if kinds else ''}",
    ]
    if refused:
        why = ", ".join(f"{reason} ({count})" for reason, count in Counter(refused).most_common())
        lines.append(f"no field     {why}")
    without = [reading for reading in readings.values() if not reading.problem]
    silent = len(without) - counts["pages_with_questions"]
    return lines + ([f"no question  {silent} pages with text give none"] if silent > 0 else [])


def _left_out(found: FoundPages, readings: Mapping[str, PageReading]) -> list[str]:
    """Every file and page that is left out, and why."""
    pages = [(page.page_id, readings[page.image].problem) for page in found.pages]
    return [f"{name}: {problem}" for name, problem in (*found.problems, *pages) if problem]
