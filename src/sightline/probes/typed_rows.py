"""Evidence that people draw: one row per question, boxes in pixels, each labelled ``role:text``.

{"sample_id": "docvqa:49153", "task": "docvqa", "question_id": "49153", "evidence_units": 1,
 "boxes": [{"x": 310, "y": 420, "w": 88, "h": 21, "label": "answer_value:2000"}], "notes": "", "status": "annotated"}

Pixels are those of the image as it was shown: RGB, its longest side at most 1600 pixels.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sightline.core.probe import Box, Probe
from sightline.errors import SightlineError, located
from sightline.places.listing import open_file
from sightline.probes.data_rows import read_objects, write_text
from sightline.probes.evidence import Evidence, SizeOf
from sightline.probes.probe_file import lines_digest
from sightline.probes.regions import ANSWER, CONTEXT, ROLES, clip_to_image, four_numbers

LONGEST_SIDE = 1600
JPEG_QUALITY = 92
ANNOTATED = "annotated"
STATUSES = (ANNOTATED, "needs_review", "not_visible", "in_progress", "uncertain", "unannotated")
_MARGIN = 1.0
"""Pixels that a box may leave the image by."""
_KEYS = {"sample_id", "task", "question_id", "evidence_units", "boxes", "notes", "status"}


@dataclass(frozen=True)
class TypedBox:
    """One box as it was drawn."""

    x: float
    y: float
    w: float
    h: float
    label: str

    @classmethod
    def of(cls, region: Box, role: str, text: str, shown: tuple[int, int]) -> TypedBox:
        """A region in fractions of an image that is shown at this size; a hundredth of a pixel is kept."""
        (x1, y1, x2, y2), (width, height) = region, shown
        x, y = round(x1 * width, 2), round(y1 * height, 2)
        return cls(x, y, round((x2 - x1) * width, 2), round((y2 - y1) * height, 2), f"{role}:{text}")

    @property
    def role(self) -> str:
        return self.label.partition(":")[0].strip()


@dataclass(frozen=True)
class TypedRow:
    """What somebody drew for one question. Only a row of status ``annotated`` is evidence."""

    sample_id: str
    task: str
    question_id: str
    evidence_units: Any = ""
    """How many things have to be read, in the annotator's words."""
    boxes: tuple[TypedBox, ...] = ()
    notes: str = ""
    status: str = "unannotated"

    def evidence(self, width: int, height: int) -> Evidence:
        """Regions and roles of an annotated row about an image that was shown at this size."""
        if not self.boxes:
            raise SightlineError(f"{self.sample_id} is {ANNOTATED} but has no box")
        regions = tuple(_region(box, width, height) for box in self.boxes)
        return Evidence(regions, tuple(box.role for box in self.boxes))


def shown_size(width: int, height: int) -> tuple[int, int]:
    """The size at which an image is shown to annotators: no side above 1600 pixels, never enlarged."""
    scale = min(1.0, LONGEST_SIDE / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def read_typed_rows(path: Path, *, complete: bool = False) -> list[TypedRow]:
    """The rows of a file.

    Parameters
    ----------
    complete: every row must be annotated, and none may carry the label of a trial run ("smoke").
    """
    rows: dict[str, TypedRow] = {}
    for number, cells in read_objects(path):
        with located(f"{path} line {number}"):
            row = _row(cells)
            if row.sample_id in rows:
                raise SightlineError(f"sample_id {row.sample_id!r} occurs twice")
            if complete and row.status != ANNOTATED:
                raise SightlineError(f"{row.sample_id} is {row.status}, not {ANNOTATED}")
            if complete and any("smoke" in box.label.lower() for box in row.boxes):
                raise SightlineError(f"{row.sample_id} has a box of a trial run ({row.boxes[0].label})")
        rows[row.sample_id] = row
    if not rows:
        raise SightlineError(f"{path}: holds no rows")
    return list(rows.values())


def evidence_of_rows(probes: Iterable[Probe], rows: Sequence[TypedRow], size_of: SizeOf) -> dict[str, Evidence]:
    """The evidence of annotated rows by probe id; ``size_of`` is the size of an image file in pixels."""
    images = {probe.id: probe.image for probe in probes}
    return {
        row.sample_id: row.evidence(*shown_size(*size_of(images[row.sample_id])))
        for row in rows
        if row.status == ANNOTATED and row.sample_id in images
    }


def typed_row(probe: Probe, width: int, height: int) -> TypedRow:
    """A row to begin with: the regions that a probe has, or none, on its image of this size in pixels."""
    roles = probe.roles or (CONTEXT,) * len(probe.regions)
    answer = {ANSWER: probe.answers[0]} if probe.answers else {}
    boxes = [
        TypedBox.of(region, role, answer.get(role, ""), shown_size(width, height))
        for region, role in zip(probe.regions, roles, strict=True)
    ]
    question_id = probe.id.partition(":")[2] or probe.id
    status = "needs_review" if boxes else "unannotated"
    return TypedRow(probe.id, probe.task, question_id, boxes=tuple(boxes), status=status)


def write_typed_rows(path: Path, rows: Iterable[TypedRow]) -> None:
    write_text(path, "".join(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows))


def _row(cells: dict[str, Any]) -> TypedRow:
    unknown = sorted(set(cells) - _KEYS)
    if unknown:
        raise SightlineError(f"unknown key {unknown[0]!r}; a row has {', '.join(sorted(_KEYS))}")
    sample_id, status, boxes = cells.get("sample_id"), cells.get("status", "unannotated"), cells.get("boxes", [])
    if not isinstance(sample_id, str) or not sample_id:
        raise SightlineError("has no sample_id")
    if status not in STATUSES:
        raise SightlineError(f"status {status!r} is not one of {', '.join(STATUSES)}")
    if not isinstance(boxes, list):
        raise SightlineError(f"boxes {boxes!r} are not a list")
    task, question_id, notes = (str(cells.get(key) or "") for key in ("task", "question_id", "notes"))
    drawn = tuple(_typed_box(box) for box in boxes)
    return TypedRow(sample_id, task, question_id, cells.get("evidence_units", ""), drawn, notes, status)


def _typed_box(box: Any) -> TypedBox:
    four = four_numbers([box.get(side) for side in ("x", "y", "w", "h")]) if isinstance(box, dict) else None
    if four is None:
        raise SightlineError(f"box {box!r} is not an object with numbers x, y, w, h and a label")
    typed = TypedBox(*four, str(box.get("label") or ""))
    if typed.role not in ROLES:
        raise SightlineError(f"label {typed.label!r} does not begin with one of {', '.join(ROLES)} and a colon")
    return typed


def _region(box: TypedBox, width: int, height: int) -> Box:
    right, lower = box.x + box.w, box.y + box.h
    if box.w <= 0 or box.h <= 0:
        raise SightlineError(f"box {box.label!r} has no width or no height")
    if min(box.x, box.y) < -_MARGIN or right > width + _MARGIN or lower > height + _MARGIN:
        raise SightlineError(f"box {box.label!r} leaves its image of {width} x {height} pixels")
    region = clip_to_image((box.x / width, box.y / height, right / width, lower / height))
    if region is None:
        raise SightlineError(f"box {box.label!r} lies outside its image of {width} x {height} pixels")
    return region


# What people decided about probes, signed off: JSON lines under a header that carries digests and a name.
#
# {"sightline_decisions": 1, "kind": "hard-negatives", "signed_by": "carol", "at": "...", "items_digest": "sha256:...",
# "journal_digest": "sha256:...", "digest": "sha256:..."} {"id": "a7ad:hard-nearmiss-neg", "image_id": "a7ad",
# "probes": ["...", "..."], "decision": "valid_negative", "valid": true, "provenance": "agreement"}

HEAD = "sightline_decisions"
VERSION = 1


@dataclass(frozen=True)
class SignedDecision:
    """What was decided about one item, and the probes that it concerns."""

    id: str
    image_id: str
    probes: tuple[str, ...]
    decision: str
    valid: bool
    provenance: str
    """Two people agreed, a third decided, or one person looked."""
    text: Mapping[str, Any] = field(default_factory=dict)
    """Of a text that people read: ``image_digest``, ``box``, ``reading`` and ``text``; not written where empty."""


@dataclass(frozen=True)
class SignedDecisions:
    """A decision file."""

    path: Path
    head: Mapping[str, Any]
    decisions: tuple[SignedDecision, ...]

    @property
    def valid_probes(self) -> frozenset[str]:
        return frozenset(name for each in self.decisions if each.valid for name in each.probes)

    @property
    def valid_images(self) -> frozenset[str]:
        return frozenset(each.image_id for each in self.decisions if each.valid)


def write_decisions(path: Path, head: Mapping[str, Any], decisions: Iterable[SignedDecision]) -> None:
    rows = [{name: value for name, value in asdict(each).items() if value or name != "text"} for each in decisions]
    first = {HEAD: VERSION, **head, "digest": lines_digest(rows)}
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in (first, *rows)))


def is_decision_file(path: Path) -> bool:
    """Whether a file begins like one; what cannot be read is left to whoever reads it."""
    try:
        with open_file(path) as stream:
            return stream.read(len(HEAD) + 3).lstrip().startswith(f'{{"{HEAD}'.encode())
    except OSError:
        return False


def read_decision_file(path: Path) -> SignedDecisions:
    """Reads a file and refuses one that was changed after it was signed."""
    lines = read_objects(path)
    _, head = next(lines, (0, {}))
    if head.get(HEAD) != VERSION:
        raise SightlineError(
            f"{path} is not a decision file of version {VERSION}; 'sightline annotate sign-off' makes one"
        )
    rows = [row for _, row in lines]
    if head.get("digest") != lines_digest(rows):
        raise SightlineError(f"{path} was changed after it was signed off by {head.get('signed_by')}; sign off again")
    try:
        found = tuple(SignedDecision(**{**row, "probes": tuple(row["probes"])}) for row in rows)
    except (TypeError, KeyError) as problem:
        raise SightlineError(f"{path} has a line that is no decision: {problem}") from None
    return SignedDecisions(path, head, found)
