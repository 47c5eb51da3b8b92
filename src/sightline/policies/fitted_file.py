"""What ``sightline policy fit`` found, as a JSON file that an arm names."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sightline.core.selection import Budget
from sightline.errors import SightlineError
from sightline.policies.risk_file import read_bytes


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
