"""A new campaign: items made from probes, the order in which people meet them, and who else sees them."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

from sightline.analysis.regions import stress_tags
from sightline.controls.text_replacement import ERASE, ORIGINAL, REPLACEMENT, SHAM
from sightline.core.probe import Box, Probe
from sightline.core.text import edit_distance
from sightline.errors import SightlineError
from sightline.places.writing import make_folder, whole_folder, write_whole
from sightline.probes.data_rows import read_csv_text
from sightline.probes.fetched_images import resolve_image
from sightline.probes.images import image_digest, image_size
from sightline.probes.lexical_audit import (
    changed_char_class,
    difficulty_bucket,
    edit_type,
    nfkc_casefold,
    nfkc_casefold_alnum,
    rank_bucket,
    shape,
)
from sightline.probes.probe_file import ProbeSet
from sightline_annotate.campaign import ITEMS, JOURNAL, RECORD, VERSION, Campaign
from sightline_annotate.items import (
    EVIDENCE,
    HARD_NEGATIVES,
    TEXT_REPLACEMENT,
    TEXTS,
    PictureView,
    WorkItem,
    hashed,
    items_digest,
    items_text,
    kind_named,
)
from sightline_annotate.journal import Journal

# Items from probes, one function for each kind of campaign.

Row = Mapping[str, str]

DIFFICULTY_ORDER = ("norm_edit_le_0p10", "norm_edit_gt_0p35", "norm_edit_0p10_to_0p20", "norm_edit_0p20_to_0p35")
"""The extremes come before the middle."""
DETAILS, SUSPICIOUS = "hard_negative_lexical_details.csv", "hard_negative_suspicious_examples.csv"
"""Files of ``sightline probes audit --out``."""
MATCHES = ("global_other_image_nfkc_casefold_matches", "global_other_image_alnum_matches")
CAPTIONS = {
    ORIGINAL: "Original", SHAM: "Repainted with itself", REPLACEMENT: "Replaced by the new word", ERASE: "Erased",
}  # fmt: skip


@dataclass(frozen=True)
class ImageFolder:
    """Where pictures are; each file is opened once, when the campaign is made, so that none is missing later."""

    root: Path

    def view(self, caption: str, image: str, regions: tuple[Box, ...] = ()) -> PictureView:
        size, digest = _facts_of(resolve_image(self.root, image))
        return PictureView(caption, image, size, digest, regions)


@cache
def _facts_of(path: Path) -> tuple[tuple[int, int], str]:
    return image_size(path), image_digest(path)


@dataclass(frozen=True)
class Suspicions:
    """What a program found before people look: it decides the order and is never shown."""

    reasons: Mapping[str, tuple[str, ...]]
    """Item -> why it is suspicious."""
    facts: Mapping[str, Row]
    """Item -> columns for the manifest."""


NO_SUSPICIONS = Suspicions({}, {})


def hard_negative_items(probes: Sequence[Probe], images: ImageFolder, look: Suspicions) -> list[WorkItem]:
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


def text_replacement_items(probes: Sequence[Probe], images: ImageFolder, look: Suspicions) -> list[WorkItem]:
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
        shown = {caption: asked_of[f"{version}_source"].image for version, caption in CAPTIONS.items()}
        items.append(
            WorkItem(
                id=image_id,
                image_id=image_id,
                question=target.question,
                views=tuple(images.view(caption, image, source.regions) for caption, image in shown.items()),
                source_text=source.target_text,
                target_text=target.target_text,
                probes=tuple(probe.id for probe in probes if probe.image_id == image_id),
                suspicion=look.reasons.get(image_id, ()),
                **_worded(target, look.facts.get(image_id, {}), source.target_text),
            )
        )
    return sorted(items, key=_by_difficulty)


def evidence_items(probes: Sequence[Probe], images: ImageFolder, look: Suspicions) -> list[WorkItem]:
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


def text_items(probes: Sequence[Probe], images: ImageFolder, look: Suspicions) -> list[WorkItem]:
    """One item per text that does not count (``documents.build.read_dropped``), in the order of pages."""
    return [
        WorkItem(
            id=probe.id,
            image_id=probe.image_id,
            question=probe.question,
            views=(images.view("The page", probe.image, probe.regions),),
            source_text=probe.source_text,
            stratum=probe.kind,
            difficulty=probe.kind,
            facts=probe.extra,
        )
        for probe in probes
    ]


ItemMaker = Callable[[Sequence[Probe], ImageFolder, Suspicions], list[WorkItem]]
MAKERS: Mapping[str, ItemMaker] = {
    HARD_NEGATIVES.name: hard_negative_items,
    TEXT_REPLACEMENT.name: text_replacement_items,
    EVIDENCE.name: evidence_items,
    TEXTS.name: text_items,
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


def read_suspicions(kind: str, path: Path | None) -> Suspicions:
    """The lexical audit's folder for hard negatives, the screening.csv for text replacements."""
    if path is None:
        return NO_SUSPICIONS
    if kind == HARD_NEGATIVES.name:
        details, suspicious = (_table(path / name, ("sample_id",)) for name in (DETAILS, SUSPICIOUS))
        reasons = {row["sample_id"]: tuple(row.get("reason", "").split(";")) for row in suspicious}
        return Suspicions(reasons, {row["sample_id"]: row for row in details})
    if kind == TEXT_REPLACEMENT.name:
        failed = (row for row in _table(path, ("image_id", "passed")) if row["passed"].lower() != "true")
        return Suspicions({row["image_id"]: ("not_read_as_intended",) for row in failed}, {})
    raise SightlineError(f"--audit says nothing about campaigns of kind {kind}")


def _table(path: Path, needed: Iterable[str]) -> list[dict[str, str]]:
    rows = read_csv_text(path)
    for name in needed:
        if rows and name not in rows[0]:
            raise SightlineError(f"{path} has no column {name}; it has {json.dumps(list(rows[0]))}")
    return rows


# In which order items come, which of them are taken, and which a second person sees too.
#
# The suspicious come first, the others from every stratum; a hash draws the second sample, so that nobody chooses it.

BATCH = 100


@dataclass(frozen=True)
class SamplingRule:
    """How a campaign is drawn."""

    n: int | None = None
    """How many items; None for all."""
    second: float = 0.2
    """Share of every batch that a second person annotates too."""
    seed: str = "second-sample-v1"
    """Enters the hash that draws the second sample."""
    batch: int = BATCH

    def __post_init__(self) -> None:
        if self.n is not None and self.n < 1:
            raise SightlineError(f"a campaign has at least one item, not {self.n}")
        if not 0.0 <= self.second <= 1.0:
            raise SightlineError(f"the share of the second sample is {self.second}, not between 0 and 1")
        if self.batch < 1:
            raise SightlineError(f"a batch has at least one item, not {self.batch}")


def drawn_items(items: Sequence[WorkItem], rule: SamplingRule) -> list[WorkItem]:
    """The items: chosen, in batches, the second sample marked. ``items`` come in the order of their kind."""
    chosen = first_items(items, len(items) if rule.n is None else rule.n)
    batched = [replace(item, batch=place // rule.batch) for place, item in enumerate(chosen)]
    second = second_sample(batched, rule.second, rule.seed)
    return [replace(item, second=item.id in second) for item in batched]


def first_items(items: Sequence[WorkItem], n: int) -> list[WorkItem]:
    """Suspicious ones by id; then the rest as it comes or, if not all fit, one of each stratum in turn, by id."""
    suspicious = sorted((item for item in items if item.suspicion), key=lambda item: item.id)
    rest = [item for item in items if not item.suspicion]
    if n < len(items):
        strata = _grouped(sorted(rest, key=lambda item: item.id), lambda item: item.stratum)
        turns = zip_longest(*(strata[name] for name in sorted(strata)))
        rest = [item for turn in turns for item in turn if item is not None]
    return [*suspicious, *rest][:n]


def second_sample(items: Iterable[WorkItem], share: float, seed: str) -> frozenset[str]:
    """Ids drawn from every batch, in proportion to its difficulties, within each by ``sha256(seed|id)``."""
    chosen: set[str] = set()
    for batch in _grouped(items, lambda item: str(item.batch)).values():
        groups = _grouped(batch, lambda item: item.difficulty)
        quota = apportioned({name: len(own) for name, own in groups.items()}, int(share * len(batch) + 0.5))
        for name, own in groups.items():
            ids = sorted((item.id for item in own), key=lambda id_: hashed(seed, id_))
            chosen.update(ids[: quota[name]])
    return frozenset(chosen)


def apportioned(sizes: Mapping[str, int], total: int) -> dict[str, int]:
    """``total`` seats in proportion to sizes, by largest remainder; ties go to the first name."""
    whole = sum(sizes.values())
    exact = {name: total * size / whole for name, size in sizes.items()}
    seats = {name: int(share) for name, share in exact.items()}
    left = total - sum(seats.values())
    for name in sorted(sizes, key=lambda name: (seats[name] - exact[name], name))[:left]:
        seats[name] += 1
    return seats


def _grouped(items: Iterable[WorkItem], name_of: Callable[[WorkItem], str]) -> dict[str, list[WorkItem]]:
    groups: dict[str, list[WorkItem]] = defaultdict(list)
    for item in items:
        groups[name_of(item)].append(item)
    return groups


# The folder of a new campaign.


def create_campaign(
    path: Path, kind: str, probes: ProbeSet, images: Path, rule: SamplingRule, look: Suspicions
) -> Campaign:
    """Draws the items and writes the folder in one step: it is whole or absent."""
    if path.exists():
        raise SightlineError(f"{path} exists already; a campaign is never begun anew over what people said")
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
    with whole_folder(path) as made:
        write_whole(made / ITEMS, items_text(items).encode())
        write_whole(made / RECORD, (json.dumps(record, indent=1) + "\n").encode())
        Journal.create(made / JOURNAL)
    return Campaign(path, record, tuple(items))
