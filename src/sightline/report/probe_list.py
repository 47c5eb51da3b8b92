"""A choice of probes by name: reports over those that a person found valid, or that belong to one stratum."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from sightline.errors import SightlineError
from sightline.places import read_text
from sightline.probes.typed_rows import is_decision_file, read_decision_file


@dataclass(frozen=True)
class ProbeList:
    """The probes a report is limited to, and the file that names them."""

    path: Path
    ids: frozenset[str]

    def chosen(self, rows: pd.DataFrame, run: Path, notes: list[str]) -> pd.DataFrame:
        """The rows of listed probes; says how many of each side the other one has."""
        present = set(rows["probe_id"].unique())
        found = present & self.ids
        if not found:
            raise SightlineError(f"{self.path} lists no probe of {run}; its ids look like {min(present)}")
        notes.append(f"limited to {len(found)} of {len(present)} probes, those that {self.path.name} lists")
        if len(found) < len(self.ids):
            notes.append(f"listed in {self.path.name} but not in the run: {len(self.ids) - len(found)}")
        return rows[rows["probe_id"].isin(found)]


def read_probe_list(path: Path) -> ProbeList:
    """One id per line; a probe file, whose lines are JSON objects with an id; or what people signed off as valid."""
    if is_decision_file(path):
        valid = read_decision_file(path).valid_probes
        if not valid:
            raise SightlineError(f"{path} found no probe valid, so there is nothing to report on")
        return ProbeList(path, valid)
    try:
        lines = read_text(path).split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SightlineError(f"cannot read the probe list {path}: {reason}") from None
    ids = frozenset(name for line in lines if line.strip() and (name := _name(line.strip(), path)))
    if not ids:
        raise SightlineError(f"{path} lists no probe; write one probe id per line")
    return ProbeList(path, ids)


def _name(line: str, path: Path) -> str | None:
    """The id in a line; None for the line at the head of a probe file."""
    if not line.startswith("{"):
        return line
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SightlineError(f"{path} has a line that is neither an id nor JSON: {error}") from None
    if "id" not in fields and "sightline_probes" not in fields:
        raise SightlineError(f"{path} has a line without an id: {line[:60]}")
    return str(fields["id"]) if "id" in fields else None
