"""What people decided about probes, signed off: JSON lines under a header that carries digests and a name.

{"sightline_decisions": 1, "kind": "hard-negatives", "signed_by": "carol", "at": "...", "items_digest": "sha256:...",
 "journal_digest": "sha256:...", "digest": "sha256:..."}
{"id": "a7ad:hard-nearmiss-neg", "image_id": "a7ad", "probes": ["...", "..."], "decision": "valid_negative",
 "valid": true, "provenance": "agreement"}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError
from sightline.places import open_file
from sightline.probes.json_lines import read_objects, write_text
from sightline.probes.probe_file import canonical

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
    rows = [asdict(each) for each in decisions]
    first = {HEAD: VERSION, **head, "digest": _digest(rows)}
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
    if head.get("digest") != _digest(rows):
        raise SightlineError(f"{path} was changed after it was signed off by {head.get('signed_by')}; sign off again")
    try:
        found = tuple(SignedDecision(**{**row, "probes": tuple(row["probes"])}) for row in rows)
    except (TypeError, KeyError) as problem:
        raise SightlineError(f"{path} has a line that is no decision: {problem}") from None
    return SignedDecisions(path, head, found)


def _digest(rows: Iterable[Mapping[str, Any]]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(canonical(row).encode() + b"\n")
    return f"sha256:{digest.hexdigest()}"
