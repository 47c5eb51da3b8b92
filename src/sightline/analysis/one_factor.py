"""Sensitivity to one setting: how far metrics move over its values, and which value is used elsewhere."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from sightline.analysis.comparison import Record
from sightline.errors import SightlineError

RANGED = ("accuracy", "hfpr", "auroc", "pn_average")


@dataclass(frozen=True)
class OneFactorSweep:
    """Arms of one selector and budget that differ in one argument alone."""

    family: str
    """Selector and budget."""
    factor: str
    """The argument."""
    arms: Mapping[str, str]
    """Its value -> the arm, ascending where values are numbers."""
    frozen: str | None
    """The value of the arm that names no argument: what everybody gets who does not choose."""


def sweep_range(summary: pd.DataFrame, arms: Mapping[str, str] | Iterable[str], *, frozen: str | None = None) -> Record:
    """Smallest and largest accuracy, hFPR, AUROC and P/N average over the settings of one factor.

    ``summary`` is ``arm_summary``; ``arms`` maps a setting to its arm, or lists arms that are their own settings;
    ``frozen`` names the setting in use. Each metric has its value there (NaN where none is named), and its range in
    ``_low`` and ``_high``. A range describes these settings: it is no interval.
    """
    named = dict(arms) if isinstance(arms, Mapping) else {arm: arm for arm in arms}
    table = summary.set_index("arm")
    absent = [arm for arm in named.values() if arm not in table.index]
    if absent or not named:
        raise SightlineError(f"no arm '{absent[0]}' to sweep over" if absent else "a sweep needs at least one arm")
    if frozen is not None and frozen not in named:
        raise SightlineError(f"the frozen setting '{frozen}' is not one of {', '.join(named)}")
    record: Record = {"settings": ", ".join(named), "n_settings": len(named), "frozen": frozen or ""}
    for metric in RANGED:
        values = table.loc[list(named.values()), metric].astype(float)
        record[metric] = float(values[named[frozen]]) if frozen is not None else math.nan
        record |= {f"{metric}_low": float(values.min()), f"{metric}_high": float(values.max())}
    return record


def one_factor_sweeps(frame: pd.DataFrame) -> list[OneFactorSweep]:
    """Every argument of which some selector was run with several values, all others being equal.

    A seed is no setting: what seeds do is told by the table of seeds.
    """
    arms = frame.drop_duplicates("plain_arm")
    groups: dict[tuple[str, str, str, str], dict[str, str]] = {}
    plain: set[str] = set()
    for arm, shown, selector, budget, text in zip(
        *(arms[name].astype(str) for name in ("plain_arm", "arm", "selector", "budget", "arguments")), strict=True
    ):
        arguments = json.loads(text or "{}")
        if arm == f"{selector}:{budget}":
            plain.add(shown)
        for factor, value in arguments.items():
            others = {name: other for name, other in arguments.items() if name != factor}
            key = (selector, budget, factor, json.dumps(others, sort_keys=True))
            if factor != "seed":
                groups.setdefault(key, {})[str(value)] = shown
    sweeps = []
    for (selector, budget, factor, _), settings in groups.items():
        if len(settings) > 1:
            ordered = dict(sorted(settings.items(), key=lambda item: _ascending(item[0])))
            frozen = next((setting for setting, arm in ordered.items() if arm in plain), None)
            sweeps.append(OneFactorSweep(f"{selector}:{budget}", factor, ordered, frozen))
    return sweeps


def _ascending(setting: str) -> tuple[bool, float, str]:
    """Numbers by size, then words by name."""
    try:
        return False, float(setting), ""
    except ValueError:
        return True, 0.0, setting
