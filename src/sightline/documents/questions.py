"""Questions about a page: an open one and a yes/no pair for each of its fields; for a page without fields, its texts.

A decoy is of the same kind as the value: another one of the page for an open question; for a pair one digit or letter
changed, such that it stands nowhere on the page.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any

from sightline.answering.field_outcomes import DOCUMENTS
from sightline.core.probe import Box, Probe
from sightline.documents.fields import BELOW, RIGHT, DocumentField, Layout, find_fields
from sightline.documents.pages import DocumentPage
from sightline.documents.reading import PageLine, PageReading, folded, words_of
from sightline.documents.settings import KINDS, LABEL_MARKS, TEXT, VALUES, WORDINGS, Wording, kind_of_value, known_label
from sightline.probes.evidence import evidence_of_words, find_span, with_evidence
from sightline.probes.hard_pairs import Substrings, decoy_candidates, hard_question, normalise_word
from sightline.probes.regions import ANSWER, ImageRegions, Word

LABEL, ROW, COLUMN = "field_label", "row_header", "column_header"
SHORTEST, LONGEST = 4, 32
"""Characters of a text that a pair asks for."""
SHORTEST_VALUE = 2
"""Characters of a value that an open question asks for."""
PROSE = 4
"""Words of a line from which on it is prose, whose words are asked for."""
DIGITS = 5
"""Decimals of coordinates in ``extra``: less than a pixel of any page."""


@dataclass(frozen=True)
class QuestionRules:
    """How many questions a page gives, and how they are worded."""

    wording: Wording = "place"
    fields_per_page: int = 6
    """Fields that are asked for, spread over the kinds that a page has; 0 for all."""
    seed: int = 17


def page_probes(page: DocumentPage, reading: PageReading, rules: QuestionRules) -> tuple[list[Probe], dict[str, int]]:
    """The probes of one page, and why labels with a value became no field. Draws are seeded by the page's id."""
    rng = random.Random(f"{rules.seed} {page.page_id}")
    found = find_fields(reading)
    layout = Layout(reading)
    most = rules.fields_per_page or len(found.fields)
    chosen = _spread(found.fields, most, rng)
    chosen += _plain_fields(layout, chosen, (rules.fields_per_page or 6) - len(chosen), rng)
    texts = [line.text for line in (*reading.lines, *reading.dropped)]
    asked = _Page(page, reading, Substrings([*texts, *("".join(text.split()) for text in texts)]), rng)
    probes = []
    for number, field in enumerate(chosen, start=1):
        probes += asked.open_question(field, number, found.fields, rules.wording)
        probes += asked.pair(field, number)
    return probes, dict(found.refused)


def _spread(fields: Sequence[DocumentField], most: int, rng: random.Random) -> list[DocumentField]:
    """One of each kind in turn until there are enough; values that stand nowhere else first, then short labels."""
    waiting = {kind: [field for field in fields if field.kind == kind] for kind in KINDS}
    for group in waiting.values():
        rng.shuffle(group)
        group.sort(key=lambda field: (field.elsewhere > 0, len(field.label.split())))
    chosen: list[DocumentField] = []
    while len(chosen) < most and any(waiting.values()):
        chosen += [group.pop(0) for group in waiting.values() if group][: most - len(chosen)]
    return chosen


def _plain_fields(
    layout: Layout, chosen: Sequence[DocumentField], most: int, rng: random.Random
) -> list[DocumentField]:
    """Texts that stand right of or below another one, each once on the page: what any page can be asked for."""
    taken = {field.value_box for field in chosen} | {field.label_box for field in chosen}
    found = [field for line in layout.lines for field in (*_neighbours(layout, line), *_successors(line))]
    rng.shuffle(found)
    kept: list[DocumentField] = []
    for field in found:
        boxes = {field.value_box, field.label_box}
        if len(kept) >= most or boxes & taken or not (_is_word(field.label) and _is_word(field.value)):
            continue
        if layout.count(field.label) == layout.count(field.value) == 1 and layout.is_asked(field):
            kept.append(field)
            taken |= boxes
    return kept


def _neighbours(layout: Layout, line: PageLine) -> Iterator[DocumentField]:
    """The next text in the row; the one below, if nothing stands beside that."""
    for relation, others in ((RIGHT, layout.right_of(line)), (BELOW, layout.below(line))):
        if others and not others[0].reason and not (relation == BELOW and layout.right_of(others[0])):
            label, value = line.text.strip(LABEL_MARKS), others[0].text.strip(LABEL_MARKS)
            yield DocumentField(TEXT, label, line.box, value, others[0].box, relation)


def _successors(line: PageLine) -> Iterator[DocumentField]:
    """Of a line of prose each word with the next one."""
    words = words_of(line)
    for place, (word, following) in enumerate(pairwise(words) if len(words) >= PROSE else ()):
        rest = " ".join(each.text for each in words[place + 1 :])
        yield DocumentField(TEXT, word.text, word.box, following.text, following.box, RIGHT, whole=rest)


def _is_word(text: str) -> bool:
    """Words: of mixtures with digits an engine is often sure and wrong."""
    return SHORTEST <= len(text) <= LONGEST and kind_of_value(text) == "name"


@dataclass(frozen=True)
class _Page:
    """What all questions about one page share."""

    page: DocumentPage
    reading: PageReading
    traces: Substrings
    rng: random.Random

    def open_question(
        self, field: DocumentField, number: int, fields: Sequence[DocumentField], wording: Wording
    ) -> list[Probe]:
        if len(field.value) < SHORTEST_VALUE:
            return []
        question, target = worded(field, fields, wording)
        answers = tuple(dict.fromkeys(filter(None, (field.value, field.whole))))
        regions: list[tuple[Box, str]] = [(field.value_box, ANSWER)]
        regions += [(field.label_box, COLUMN if field.row else LABEL)]
        regions += [(field.row_box, ROW)] if field.row_box else []
        probe = Probe(
            id=f"{self.page.page_id}:{number}-{field.kind}:open",
            image=self.page.image,
            image_id=self.page.page_id,
            question=question,
            label="open",
            target_text=target,
            source_text=field.value,
            regions=tuple(box for box, _ in regions),
            kind=field.kind,
            answers=answers,
            roles=tuple(role for _, role in regions),
            task=DOCUMENTS,
            decoy=other_value(self.reading, field.kind, answers, self.rng) or next(iter(self.changed(field.value)), ""),
            extra=self.extra(field),
        )
        return [probe]

    def pair(self, field: DocumentField, number: int) -> list[Probe]:
        """Both or none: the value has to stand once, and something close to it nowhere."""
        text = normalise_word(field.value, "strict-v3")
        decoys = self.changed(text)
        if not SHORTEST <= len(text) <= LONGEST or field.elsewhere or not decoys:
            return []
        asked = {"yes": text, "no": self.rng.choice(decoys)}
        return [
            Probe(
                id=f"{self.page.page_id}:{number}-{field.kind}:{label}",
                image=self.page.image,
                image_id=self.page.page_id,
                question=hard_question(words),
                label="yes" if label == "yes" else "no",
                target_text=words,
                source_text=text,
                regions=(field.value_box,),
                kind=field.kind,
                extra=self.extra(field),
            )
            for label, words in asked.items()
        ]

    def changed(self, text: str) -> list[str]:
        """The text with one digit, or in a text without any one letter, changed; only what stands nowhere here."""
        digits = any(sign.isdigit() for sign in text)
        return [
            decoy
            for decoy in decoy_candidates(text, self.traces, "strict-v3")
            if len(decoy) == len(text)
            and (kind_of_value(text) != "date" or _is_plausible(decoy))
            and "".join(decoy.casefold().split()) not in self.traces
            and all(
                one == other or (one.isdigit() and other.isdigit() if digits else one.isalpha() and other.isalpha())
                for one, other in zip(text, decoy, strict=True)
            )
        ]

    def extra(self, field: DocumentField) -> dict[str, Any]:
        height = (field.value_box[3] - field.value_box[1]) * self.page.height
        facts: dict[str, Any] = {"relation": field.relation, "text_px": round(height, 1)}
        if field.elsewhere:
            facts["value_elsewhere"] = field.elsewhere
        return facts | page_extra(self.page, self.reading)


def _is_plausible(date: str) -> bool:
    """Whether every day and month of a date could be one: else its text alone gives a decoy away."""
    return all(0 < int(number) <= 31 for number in re.findall(r"(?<!\d)\d{1,2}(?!\d)", date)) and bool(
        re.search(r"(?<!\d)0?[1-9](?!\d)|(?<!\d)1[0-2](?!\d)|[^\W\d_]{3}", date)
    )


def page_extra(page: DocumentPage, reading: PageReading) -> dict[str, Any]:
    """What every probe of a page carries: its texts with boxes in fractions, and which page of which file it is."""
    texts = [[line.text, *(round(value, DIGITS) for value in line.box)] for line in reading.lines]
    return {"page": texts, "source": page.source} | ({"page_number": page.number} if page.number else {})


def worded(field: DocumentField, fields: Sequence[DocumentField], wording: Wording) -> tuple[str, str]:
    """The question, and what it names: a label, or what an invoice reader calls the field if only one is called so."""
    words = WORDINGS[wording]
    if wording == "place":
        return words[field.relation].format(label=field.label, row=field.row), field.label
    alike = sum(other.called == field.called for other in fields)
    if field.called and alike == 1 and not field.row:
        return words["called"].format(called=field.called), field.called
    return words[field.kind].format(label=field.label, row=field.row), field.label


def other_value(reading: PageReading, kind: str, answers: Iterable[str], rng: random.Random) -> str:
    """Another value of the kind that stands on the page, in a text of its own or as a word of one; else empty."""
    right = [folded(answer) for answer in answers]
    kind = {"total": "amount", "table_cell": "", TEXT: ""}.get(kind, kind) or kind_of_value(right[0])
    texts = [line.text for line in reading.lines if known_label(line.text) is None]
    texts += [] if kind == "name" else [word.text for line in reading.lines for word in words_of(line)]
    found = []
    for text in (text.strip(LABEL_MARKS) for text in texts):
        if kind != TEXT and kind_of_value(text) == kind and (match := VALUES[kind].fullmatch(text)) is not None:
            found.append(match["value"] if "value" in match.re.groupindex else text)
    alike = {text for text in found for one in right if folded(text) in one or one in folded(text)}
    others = [text for text in dict.fromkeys(found) if text not in alike]
    return rng.choice(others) if others else ""


# Questions of somebody else: their pages, evidence where the answer was read, the kind that it looks like.


def asked_probes(
    questions: Sequence[Probe],
    pages: Sequence[DocumentPage],
    readings: Mapping[str, PageReading],
    rules: QuestionRules,
) -> tuple[list[Probe], list[str]]:
    """The questions on the pages of these documents, and a line for each that has none.

    A question about a file of several pages is about the one page on which its answer was read.
    """
    by_name: dict[str, list[DocumentPage]] = {}
    for page in pages:
        source = PurePosixPath(page.source)
        names = (page.page_id, page.image, page.source, source.name, source.stem, str(source.with_suffix("")))
        for name in dict.fromkeys((*names, f"{page.source}#{page.number or 1}")):
            by_name.setdefault(name, []).append(page)
    placed: list[Probe] = []
    homes: dict[str, DocumentPage] = {}
    lines = []
    for probe in questions:
        meant = _pages_named(probe.image, by_name)
        if not meant and not re.search(r"#\d+$", probe.image):  # of a file without this page no other one is meant
            meant = by_name.get(probe.image_id, [])
        if len(meant) > 1:
            meant = [page for page in meant if find_span(_texts(readings[page.image]), probe.answers) is not None]
        if len(meant) != 1:
            reason = "is on none of the pages" if not meant else f"could be on {len(meant)} pages"
            lines.append(f"question {probe.id}: {probe.image} {reason}; name its page, FILE#2 say")
            continue
        homes[probe.id] = meant[0]
        placed.append(replace(probe, image=meant[0].image, image_id=meant[0].page_id))
    records = [region_record(page, readings[page.image]) for page in dict.fromkeys(homes.values())]
    without = [probe for probe in placed if not probe.regions]
    found = []
    for probe in with_evidence(placed, evidence_of_words(without, records)):
        page = homes[probe.id]
        rng = random.Random(f"{rules.seed} {probe.id}")
        guessed = kind_of_value(probe.answers[0]) if probe.answers else TEXT
        decoy = probe.decoy or other_value(readings[page.image], guessed, probe.answers, rng)
        extra = {**probe.extra, **page_extra(page, readings[page.image])}
        kind = guessed if probe.kind in ("", probe.task) else probe.kind
        task = DOCUMENTS if probe.task in ("", "qa") else probe.task
        found.append(replace(probe, task=task, kind=kind, decoy=decoy, extra=extra))
    return found, lines


def _pages_named(name: str, by_name: Mapping[str, list[DocumentPage]]) -> list[DocumentPage]:
    """The pages that a path means, perhaps one of another machine: ``2023/a.png`` is not the page ``2024/a.png``."""
    if name in by_name:
        return by_name[name]
    parts = PurePosixPath(name).parts
    ends = ("/".join(parts[start:]) for start in range(1, len(parts)))
    met = (page for end in ends for page in by_name.get(end, ()) if end in (page.page_id, page.image, page.source))
    return list(dict.fromkeys(met))[:1]


def region_record(page: DocumentPage, reading: PageReading) -> ImageRegions:
    """The words of a page that count, as annotations have them."""
    words = tuple(Word(word.text, word.box) for line in reading.lines for word in words_of(line))
    return ImageRegions(page.page_id, page.image, words, page.width, page.height)


def _texts(reading: PageReading) -> list[str]:
    return [word.text for line in reading.lines for word in words_of(line)]
