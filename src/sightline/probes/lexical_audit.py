"""The lexical audit of a probe set's negatives: does any decoy really stand in its image, or elsewhere in the data?"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from sightline.core.probe import Probe
from sightline.core.text import edit_distance
from sightline.errors import SightlineError
from sightline.probes.data_rows import csv_text, write_text
from sightline.probes.hard_pairs import standing_alone
from sightline.probes.regions import ImageRegions

# Text normalisers, edit distance and edit classes: how close is a decoy to its source, and to everything else?


def _alphanumeric(text: str) -> str:
    return "".join(char for char in text if char.isalnum())


def nfkc_casefold(text: str) -> str:
    return unicodedata.normalize("NFKC", text.strip()).casefold()


def nfkc_casefold_alnum(text: str) -> str:
    return _alphanumeric(nfkc_casefold(text))


def _ascii_fold_alnum(text: str) -> str:
    folded = unicodedata.normalize("NFKD", text.strip()).encode("ascii", "ignore").decode("ascii")
    return _alphanumeric(folded.casefold())


NORMALISERS: dict[str, Callable[[str], str]] = {
    "raw_trim": str.strip,
    "nfc": lambda text: unicodedata.normalize("NFC", text.strip()),
    "nfkc": lambda text: unicodedata.normalize("NFKC", text.strip()),
    "nfkc_casefold": nfkc_casefold,
    "nfkc_casefold_nospace": lambda text: "".join(nfkc_casefold(text).split()),
    "nfkc_casefold_alnum": nfkc_casefold_alnum,
    "ascii_fold_alnum": _ascii_fold_alnum,
}
"""From strict to lenient; two strings that agree under one of them may look the same to a reader."""


def edit_type(source: str, target: str) -> str:
    """The kind of edit between two normalised strings."""
    distance = edit_distance(source, target)
    if distance == 0:
        return "identical"
    if distance > 1:
        return "multi_edit_or_confusable_sequence"
    longer = len(source) - len(target)
    return {0: "single_substitution", 1: "single_deletion", -1: "single_insertion"}.get(longer, "single_edit_other")


def changed_char_class(source: str, target: str) -> str:
    """Classes of the characters that differ position by position, joined by ``+``; a missing one has no class."""
    changed = {char for pair in zip_longest(source, target) if pair[0] != pair[1] for char in pair if char is not None}
    return "+".join(sorted({_char_class(char) for char in changed}))


def _is_punctuation(char: str) -> bool:
    return unicodedata.category(char).startswith("P")


def _char_class(char: str) -> str:
    if char.isalpha():
        return "letter"
    if char.isdigit():
        return "digit"
    if _is_punctuation(char):
        return "punctuation"
    return "other" if char.isascii() else "non_ascii"


def shape(text: str) -> str:
    """Which of letters, digits, punctuation and non-ASCII characters a string holds, joined by ``+``."""
    parts = {
        "alpha": any(char.isalpha() for char in text),
        "digit": any(char.isdigit() for char in text),
        "punct": any(_is_punctuation(char) for char in text),
        "non_ascii": not text.isascii(),
    }
    return "+".join(name for name, present in parts.items() if present) or "other"


Row = dict[str, str]


@dataclass(frozen=True)
class LexicalFinding:
    """What the audit says about one negative probe."""

    probe: Probe
    distance: int
    """Edit distance between source and decoy after NFKC and casefolding."""
    relative_distance: float
    """Distance divided by the source's length."""
    edit: str
    changed: str
    shape: str
    collisions: tuple[str, ...]
    """Normalisers under which the decoy equals a word of its own image."""
    colliding_words: tuple[str, ...]
    within: tuple[str, ...]
    """Longer texts of its image in which the decoy stands as a word (line-level annotation hides words that way)."""
    same_as_source: tuple[str, ...]
    """Normalisers under which the decoy equals its source."""
    other_images_casefold: int
    """Other images that hold the decoy as a word, after NFKC and casefolding."""
    other_images_alnum: int
    """The same, letters and digits only."""

    @property
    def area_rank(self) -> int | None:
        rank = self.probe.extra.get("token_area_rank")
        return rank if isinstance(rank, int) else None

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why a person should look at this probe; empty for most."""
        found = {
            "same_image_collision": bool(self.collisions),
            "within_longer_text": bool(self.within),
            "source_target_same": bool(self.same_as_source),
            "edit_distance_gt2": self.distance > 2,
            "target_alnum_empty": not nfkc_casefold_alnum(self.probe.target_text),
            "near_miss_is_real_ocr_token_elsewhere": self.distance <= 1
            and bool(self.other_images_casefold or self.other_images_alnum),
        }
        return tuple(name for name, holds in found.items() if holds)


@dataclass(frozen=True)
class LexicalAudit:
    findings: tuple[LexicalFinding, ...]
    region_images: int
    unique_casefold: int
    unique_alnum: int

    @property
    def suspicious(self) -> tuple[LexicalFinding, ...]:
        return tuple(finding for finding in self.findings if finding.reasons)


def audit_negatives(probes: Sequence[Probe], records: Iterable[ImageRegions]) -> LexicalAudit:
    """Audits every ``no`` probe against the words of its image and of all other images, under seven normalisers.

    A probe whose image has no region record is an error: an absent index would read as "no collision".
    """
    negatives = [probe for probe in probes if probe.label == "no"]
    if not negatives:
        raise SightlineError("the probe set has no negatives to audit")
    words = {record.image_id: record.texts for record in records}
    missing = [probe for probe in negatives if probe.image_id not in words]
    if missing:
        have = "probes have" if len(missing) != 1 else "probe has"
        raise SightlineError(
            f"{len(missing)} {have} no region record (first: image {missing[0].image_id!r}); "
            "give the region file the probes were built from"
        )
    casefold = _images_by_word(words, nfkc_casefold)
    alnum = _images_by_word(words, nfkc_casefold_alnum)
    findings = tuple(_finding(probe, words[probe.image_id], casefold, alnum) for probe in negatives)
    return LexicalAudit(findings, len(words), len(casefold), len(alnum))


def _images_by_word(words: Mapping[str, Sequence[str]], normalise: Callable[[str], str]) -> dict[str, set[str]]:
    images: dict[str, set[str]] = defaultdict(set)
    for image_id, texts in words.items():
        for text in texts:
            images[normalise(text)].add(image_id)
    images.pop("", None)
    return dict(images)


def _finding(
    probe: Probe, image_words: Sequence[str], casefold: Mapping[str, set[str]], alnum: Mapping[str, set[str]]
) -> LexicalFinding:
    source, target = nfkc_casefold(probe.source_text), nfkc_casefold(probe.target_text)
    distance = edit_distance(source, target)
    collisions, same, colliding = [], [], {}
    for name, normalise in NORMALISERS.items():
        wanted = normalise(probe.target_text)
        if not wanted:
            continue
        matches = [word for word in image_words if normalise(word) == wanted]
        if matches:
            collisions.append(name)
            colliding.update(dict.fromkeys(matches))
        if normalise(probe.source_text) == wanted:
            same.append(name)
    alone = standing_alone(probe.target_text.casefold())
    within = [word for word in image_words if word not in colliding and alone.search(word.casefold())]
    own = {probe.image_id}
    return LexicalFinding(
        probe=probe,
        distance=distance,
        relative_distance=distance / max(1, len(source)),
        edit=edit_type(source, target),
        changed=changed_char_class(source, target),
        shape=shape(probe.target_text),
        collisions=tuple(collisions),
        colliding_words=tuple(colliding),
        within=tuple(dict.fromkeys(within)),
        same_as_source=tuple(same),
        other_images_casefold=len(casefold.get(target, set()) - own),
        other_images_alnum=len(alnum.get(nfkc_casefold_alnum(probe.target_text), set()) - own),
    )


def rank_bucket(rank: int | None) -> str:
    buckets = ("rank_1", "rank_2_to_5", "rank_6_to_10", "rank_gt_10")
    return "rank_unknown" if rank is None else buckets[bisect_left((1, 5, 10), rank)]


def difficulty_bucket(relative_distance: float) -> str:
    buckets = ("norm_edit_le_0p10", "norm_edit_0p10_to_0p20", "norm_edit_0p20_to_0p35", "norm_edit_gt_0p35")
    return buckets[bisect_left((0.10, 0.20, 0.35), relative_distance)]


def detail_rows(audit: LexicalAudit) -> list[Row]:
    return [
        {
            "sample_id": f.probe.id,
            "image_id": f.probe.image_id,
            "source_text": f.probe.source_text,
            "target_text": f.probe.target_text,
            "edit_distance": str(f.distance),
            "normalized_edit_distance": f"{f.relative_distance:.3f}",
            "edit_type": f.edit,
            "changed_char_class": f.changed,
            "target_shape": f.shape,
            "difficulty_bucket": difficulty_bucket(f.relative_distance),
            "token_area_rank": "" if f.area_rank is None else str(f.area_rank),
            "token_area_rank_bucket": rank_bucket(f.area_rank),
            "same_image_collision_normalizers": ";".join(f.collisions),
            "source_target_same_normalizers": ";".join(f.same_as_source),
            "matching_same_image_tokens": ";".join(f.colliding_words),
            "global_other_image_nfkc_casefold_matches": str(f.other_images_casefold),
            "global_other_image_alnum_matches": str(f.other_images_alnum),
        }
        for f in audit.findings
    ]


_SUSPICIOUS = (
    "sample_id", "image_id", "source_text", "target_text", "reason", "edit_distance", "edit_type", "changed_char_class",
    "token_area_rank", "same_image_collision_normalizers", "source_target_same_normalizers",
    "matching_same_image_tokens",
)  # fmt: skip


def suspicious_rows(audit: LexicalAudit) -> list[Row]:
    """The details that matter to a person, and the reasons to look."""
    told = zip(audit.findings, detail_rows(audit), strict=True)
    reasoned = [{**row, "reason": ";".join(finding.reasons)} for finding, row in told if finding.reasons]
    return [{name: row[name] for name in _SUSPICIOUS} for row in reasoned]


def class_rows(audit: LexicalAudit) -> list[Row]:
    """Counts and shares by edit type, changed characters, decoy shape, area rank and difficulty."""
    groups = {
        "edit_type": [f.edit for f in audit.findings],
        "changed_char_class": [f.changed for f in audit.findings],
        "target_shape": [f.shape for f in audit.findings],
        "token_area_rank_bucket": [rank_bucket(f.area_rank) for f in audit.findings],
        "difficulty_bucket": [difficulty_bucket(f.relative_distance) for f in audit.findings],
    }
    return [
        {"group": group, "bucket": bucket, "count": str(count), "rate": f"{count / len(values):.3f}"}
        for group, values in groups.items()
        for bucket, count in sorted(Counter(values).items())
    ]


def summary_rows(audit: LexicalAudit) -> list[Row]:
    """One metric per row: counts come with their share of all negatives."""
    findings = audit.findings
    n = len(findings)
    rows = {
        "negative_probe_count": str(n),
        "image_count": str(len({f.probe.image_id for f in findings})),
        "same_image_index_image_count": str(audit.region_images),
        "global_region_image_count": str(audit.region_images),
        "mean_edit_distance_nfkc_casefold": f"{sum(f.distance for f in findings) / n:.3f}",
        "max_edit_distance_nfkc_casefold": str(max(f.distance for f in findings)),
        "mean_normalized_edit_distance_nfkc_casefold": f"{sum(f.relative_distance for f in findings) / n:.3f}",
        "global_unique_nfkc_casefold_token_count": str(audit.unique_casefold),
        "global_unique_alnum_token_count": str(audit.unique_alnum),
    }
    counted: dict[str, list[bool]] = {}
    for name in NORMALISERS:
        counted[f"same_image_collision_{name}"] = [name in f.collisions for f in findings]
    counted["same_image_collision_any_normalizer"] = [bool(f.collisions) for f in findings]
    for name in ("nfkc_casefold", "nfkc_casefold_alnum", "ascii_fold_alnum"):
        counted[f"source_target_same_{name}"] = [name in f.same_as_source for f in findings]
    counted |= {
        "source_target_same_any_normalizer": [bool(f.same_as_source) for f in findings],
        "global_other_image_nfkc_casefold_collision": [f.other_images_casefold > 0 for f in findings],
        "global_other_image_alnum_collision": [f.other_images_alnum > 0 for f in findings],
        "edit_distance_gt2": [f.distance > 2 for f in findings],
        "target_alnum_empty": [not nfkc_casefold_alnum(f.probe.target_text) for f in findings],
        "source_or_target_non_ascii": [not (f.probe.source_text + f.probe.target_text).isascii() for f in findings],
        "target_has_alpha": ["alpha" in f.shape.split("+") for f in findings],
        "target_has_digit": ["digit" in f.shape.split("+") for f in findings],
        "target_has_punctuation": ["punct" in f.shape.split("+") for f in findings],
    }
    for name, hits in counted.items():
        rows[f"{name}_count"] = str(sum(hits))
        rows[f"{name}_rate"] = f"{sum(hits) / n:.3f}"
    return [{"metric": metric, "value": value} for metric, value in rows.items()]


def headline(audit: LexicalAudit) -> list[tuple[str, str]]:
    """The few figures worth reading first: label and value."""
    summary = {row["metric"]: row["value"] for row in summary_rows(audit)}
    figures = {
        "decoy is a word of its image, any normaliser": "same_image_collision_any_normalizer_count",
        "decoy equals its source, any normaliser": "source_target_same_any_normalizer_count",
        "decoy is a word of another image (NFKC, casefold)": "global_other_image_nfkc_casefold_collision_count",
        "decoy is a word of another image (letters, digits)": "global_other_image_alnum_collision_count",
        "mean edit distance": "mean_edit_distance_nfkc_casefold",
        "mean edit distance / length": "mean_normalized_edit_distance_nfkc_casefold",
    }
    edits = sorted(Counter(finding.edit for finding in audit.findings).items())
    return [
        *((label, summary[metric]) for label, metric in figures.items()),
        ("decoy stands within a longer text of its image", str(sum(bool(f.within) for f in audit.findings))),
        *((name.replace("_", " "), str(count)) for name, count in edits),
        ("to be looked at by a person", str(len(audit.suspicious))),
    ]


TABLES = {
    "hard_negative_lexical_details.csv": detail_rows,
    "hard_negative_lexical_summary.csv": summary_rows,
    "hard_negative_edit_class_summary.csv": class_rows,
    "hard_negative_suspicious_examples.csv": suspicious_rows,
}
"""File name -> what it holds; names and columns are those of the paper's artifact."""


def write_audit(folder: str | Path, audit: LexicalAudit) -> list[Path]:
    """Writes the four tables as CSV and returns their paths."""
    written = []
    for name, make in TABLES.items():
        path = Path(folder) / name
        write_text(path, csv_text(make(audit)))
        written.append(path)
    return written
