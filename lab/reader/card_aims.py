"""An aim of the model card and the cells of its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Lines = Mapping[str, Mapping[Any, Any]]
"""Arm -> its line of ``arm_summary``."""


@dataclass(frozen=True)
class CardTarget:
    """One aim set before training, what was measured, and whether that meets it."""

    aim: str
    measured: str
    met: bool


def aims(targets: Sequence[CardTarget]) -> str:
    missed = sum(not target.met for target in targets)
    lines = [
        "## What it was trained to be",
        "",
        f"Aims set before training; {len(targets) - missed} of {len(targets)} are met.",
        "",
        "| aim | measured | |",
        "|---|---|---|",
    ]
    lines += [f"| {t.aim} | {t.measured} | {'met' if t.met else '**missed**'} |" for t in targets]
    return "\n".join([*lines, ""])


def interval(line: Mapping[Any, Any], metric: str) -> str:
    """A value with its interval; empty where it is not defined."""
    value, low, high = (float(line[f"{metric}{end}"]) for end in ("", "_low", "_high"))
    if low != low:
        return "" if value != value else f"{value:.3f}"
    return f"{value:.3f} ({low:.3f}, {high:.3f})"
