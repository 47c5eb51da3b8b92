"""Rows, probes and images of a run by name. What is misspelt is answered with what may have been meant."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from sightline.core.probe import ORIGINAL
from sightline.errors import SightlineError

if TYPE_CHECKING:
    import pandas as pd

    from sightline.store.load import Run

Row: TypeAlias = "Mapping[str, Any] | pd.Series[Any]"
"""A row of a run, by column."""


def rows_of(run: Run, arm: str, *, probe: str | None = None, view: str | None = None) -> pa.Table:
    """One row per probe of an arm, or of one probe alone; where a probe is asked about several views, the original's.

    ``view`` names another.
    """
    if arm not in run.arms:
        close = difflib.get_close_matches(arm, run.arms, n=1)
        hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(run.arms)}"
        raise SightlineError(f"{run.path} has no arm '{arm}'; {hint}")
    rows = run.rows.filter(pc.equal(run.rows.column("arm"), arm))
    if probe is not None:
        rows = rows.filter(pc.equal(rows.column("probe_id"), probe))
    views = pc.unique(rows.column("view")).to_pylist()
    each_once = len(pc.unique(rows.column("probe_id"))) == rows.num_rows
    if not views or (view is None and each_once):
        return rows
    if (view or ORIGINAL) not in views:
        said = "asks about several views" if view is None else f"has no view '{view}'"
        raise SightlineError(f"{run.path} {said} under {arm}; choose one of {', '.join(views)}")
    return rows.filter(pc.equal(rows.column("view"), view or ORIGINAL))


def row_of(run: Run, probe: str, arm: str, view: str | None = None) -> dict[str, Any]:
    """The row of one probe under one arm."""
    rows = rows_of(run, arm, probe=probe, view=view).to_pylist()
    if rows:
        return dict(rows[0])
    known = [str(record["id"]) for record in run.probes]
    if probe in known:
        raise SightlineError(f"{run.path} has no row of {probe} under {arm}")
    close = difflib.get_close_matches(probe, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"its first is {known[0]}" if known else "it has none"
    raise SightlineError(f"{run.path} has no probe '{probe}'; {hint}")


def plain_arms(run: Run, probe: str) -> list[str]:
    """The arms without an intervention that a probe has rows of; the run's first arm where there are none."""
    rows = run.rows.filter(pc.equal(run.rows.column("probe_id"), probe))
    plain = rows.filter(pc.equal(rows.column("arm"), rows.column("plain_arm")))
    return list(dict.fromkeys(plain.column("arm").to_pylist())) or run.arms[:1]


def probe_of(run: Run, row: Row) -> dict[str, Any]:
    """The record that a row answers; about a view that an intervention made, the one about the original."""
    asked = [record for record in run.probes if str(record["id"]) == row["probe_id"]]
    return next((record for record in asked if record.get("view", ORIGINAL) == row["view"]), asked[0])


def image_of(run: Run, row: Row) -> dict[str, Any]:
    """The record of the image that a row is about: its size, cells and preview."""
    found = run.images.filter(pc.equal(run.images.column("image_key"), row["image_key"]))
    if not found.num_rows:
        raise SightlineError(f"{run.path} has no image record of {row['image_key']}: its images are incomplete")
    return dict(found.slice(0, 1).to_pylist()[0])
