"""What a report is made from: one or more run folders, checked, with a clear line for everything that is wrong."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from sightline.analysis.outcomes import probe_scales
from sightline.core.probe import ORIGINAL
from sightline.errors import SightlineError
from sightline.report.probe_list import ProbeList
from sightline.report.usable_rows import finite_alone, finite_in_every_arm, note_data, paired, recast_controls
from sightline.statistics.plain_rows import is_plain
from sightline.store.load import Run, load_run

MASK_COLUMNS = ("kept_mask", "lineage_mask")
NO_MARGIN = "the rows have no margin: their scorer gives answers alone"


@dataclass(frozen=True)
class Audited:
    """One run made ready: plain rows in ``frame``, interventions and other image views in ``others``."""

    name: str
    """What the run is called in the report; empty when the report has a single run."""
    run: Run
    frame: pd.DataFrame
    """Plain rows with finite margins, or without that column where the scorer gives none. ``arm`` is unique within the
    report, ``arm_name`` is the arm of the run, ``row`` the index into ``run.rows``; ``reference_margin`` and
    ``reference_predicted`` are Full's on the same probe, ``full_ecr`` is its coverage."""
    others: pd.DataFrame
    notes: list[str] = field(default_factory=list)

    @property
    def arms(self) -> list[str]:
        return list(self.frame["arm"].unique())

    @property
    def full(self) -> str | None:
        """The arm that keeps every token, the reference of paired differences."""
        full = self.frame.loc[self.frame["selector"] == "full", "arm"]
        return None if full.empty else str(full.iloc[0])

    @cached_property
    def rows(self) -> pd.DataFrame:
        """Plain rows and those under interventions, by the run's own arm names: what tables of interventions need."""
        both = pd.concat([self.frame, self.others], ignore_index=True) if len(self.others) else self.frame
        return both.assign(arm=both["arm_name"])

    @cached_property
    def probes(self) -> dict[str, dict[str, Any]]:
        """Probes by id; of a control set, which asks the same probe about several views, the one about the original."""
        found: dict[str, dict[str, Any]] = {}
        for probe in self.run.probes:
            if probe.get("view", ORIGINAL) == ORIGINAL or str(probe["id"]) not in found:
                found[str(probe["id"])] = probe
        return found

    @property
    def weights(self) -> str:
        return str(self.run.manifest.get("weight_digest"))

    @property
    def setting(self) -> str:
        """What runs must share for their rows to be paired: weights, precision, positions, profile, image options."""
        keys = ("weight_digest", "dtype", "positions", "profile", "image_options")
        return json.dumps([self.run.manifest.get(key) for key in keys], sort_keys=True)

    @cached_property
    def scales(self) -> pd.DataFrame:
        """Per probe with regions: ``evidence_area``, ``median_cell_area`` and their ratio ``box_cell_ratio``."""
        return probe_scales(self.run)

    @cached_property
    def image_index(self) -> dict[str, int]:
        """Image key -> index into ``run.images``."""
        return {key: i for i, key in enumerate(self.run.images.column("image_key").to_pylist())}


@dataclass(frozen=True)
class Source:
    """All runs of one report and the lines that stand at its head."""

    runs: list[Audited]
    notes: list[str]
    controls: list[Audited] = field(default_factory=list)
    """Runs without a single plain row, such as wrong images alone: intervention tables pair them with the others."""
    developments: list[Audited] = field(default_factory=list)
    """Runs over other images, on which thresholds are chosen; nothing else of them is reported."""

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Plain rows of all runs under one another."""
        return pd.concat([audited.frame for audited in self.runs], ignore_index=True)

    @property
    def has_margins(self) -> bool:
        """Whether any run has a scorer that gives margins."""
        return "margin" in self.frame

    def development_of(self, audited: Audited) -> Audited | None:
        """The development run of the same weights."""
        return next((one for one in self.developments if one.weights == audited.weights), None)

    @property
    def same_probes(self) -> bool:
        return len({audited.run.manifest.get("probe_digest") for audited in self.runs}) == 1


def read_source(
    paths: Sequence[Path | str],
    names: Sequence[str] | None = None,
    *,
    pairs: bool = False,
    only: ProbeList | None = None,
    developments: Sequence[Path | str] = (),
) -> Source:
    """Reads run folders and checks them. Raises only where nothing could be reported at all.

    ``pairs`` refuses a run without plain rows, which a comparison of runs cannot use. ``only`` limits the runs to some
    of their probes. ``developments`` are runs on which thresholds are chosen.
    """
    if not paths:
        raise SightlineError("no run folder given: name at least one")
    runs = [load_run(path) for path in paths]
    names = list(names) if names is not None else _names(runs)
    audited = [_audit(run, name, only) for run, name in zip(runs, names, strict=True)]
    source = Source([one for one in audited if len(one.frame)], [], [one for one in audited if one.frame.empty])
    if not source.runs or (pairs and source.controls):
        path = source.controls[0].run.path
        raise SightlineError(
            f"{path} has no usable plain row: every margin is non-finite or an intervention; "
            "run the plain probes, and give that run as well"
        )
    for one in audited:
        source.notes.extend(f"{one.name}: {note}" if one.name else note for note in one.notes)
    for control in source.controls:
        if control.setting not in {one.setting for one in source.runs}:
            source.notes.append(
                f"{control.name} has no plain row, and no other run has its weights and settings: it is left out"
            )
    if not source.same_probes:
        source.notes.append(
            "mixed probe sets: these runs did not audit the same probes, so their rows stand side by side "
            "and no difference between runs is computed"
        )
    source.developments.extend(_development(load_run(path), source) for path in developments)
    return source


def _development(run: Run, source: Source) -> Audited:
    """A development run: of the weights of some run, over images that no run of those weights has."""
    found = _audit(run, "", None)
    same = [one for one in source.runs if one.weights == found.weights]
    if not same:
        raise SightlineError(f"development run {run.path} has other weights than every run that is reported")
    if found.frame.empty:
        raise SightlineError(f"development run {run.path} has no usable plain row")
    for one in same:
        shared = set(found.frame["image_id"]) & set(one.frame["image_id"])
        if shared:
            raise SightlineError(
                f"development run {run.path} and {one.run.path} share {len(shared)} images (first: {min(shared)}); "
                "thresholds must be chosen on other images than they are judged on"
            )
        if one.setting != found.setting:
            source.notes.append(
                f"thresholds come from {run.path.name}, which has the same weights but other settings "
                "(dtype, positions, profile or image options)"
            )
    return found


def _names(runs: Sequence[Run]) -> list[str]:
    """The shortest names that tell runs apart: nothing, the model, or the folder."""
    if len(runs) == 1:
        return [""]
    models = [str(run.manifest.get("model")) for run in runs]
    if len(set(models)) == len(models):
        return models
    folders = [run.path.resolve().name for run in runs]
    if len(set(folders)) == len(folders):
        return folders
    return [f"run {i + 1}" for i in range(len(runs))]


def _audit(run: Run, name: str, only: ProbeList | None) -> Audited:
    notes: list[str] = []
    frame = _without_masks(run.rows).to_pandas()
    frame["row"] = np.arange(len(frame))
    if only is not None:
        frame = only.chosen(frame, run.path, notes).copy()
    frame["arm_name"] = frame["plain_arm"]
    frame["arm"] = name + " · " + frame["plain_arm"].astype(str) if name else frame["plain_arm"]
    recast_controls(frame, run)
    if run.unfinished:
        notes.append(run.unfinished)
    if run.left_out:
        notes.append(run.left_out)
    plain = is_plain(frame)
    # Apart: a margin that overflowed under an intervention takes nothing from the plain tables.
    main = finite_in_every_arm(frame[plain], notes).reset_index(drop=True)
    others = finite_alone(frame[~plain], notes).reset_index(drop=True)
    if main.empty:
        return Audited(name, run, main, others, notes)
    main = paired(main, notes)
    note_data(main, notes)
    full = main[main["selector"] == "full"].drop_duplicates("probe_id").set_index("probe_id")
    main["reference_margin"] = main["probe_id"].map(full["margin"]) if "margin" in full else np.nan
    main["reference_predicted"] = main["probe_id"].map(full["predicted"])
    main["full_ecr"] = main["probe_id"].map(full["ecr"])
    return Audited(name, run, main, others, notes)


def _without_masks(rows: pa.Table) -> pa.Table:
    """The rows without what only pictures need, and without a margin that no row has."""
    unused = [name for name in MASK_COLUMNS if name in rows.column_names]
    if "margin" in rows.column_names and rows.column("margin").null_count == rows.num_rows:
        unused.append("margin")
    return rows.drop_columns(unused)


def with_masks(audited: Audited, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with their two mask columns, for the few tables that look at them."""
    kept, lineage = zip(*masks_of(audited, rows["row"].tolist()), strict=True) if len(rows) else ((), ())
    return rows.assign(kept_mask=list(kept), lineage_mask=list(lineage))


def masks_of(audited: Audited, rows: Sequence[int]) -> list[tuple[bytes, bytes | None]]:
    """(kept, lineage) bit-packed masks of some rows, read only when a picture needs them."""
    table = audited.run.rows.select(list(MASK_COLUMNS)).take(pa.array(rows, type=pa.int64()))
    kept, lineage = (table.column(name).to_pylist() for name in MASK_COLUMNS)
    return list(zip(kept, lineage, strict=True))
