"""Probe sets on disk: JSON lines with a header that carries the digest of their content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sightline.core.probe import ORIGINAL, Probe
from sightline.errors import SightlineError
from sightline.places import Place
from sightline.probes.dialects import (
    Dialect,
    artifact_row,
    check_can_be_stored,
    own_row,
    probe_from_artifact,
    probe_from_own,
)
from sightline.probes.image_name import check_image_name, strip_image_prefix
from sightline.probes.json_lines import read_objects, write_text

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


def probes_digest(probes: Iterable[Probe]) -> str:
    """``sha256:`` over one canonical line per probe, in order. Nothing outside the probes' fields enters."""
    digest = hashlib.sha256()
    for probe in probes:
        digest.update(canonical(own_row(probe)).encode() + b"\n")
    return f"sha256:{digest.hexdigest()}"


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
        try:
            if layout is None:
                layout = _layout(row)
                if layout == "sightline":
                    header = _header(row)
                    continue
            probe = probe_from_own(row) if layout == "sightline" else probe_from_artifact(row, image_prefix)
            numbered.append((number, probe))
        except SightlineError as problem:
            raise SightlineError(f"{path} line {number}: {problem}") from None
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
        return replace(found, probes=tuple(_strip(probe, image_prefix) for probe in found.probes))
    return found


def _strip(probe: Probe, prefix: str) -> Probe:
    return replace(probe, image=check_image_name(strip_image_prefix(probe.image, prefix)))


def _layout(row: Mapping[str, Any]) -> Dialect:
    if HEADER in row:
        return "sightline"
    if "target_answer" in row:
        return "artifact"
    raise SightlineError(f'expected a header {{"{HEADER}": 1}} or a row with target_answer; is this a probe file?')


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
