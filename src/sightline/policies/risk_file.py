"""Risks by sample, from a file that something else made."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from sightline.core.selection import Budget
from sightline.errors import SightlineError
from sightline.places import read_whole

UNKNOWN = 0.5
"""The risk of a sample that the file does not name."""
IDS = ("probe_id", "sample_id", "id")


def read_bytes(file: str, policy: str) -> bytes:
    """The content of a file that a policy names."""
    try:
        return read_whole(Path(file))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SightlineError(f"{policy}: cannot read {file}: {reason}") from None


def content_digest(file: str, policy: str) -> str:
    """SHA-256 of the file."""
    return sha256(read_bytes(file, policy)).hexdigest()


@lru_cache(maxsize=8)
def ranked_risks(file: str, policy: str) -> dict[str, float]:
    """A CSV file's column ``risk`` by ``probe_id``, as ranks from 0, the least risk, to 1; equal risks share one."""
    try:
        table = csv.DictReader(StringIO(read_bytes(file, policy).decode("utf-8-sig")))
        named = next((name for name in IDS if name in (table.fieldnames or ())), None)
        if named is None or "risk" not in (table.fieldnames or ()):
            raise SightlineError(f"{policy}: {file} needs a column probe_id and a column risk")
        risks = {str(line[named]): _number(line["risk"], file, policy) for line in table}
    except (UnicodeDecodeError, csv.Error) as error:
        raise SightlineError(f"{policy}: {file} is not a CSV file: {error}") from None
    if not risks:
        raise SightlineError(f"{policy}: {file} has no lines")
    if len(risks) == 1:
        return dict.fromkeys(risks, UNKNOWN)
    ranks = (rankdata(np.asarray(list(risks.values()))) - 1.0) / (len(risks) - 1)
    return dict(zip(risks, ranks.tolist(), strict=True))


def _number(text: str | None, file: str, policy: str) -> float:
    try:
        risk = float(text or "")
    except ValueError:
        risk = math.nan
    if not math.isfinite(risk):
        raise SightlineError(f"{policy}: {file} has the risk '{text}', which is not a number")
    return risk


# What ``sightline policy fit`` found, as a JSON file that an arm names.


def read_fitted(file: str, policy: str) -> Mapping[str, Any]:
    """The file's object, if it was fitted for this policy."""
    try:
        found = json.loads(read_bytes(file, policy))
    except (ValueError, RecursionError) as error:
        raise SightlineError(f"{policy}: {file} is not JSON: {error}") from None
    made_for = found.get("policy") if isinstance(found, dict) else None
    if made_for != policy:
        raise SightlineError(f"{policy}: {file} was made for {made_for or 'something else'}, by `sightline policy fit`")
    return found  # type: ignore[no-any-return]


def check_fitted_levels(fitted: Mapping[str, Any], levels: Sequence[Budget], policy: str) -> None:
    """Refuses levels that the file was not fitted on."""
    asked = "/".join(map(str, levels))
    if fitted.get("levels") not in (None, asked):
        raise SightlineError(f"{policy} was fitted for the levels {fitted['levels']}, not for {asked}")
