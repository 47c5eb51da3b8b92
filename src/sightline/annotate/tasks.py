"""A task: items made from probes, in a folder of its own."""

from __future__ import annotations

import csv
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from sightline.analysis.regions import stress_tags
from sightline.annotate.items import (
    EVIDENCE,
    HARD_NEGATIVES,
    TEXT_REPLACEMENT,
    PictureView,
    SamplingRule,
    TaskKind,
    WorkItem,
    drawn_items,
    items_digest,
    items_text,
    kind_named,
    read_items,
)
from sightline.annotate.journal import Journal
from sightline.controls.text_replacement import ERASE, ORIGINAL, REPLACEMENT, SHAM
from sightline.core.probe import Box, Probe
from sightline.errors import SightlineError
from sightline.places import read_text
from sightline.places.writing import make_folder, write_whole
from sightline.probes.fetched_images import resolve_image
from sightline.probes.images import image_digest, image_size
from sightline.probes.lexical_audit import (
    changed_char_class,
    difficulty_bucket,
    edit_distance,
    edit_type,
    nfkc_casefold,
    nfkc_casefold_alnum,
    rank_bucket,
    shape,
)
from sightline.probes.probe_file import ProbeSet

# Items from probes, one function for each kind of task.

Row = Mapping[str, str]

DIFFICULTY_ORDER = ("norm_edit_le_0p10", "norm_edit_gt_0p35", "norm_edit_0p10_to_0p20", "norm_edit_0p20_to_0p35")
"""The extremes come before the middle."""
DETAILS, SUSPICIOUS = "hard_negative_lexical_details.csv", "hard_negative_suspicious_examples.csv"
"""Files of ``sightline probes audit --out``."""
MATCHES = ("global_other_image_nfkc_casefold_matches", "global_other_image_alnum_matches")
CAPTIONS = {
    ORIGINAL: "Original",
    SHAM: "Repainted with itself",
    REPLACEMENT: "Replaced by the new word",
    ERASE: "Erased",
}


@dataclass(frozen=True)
class ImageFolder:
    """Where pictures are; each file is opened once, when the task is made, so that none is missing later."""

    root: Path

    def view(self, caption: str, image: str, regions: tuple[Box, ...] = ()) -> PictureView:
        size, digest = _facts_of(resolve_image(self.root, image))
        return PictureView(caption, image, size, digest, regions)


@cache
def _facts_of(path: Path) -> tuple[tuple[int, int], str]:
    return image_size(path), image_digest(path)


@dataclass(frozen=True)
class EarlierLook:
    """What a program found before people look: it decides the order and is never shown."""

    reasons: Mapping[str, tuple[str, ...]]
    """Item -> why it is suspicious."""
    facts: Mapping[str, Row]
    """Item -> columns for the manifest."""


NO_LOOK = EarlierLook({}, {})


def hard_negative_items(probes: Sequence[Probe], images: ImageFolder, look: EarlierLook = NO_LOOK) -> list[WorkItem]:
    """One item per negative, the paper's order of difficulty; the decision is about all probes of its image."""
    negatives = [probe for probe in probes if probe.label == "no"]
    if not negatives:
        raise SightlineError("the probe set has no negatives, so there is nothing to check in it")
    siblings: dict[str, list[str]] = {}
    for probe in probes:
        siblings.setdefault(probe.image_id, []).append(probe.id)
    unknown = sorted(set(look.facts) - {probe.id for probe in negatives})
    if unknown:
        raise SightlineError(f"the audit is about other probes: {unknown[0]!r} is not a negative of this set")
    items = [
        WorkItem(
            id=probe.id,
            image_id=probe.image_id,
            question=probe.question,
            views=(images.view("The picture", probe.image, probe.regions),),
            source_text=probe.source_text,
            target_text=probe.target_text,
            probes=tuple(siblings[probe.image_id]),
            suspicion=look.reasons.get(probe.id, ()) or _worded_suspicion(probe.source_text, probe.target_text),
            **_worded(probe, look.facts.get(probe.id, {})),
        )
        for probe in negatives
    ]
    return sorted(items, key=_by_difficulty)


def text_replacement_items(probes: Sequence[Probe], images: ImageFolder, look: EarlierLook = NO_LOOK) -> list[WorkItem]:
    """One item per image: the original and its three versions."""
    groups: dict[str, dict[str, Probe]] = {}
    for probe in probes:
        version, _, asked = probe.kind.partition("_")
        if version in CAPTIONS and asked in ("source", "target"):
            groups.setdefault(probe.image_id, {})[probe.kind] = probe
    if not groups:
        raise SightlineError(
            "the probe set has no replaced images; make one with 'sightline controls build text-replacement'"
        )
    items = []
    for image_id, asked_of in groups.items():
        lacking = [kind for version in CAPTIONS for kind in [f"{version}_source"] if kind not in asked_of]
        if lacking or f"{ORIGINAL}_target" not in asked_of:
            raise SightlineError(f"image {image_id!r} has no probe {(lacking or [f'{ORIGINAL}_target'])[0]!r}")
        source, target = asked_of[f"{ORIGINAL}_source"], asked_of[f"{ORIGINAL}_target"]
        items.append(
            WorkItem(
                id=image_id,
                image_id=image_id,
                question=target.question,
                views=tuple(
                    images.view(caption, asked_of[f"{version}_source"].image, source.regions)
                    for version, caption in CAPTIONS.items()
                ),
                source_text=source.target_text,
                target_text=target.target_text,
                probes=tuple(probe.id for probe in probes if probe.image_id == image_id),
                suspicion=look.reasons.get(image_id, ()),
                **_worded(target, look.facts.get(image_id, {}), source.target_text),
            )
        )
    return sorted(items, key=_by_difficulty)


def evidence_items(probes: Sequence[Probe], images: ImageFolder, look: EarlierLook = NO_LOOK) -> list[WorkItem]:
    """One item per question; regions that the probe already has are not shown, or they would be copied."""
    items = []
    for probe in probes:
        tags = stress_tags(probe.question, probe.answers)
        items.append(
            WorkItem(
                id=probe.id,
                image_id=probe.image_id,
                question=probe.question,
                views=(images.view("The picture", probe.image),),
                answers=tuple(dict.fromkeys(probe.answers)) or (() if probe.is_open else (probe.label,)),
                task=probe.task,
                probes=(probe.id,),
                stratum=" / ".join((probe.task, *tags)),
                difficulty=f"{probe.task} {min(len(tags), 3)} tags",
            )
        )
    return items


ItemMaker = Callable[[Sequence[Probe], ImageFolder, EarlierLook], list[WorkItem]]
MAKERS: Mapping[str, ItemMaker] = {
    HARD_NEGATIVES.name: hard_negative_items,
    TEXT_REPLACEMENT.name: text_replacement_items,
    EVIDENCE.name: evidence_items,
}


def _worded(probe: Probe, known: Row, source_text: str | None = None) -> dict[str, Any]:
    """Stratum, difficulty and the manifest's columns, from the two words alone."""
    source = nfkc_casefold(probe.source_text if source_text is None else source_text)
    target = nfkc_casefold(probe.target_text)
    distance = edit_distance(source, target)
    relative = distance / max(1, len(source))
    rank = probe.extra.get("token_area_rank")
    ranked = rank if isinstance(rank, int) else None
    difficulty = difficulty_bucket(relative)
    kinds = (edit_type(source, target), changed_char_class(source, target), shape(probe.target_text))
    facts = {
        "edit_distance": distance,
        "normalized_edit_distance": round(relative, 3),
        "edit_type": kinds[0],
        "changed_char_class": kinds[1],
        "target_shape": kinds[2],
        "difficulty_bucket": difficulty,
        "token_area_rank": ranked,
        **{name: known[name] for name in MATCHES if name in known},
    }
    return {"stratum": " / ".join((*kinds, rank_bucket(ranked), difficulty)), "difficulty": difficulty, "facts": facts}


def _worded_suspicion(source: str, target: str) -> tuple[str, ...]:
    """What is suspicious without knowing the other words of the data (``LexicalFinding.reasons`` has those too)."""
    found = {
        "source_target_same": nfkc_casefold_alnum(source) == nfkc_casefold_alnum(target),
        "edit_distance_gt2": edit_distance(nfkc_casefold(source), nfkc_casefold(target)) > 2,
        "target_alnum_empty": not nfkc_casefold_alnum(target),
    }
    return tuple(name for name, holds in found.items() if holds)


def _by_difficulty(item: WorkItem) -> tuple[int, int, str]:
    return DIFFICULTY_ORDER.index(item.difficulty), -(item.facts["token_area_rank"] or 0), item.id


def earlier_look(kind: str, path: Path | None) -> EarlierLook:
    """The lexical audit's folder for hard negatives, the screening.csv for text replacements."""
    if path is None:
        return NO_LOOK
    if kind == HARD_NEGATIVES.name:
        details, suspicious = (_table(path / name, ("sample_id",)) for name in (DETAILS, SUSPICIOUS))
        reasons = {row["sample_id"]: tuple(row.get("reason", "").split(";")) for row in suspicious}
        return EarlierLook(reasons, {row["sample_id"]: row for row in details})
    if kind == TEXT_REPLACEMENT.name:
        rows = _table(path, ("image_id", "passed"))
        return EarlierLook(
            {row["image_id"]: ("not_read_as_intended",) for row in rows if row["passed"].lower() != "true"}, {}
        )
    raise SightlineError(f"--audit says nothing about tasks of kind {kind}")


def _table(path: Path, needed: Iterable[str]) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not text"
        raise SightlineError(f"cannot read {path}: {reason}") from None
    for name in needed:
        if rows and name not in rows[0]:
            raise SightlineError(f"{path} has no column {name}; it has {json.dumps(list(rows[0]))}")
    return rows


# A task is a folder: task.json says what it is, items.jsonl what is asked, journal.sqlite what people said.

RECORD, ITEMS, JOURNAL = "task.json", "items.jsonl", "journal.sqlite"
VERSION = 1


@dataclass(frozen=True)
class TaskFolder:
    """An opened task."""

    path: Path
    record: dict[str, Any]
    items: tuple[WorkItem, ...]

    @property
    def kind(self) -> TaskKind:
        return kind_named(self.record["kind"])

    @property
    def journal(self) -> Journal:
        return Journal(self.path / JOURNAL)

    @property
    def images(self) -> Path:
        """Relative to the task folder, so that both can be moved together."""
        return self.path / str(self.record["images"])

    @cached_property
    def by_id(self) -> dict[str, WorkItem]:
        return {item.id: item for item in self.items}

    @cached_property
    def digest(self) -> str:
        return items_digest(self.items)

    def item(self, name: str) -> WorkItem:
        if name not in self.by_id:
            raise SightlineError(f"{self.path} has no item {name!r}")
        return self.by_id[name]

    def refuse_missing_pictures(self) -> None:
        """One line before anything is served; whether pixels changed is seen when a picture is shown."""
        for item in self.items:
            for view in item.views:
                if not resolve_image(self.images, view.image).is_file():
                    raise SightlineError(
                        f"picture {view.image} is not in {self.images}; put the folder back where it was"
                    )

    def picture(self, name: str, view: int) -> Path:
        """The file of one picture, if its pixels are those that the task was made of."""
        views = self.item(name).views
        if not 0 <= view < len(views):
            raise SightlineError(f"item {name!r} has no picture {view}")
        path = resolve_image(self.images, views[view].image)
        if not path.is_file():
            raise SightlineError(f"picture {path} is gone")
        if image_digest(path) != views[view].digest:
            raise SightlineError(f"picture {path} was changed after the task was made")
        return path


def create_task(
    path: Path, kind: str, probes: ProbeSet, images: Path, rule: SamplingRule, look: EarlierLook
) -> TaskFolder:
    """Draws the items and writes the folder in one step: it is whole or absent."""
    if path.exists():
        raise SightlineError(f"{path} exists already; a task is never begun anew over what people said")
    if not images.is_dir():
        raise SightlineError(f"--images: there is no folder {images}")
    make_folder(path.parent)
    items = drawn_items(MAKERS[kind_named(kind).name](probes.probes, ImageFolder(images), look), rule)
    record = {
        "sightline_task": VERSION,
        "kind": kind,
        "images": os.path.relpath(images.resolve(), path.resolve()),
        "probes_digest": probes.digest,
        "items_digest": items_digest(items),
        "sampling": asdict(rule),
    }
    made = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        write_whole(made / ITEMS, items_text(items).encode())
        write_whole(made / RECORD, (json.dumps(record, indent=1) + "\n").encode())
        Journal.create(made / JOURNAL)
        made.chmod(0o755)
        made.rename(path)
    except OSError as problem:
        raise SightlineError(f"cannot make the task {path}: {problem.strerror or problem}") from None
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return TaskFolder(path, record, tuple(items))


def open_task(path: Path) -> TaskFolder:
    """Reads a task and refuses one whose items are not those that it was made with."""
    try:
        record = json.loads(read_text(path / RECORD))
    except FileNotFoundError:
        raise SightlineError(f"{path} is no task; make one with 'sightline annotate new'") from None
    except (OSError, ValueError) as problem:
        raise SightlineError(f"{path / RECORD} cannot be read: {problem}") from None
    if not isinstance(record, dict) or record.get("sightline_task") != VERSION:
        raise SightlineError(f"{path / RECORD} is not a task of version {VERSION}, which this Sightline reads")
    found = TaskFolder(path, record, tuple(read_items(path / ITEMS)))
    if found.digest != record.get("items_digest"):
        raise SightlineError(f"{path / ITEMS} was changed after the task was made; answers would be about other items")
    if not (path / JOURNAL).is_file():
        raise SightlineError(f"{path} has lost its {JOURNAL}; put it back from a copy")
    return found
