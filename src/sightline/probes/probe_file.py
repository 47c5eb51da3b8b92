"""Probe sets on disk: JSON lines with a header that carries the digest of their content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from sightline.core.probe import ORIGINAL, Probe
from sightline.errors import SightlineError, located
from sightline.places.listing import Place
from sightline.probes.data_rows import open_text, read_objects, write_text
from sightline.probes.dialects import (
    Dialect,
    artifact_row,
    check_can_be_stored,
    own_row,
    probe_from_artifact,
    probe_from_own,
)
from sightline.probes.fetched_images import check_image_name, strip_image_prefix

HEADER = "sightline_probes"
_HEADER_KEYS = {HEADER, "digest", "construction", "source"}


@dataclass(frozen=True)
class ProbeSet:
    """Probes in file order, and where they come from."""

    probes: tuple[Probe, ...]
    construction: Mapping[str, Any] = field(default_factory=dict)
    """How the probes were made: name, seed and thresholds of the builder."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """What they were made from. File names and digests, never folders."""
    layout: Dialect = "sightline"

    @cached_property
    def digest(self) -> str:
        return probes_digest(self.probes)

    @property
    def image_ids(self) -> tuple[str, ...]:
        """Each image once, in order of appearance."""
        return tuple(dict.fromkeys(probe.image_id for probe in self.probes))

    @property
    def images(self) -> tuple[str, ...]:
        """Each image name once, in order of appearance."""
        return tuple(dict.fromkeys(probe.image for probe in self.probes))

    def __len__(self) -> int:
        return len(self.probes)


def canonical(value: Any) -> str:
    """JSON with sorted keys, no spaces, ASCII only, floats in shortest round-trip form: equal content, equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def lines_digest(rows: Iterable[Any]) -> str:
    """``sha256:`` over one canonical line per row, in order."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(canonical(row).encode() + b"\n")
    return f"sha256:{digest.hexdigest()}"


def probes_digest(probes: Iterable[Probe]) -> str:
    """Nothing outside the probes' fields enters."""
    return lines_digest(map(own_row, probes))


def probe_key(probe: Probe) -> str:
    """What must be unique within a set: the id, together with the view where that is not the original image."""
    return probe.id if probe.view == ORIGINAL else f"{probe.id}@{probe.view}"


def write_probes(
    path: str | Path,
    probes: ProbeSet | Iterable[Probe],
    *,
    construction: Mapping[str, Any] | None = None,
    source: Mapping[str, Any] | None = None,
    layout: Dialect = "sightline",
    image_prefix: str = "",
) -> ProbeSet:
    """Writes a set in one step and returns it as it will be read back.

    ``layout="artifact"`` writes the rows of the paper's artifact, without a header; there ``image_prefix`` is put
    before every image name (the artifact stores its image root in the rows).
    """
    if isinstance(probes, ProbeSet):
        construction = probes.construction if construction is None else construction
        source = probes.source if source is None else source
        probes = probes.probes
    written = ProbeSet(tuple(probes), dict(construction or {}), dict(source or {}), layout)
    _refuse_duplicates(path, ((None, probe) for probe in written.probes))
    if layout == "artifact":
        text = _lines(artifact_row(probe, image_prefix) for probe in written.probes)
    elif image_prefix:
        raise SightlineError(
            "an image prefix belongs to the artifact layout; our layout keeps names relative to the root"
        )
    else:
        text = probes_text(written)
    write_text(path, text)
    return written


def probes_text(probes: ProbeSet) -> str:
    """A probe file in our dialect: the header with the digest, then one line per probe."""
    header = {HEADER: 1, "digest": probes.digest, "construction": probes.construction, "source": probes.source}
    return _lines([header, *(own_row(probe) for probe in probes.probes)])


def _lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)


def read_probes(path: str | Place, *, image_prefix: str | None = None, check_digest: bool = True) -> ProbeSet:
    """Reads and checks a set in our dialect or the artifact's, plain or gzip, by path or URL.

    Parameters
    ----------
    image_prefix: folder to strip from image names; for artifact files, which carry somebody's image root.
    check_digest: refuse a set whose content differs from the digest in its header. (A header may leave it out.)
    """
    header: dict[str, Any] = {}
    layout: Dialect | None = None
    numbered: list[tuple[int, Probe]] = []
    for number, row in read_objects(path):
        with located(f"{path} line {number}"):
            if layout is None and HEADER in row:
                layout, header = "sightline", _header(row)
                continue
            if layout is None and "target_answer" not in row:
                raise SightlineError(
                    f'expected a header {{"{HEADER}": 1}} or a row with target_answer; is this a probe file?'
                )
            layout = layout or "artifact"
            probe = probe_from_own(row) if layout == "sightline" else probe_from_artifact(row, image_prefix)
            numbered.append((number, probe))
    if not numbered:
        raise SightlineError(f"{path}: holds no probes")
    _refuse_duplicates(path, numbered)
    found = ProbeSet(
        tuple(probe for _, probe in numbered),
        header.get("construction", {}),
        header.get("source", {}),
        layout or "sightline",
    )
    if check_digest and header.get("digest", found.digest) != found.digest:
        raise SightlineError(
            f"{path}: content does not match its digest (header {header['digest'][:19]}..., "
            f"content {found.digest[:19]}...); the set was changed after it was written"
        )
    if image_prefix and found.layout == "sightline":
        # After the digest: it covers the names as they stand in the file.
        named = ((probe, strip_image_prefix(probe.image, image_prefix)) for probe in found.probes)
        return replace(found, probes=tuple(replace(probe, image=check_image_name(name)) for probe, name in named))
    return found


def _header(row: dict[str, Any]) -> dict[str, Any]:
    if row[HEADER] != 1:
        raise SightlineError(f"probe file version {row[HEADER]!r}; this Sightline reads version 1")
    unknown = sorted(set(row) - _HEADER_KEYS)
    if unknown:
        raise SightlineError(f"unknown key {unknown[0]!r} in the header")
    for key, kind in (("digest", str), ("construction", dict), ("source", dict)):
        if key in row and not isinstance(row[key], kind):
            raise SightlineError(f"'{key}' in the header must be {'text' if kind is str else 'an object'}")
    check_can_be_stored(row, "the header")
    return row


def _refuse_duplicates(path: str | Place, numbered: Iterable[tuple[int | None, Probe]]) -> None:
    line_of: dict[str, int | None] = {}
    for number, probe in numbered:
        key = probe_key(probe)
        if key in line_of:
            where = "" if number is None else f" line {number}"
            first = "" if number is None else f" (first on line {line_of[key]})"
            raise SightlineError(f"{path}{where}: probe id {key!r} occurs twice{first}")
        line_of[key] = number


# Locks: a file beside a probe set that remembers its content; a changed set is refused and the change named.

LOCK_HEADER = "sightline_lock"
_SHOWN = 3
"""How many changed probes a message names."""


@dataclass(frozen=True)
class Lock:
    digest: str
    fields: Mapping[str, Mapping[str, str]]
    """Probe key -> field -> first 16 hex digits of the SHA-256 of the field's canonical JSON, in file order."""
    images: Mapping[str, str]
    """Image name -> digest of its bytes; empty if images were not locked."""


def lock_path(path: str | Path) -> Path:
    return Path(f"{path}.lock.json")


def lock_probes(
    path: str | Path, probes: ProbeSet, *, images: Mapping[str, str] | None = None, replace: bool = False
) -> Path:
    """Writes ``<path>.lock.json``. A lock on other content gives way only to ``replace``."""
    target = lock_path(path)
    if target.exists() and not replace and read_lock(target).digest != probes.digest:
        raise SightlineError(f"{target} locks other content; pass --replace to lock the new content instead")
    yes = sum(probe.label == "yes" for probe in probes.probes)
    lock = {
        LOCK_HEADER: 1,
        "digest": probes.digest,
        "counts": {"probes": len(probes), "yes": yes, "no": len(probes) - yes, "images": len(probes.image_ids)},
        "probes": _fields(probes.probes),
        "images": dict(images or {}),
    }
    write_text(target, json.dumps(lock, ensure_ascii=False, indent=1) + "\n")
    return target


def read_lock(path: str | Path) -> Lock:
    with open_text(path) as stream:
        try:
            lock = json.load(stream)
            if lock[LOCK_HEADER] != 1:
                raise SightlineError(f"{path}: lock version {lock[LOCK_HEADER]!r}; this Sightline reads version 1")
            fields = {str(key): dict(digests) for key, digests in dict(lock["probes"]).items()}
            return Lock(str(lock["digest"]), fields, dict(lock.get("images", {})))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise SightlineError(f"{path}: not a probe lock") from None


def verify_lock(path: str | Path, probes: ProbeSet, *, images: Mapping[str, str] | None = None) -> Lock:
    """Compares a set, and image digests where both sides have them, with its lock; differences are refused by name."""
    lock = read_lock(lock_path(path))
    differences = _differences(lock.fields, _fields(probes.probes))
    if not differences and lock.digest != probes.digest:
        differences = ["the same probes in another order"]
    changed = [name for name, digest in (images or {}).items() if lock.images.get(name, digest) != digest]
    if changed:
        differences.append(
            f"{len(changed)} image{'s' if len(changed) != 1 else ''} with other bytes ({_some(changed)})"
        )
    if differences:
        raise SightlineError(f"{path} differs from its lock: {'; '.join(differences)}")
    return lock


def _differences(locked: Mapping[str, Mapping[str, str]], found: Mapping[str, Mapping[str, str]]) -> list[str]:
    added = [key for key in found if key not in locked]
    removed = [key for key in locked if key not in found]
    changed = []
    for key in found:
        if key in locked and found[key] != locked[key]:
            names = {*found[key], *locked[key]}
            differing = sorted(name for name in names if found[key].get(name) != locked[key].get(name))
            changed.append(f"{key}: {', '.join(differing)}")
    lists = {"changed": changed, "added": added, "removed": removed}
    return [f"{len(keys)} {what} ({_some(keys)})" for what, keys in lists.items() if keys]


def _some(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return "; ".join(names[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _fields(probes: tuple[Probe, ...]) -> dict[str, dict[str, str]]:
    def short(value: Any) -> str:
        return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]

    return {probe_key(probe): {name: short(value) for name, value in own_row(probe).items()} for probe in probes}


# Splits by a hash: what is hashed together falls on the same side, whatever else is in the set.

Side = Literal["dev", "test"]
GroupBy = Literal["image", "record", "probe"]
Hash = Literal["sha1", "md5"]

BUCKETS = 10


def hash_side(group: str, dev_buckets: int = 5) -> Side:
    """``dev`` iff (first 8 hex digits of sha1(group)) mod 10 < ``dev_buckets``: the paper's split of yes/no probes."""
    bucket = int(hashlib.sha1(group.encode("utf-8")).hexdigest()[:8], 16) % BUCKETS
    return "dev" if bucket < dev_buckets else "test"


def even_side(group: str) -> Side:
    """``dev`` iff the first 8 hex digits of md5(group) are an even number: the paper's split of open questions."""
    return "test" if int(hashlib.md5(group.encode("utf-8")).hexdigest()[:8], 16) % 2 else "dev"


def probe_group(probe: Probe, group_by: GroupBy = "image") -> str:
    """``image``: the image id. ``probe``: the probe id. ``record``: the probe id up to its first colon, prefix included
    (``textocr-...``); all open questions of a task would be one record, so they are refused.
    """
    if group_by == "record" and probe.is_open:
        raise SightlineError(f"open questions ({probe.id}) have no records; group them by image or by probe")
    if group_by == "record":
        return probe.id.partition(":")[0]
    return probe.image_id if group_by == "image" else probe.id


def split_probes(
    probes: Iterable[Probe], *, group_by: GroupBy = "image", dev_buckets: int = 5, rule: Hash = "sha1"
) -> dict[Side, tuple[Probe, ...]]:
    """Both sides, each in file order. ``md5`` halves the set; how many tenths are ``dev`` is for ``sha1``."""
    sides: dict[Side, list[Probe]] = {"dev": [], "test": []}
    for probe in probes:
        group = probe_group(probe, group_by)
        sides[even_side(group) if rule == "md5" else hash_side(group, dev_buckets)].append(probe)
    return {side: tuple(found) for side, found in sides.items()}


# Image ids that a new probe set must not touch, for sets that are disjoint by image.


def read_image_ids(path: str | Path) -> frozenset[str]:
    """The image ids of a probe file or region file, or of a plain list with one id per line."""
    with open_text(path) as stream:
        lines = [line.strip() for line in stream if line.strip()]
    if lines and not lines[0].startswith("{"):
        return frozenset(lines)
    found = set()
    for number, row in read_objects(path):
        if "image_id" in row:
            found.add(str(row["image_id"]))
        elif number > 1:
            raise SightlineError(f"{path} line {number}: no image_id")
    if not found:
        raise SightlineError(f"{path}: holds no image ids")
    return frozenset(found)
