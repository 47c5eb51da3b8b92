"""What a report is made from: one or more run folders, checked, with a clear line for everything that is wrong."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sightline.core.probe import ORIGINAL, TWIN
from sightline.errors import SightlineError, located
from sightline.places.listing import Place, file_errors, read_text
from sightline.probes.typed_rows import is_decision_file, read_decision_file
from sightline.rows.images import probe_scales
from sightline.rows.reader import (
    CONTROL,
    finite_alone,
    finite_in_every_arm,
    name_control_views,
    note_data,
    paired,
    rows_at,
)
from sightline.rows.run import Run, joined_words, load_run, same_images, shared_images
from sightline.rows.thresholds import (
    HASH_SPLIT,
    NONE_LEFT,
    at_thresholds,
    choose,
    on_development_side,
    threshold_words,
    words_of,
)
from sightline.statistics.arm_rows import are_in_words, is_plain, looked_up
from sightline.statistics.thresholds import (
    ThresholdLike,
    ThresholdRule,
    Thresholds,
    check_models,
    read_thresholds,
    threshold_for,
)
from sightline.store.folder import RunPlace

MASK_COLUMNS = ("kept_mask", "lineage_mask")
UNREAD = frozenset(
    (
        "loss_yes", "loss_no", "greedy_yes", "greedy_no", "keep_requested", "keep_spent", "levels", "decided_on",
        "k_layers", "accepted", "swapped_text", "swapped_box", "text_hits",
        "model_type", "weight_digest", "versions", "conditions", "scores", "scores_rule",
        *MASK_COLUMNS,
    )
)  # fmt: skip
"""Columns of rows that are not read: no section of Sightline's looks at them. One that does names them in ``reads``."""


# A list of probes that a report keeps to: those that a person found valid, or that belong to one stratum.


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
        with file_errors(f"cannot read the probe list {path}"):
            lines = read_text(path).split("\n")
    except UnicodeDecodeError:
        raise SightlineError(f"cannot read the probe list {path}: it is not text") from None
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


@dataclass(frozen=True)
class Audited:
    """One run made ready: plain rows in ``frame``, interventions and other image views in ``others``."""

    name: str
    """What the run is called in the report; empty when the report has a single run."""
    run: Run
    frame: pd.DataFrame
    """Plain rows with finite margins, or without that column where the scorer gives none. ``arm`` is unique within the
    report, ``arm_name`` is the arm of the run, ``row`` the index into ``run.rows``; ``reference_margin``,
    ``reference_predicted``, ``reference_correct`` and ``reference_score`` are Full's on the same probe, ``full_ecr`` is
    its coverage; ``twin_right`` says, where pages have twins, whether the arm is right on the twin."""
    others: pd.DataFrame
    notes: list[str] = field(default_factory=list)
    rule: ThresholdRule | None = None
    """What names the thresholds of its answers; None where they are as recorded, at t = 0."""
    thresholds: pd.DataFrame | None = None
    """The threshold of every plain arm (``thresholds.CHOSEN``) where there is a rule."""
    set_apart: pd.DataFrame | None = None
    """Like ``rows``: those of the images on which a rule was chosen. They are in no table."""
    unlimited: pd.DataFrame | None = None
    """Where the report is limited to some probes: ``frame`` without that limit."""

    def said(self, words: object) -> str:
        """Words about the run, behind its name where a report has several."""
        return f"{self.name}: {words}" if self.name else str(words)

    @property
    def model(self) -> str:
        return str(self.run.manifest.get("model"))

    @cached_property
    def shown_arms(self) -> dict[str, str]:
        """The run's own names of its arms -> what the report calls them."""
        pairs = self.frame[["arm_name", "arm"]].drop_duplicates()
        return {str(own): str(shown) for own, shown in zip(pairs["arm_name"], pairs["arm"], strict=True)}

    @property
    def arms(self) -> list[str]:
        return list(self.frame["arm"].unique())

    @cached_property
    def in_words(self) -> bool:
        """Whether its answers are texts with a score."""
        return bool(are_in_words(self.frame).any())

    @cached_property
    def yes_or_no(self) -> bool:
        """Whether its questions are answered yes or no, so that there are positives, negatives and false alarms."""
        return not self.in_words and set(self.frame["label"].unique()) <= {"yes", "no"}

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

    def probes(self, names: Collection[str]) -> dict[str, dict[str, Any]]:
        """Some probes by id; of a control set, which asks the same one about several views, that about the original."""
        found: dict[str, dict[str, Any]] = {}
        for probe in self.run.each_probe():
            name = str(probe["id"])
            if name in names and (probe.get("view", ORIGINAL) == ORIGINAL or name not in found):
                found[name] = probe
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
        return probe_scales(self.run, self.rows)


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
        frames = [audited.frame for audited in self.runs]
        return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)

    @property
    def yes_or_no(self) -> bool:
        """Whether any run asks questions that are answered yes or no; else nothing is said of yes and no."""
        return any(audited.yes_or_no for audited in self.runs)

    @property
    def in_words(self) -> list[Audited]:
        """The runs whose answers are texts with a score."""
        return [audited for audited in self.runs if audited.in_words]

    @property
    def all_in_words(self) -> bool:
        return len(self.in_words) == len(self.runs)

    @property
    def has_margins(self) -> bool:
        """Whether any run has a scorer that gives margins."""
        return "margin" in self.frame

    @property
    def at(self) -> str:
        """The threshold of all answers, within a caption: ``at t = 0``."""
        tables = [one.thresholds for one in self.runs]
        return threshold_words(t for table in tables for t in ([0.0] if table is None else table["threshold"]))

    @property
    def answers_at(self) -> str:
        """The same as a sentence behind a caption; "" where answers are as recorded."""
        return f" Answers are {self.at}." if any(one.rule is not None for one in self.runs) else ""

    def developments_of(self, audited: Audited) -> list[Audited]:
        """The development runs of the same weights."""
        return [one for one in self.developments if one.weights == audited.weights]

    def development_rows(self, audited: Audited) -> pd.DataFrame | None:
        """Rows on which thresholds of a run are chosen, none of which are in its tables: those of its development runs,
        or of images set apart from it; None where its images are all in the tables."""
        elsewhere = [one.rows for one in self.developments_of(audited)]
        if not elsewhere:
            return audited.set_apart
        return pd.concat(elsewhere, ignore_index=True).drop_duplicates(["arm", "intervention", "view", "probe_id"])

    @property
    def same_probes(self) -> bool:
        return len({audited.run.manifest.get("probe_digest") for audited in self.runs}) == 1


def read_source(
    paths: Sequence[RunPlace],
    names: Sequence[str] | None = None,
    *,
    pairs: bool = False,
    only: ProbeList | None = None,
    developments: Sequence[Place | str] = (),
    threshold: ThresholdLike | None = None,
    also: Collection[str] = (),
) -> Source:
    """Reads run folders and checks them. Raises only where nothing could be reported at all.

    ``pairs`` refuses a run without plain rows, which a comparison of runs cannot use. ``only`` limits the runs to some
    of their probes. ``developments`` are runs on which thresholds are chosen; ``threshold`` is the one at which all
    answers are read, or the rule that names it. ``also`` are columns to read although they are among ``UNREAD``.
    """
    if not paths:
        raise SightlineError("no run folder given: name at least one")
    runs = [load_run(path) for path in paths]
    names = list(names) if names is not None else _names(runs)
    rules = {} if threshold is None else read_thresholds(threshold)
    same = same_images(runs)  # of all together, so that their rows pair
    audited = [_audit(run, name, only, also, same) for run, name in zip(runs, names, strict=True)]
    source = Source(
        [one for one in audited if len(one.frame)],
        [joined_words(same)] if same else [],
        [one for one in audited if one.frame.empty],
    )
    if not source.runs or (pairs and source.controls):
        path = source.controls[0].run.path
        raise SightlineError(
            f"{path} has no usable plain row: every margin is non-finite or an intervention; "
            "run the plain probes, and give that run as well"
        )
    if rules:
        check_models(rules, [one.model for one in audited])
    source.developments.extend(_development(load_run(path), source) for path in developments)
    source = _at_thresholds(source, rules)
    source = replace(source, runs=[_with_reference(one) for one in source.runs])
    for one in (*source.runs, *source.controls):
        source.notes.extend(map(one.said, one.notes))
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
        refuse_shared(run, found.frame, one.run, one.frame)
        if one.setting != found.setting:
            source.notes.append(
                f"thresholds come from {run.path.name}, which has the same weights but other settings "
                "(dtype, positions, profile or image options)"
            )
    return found


def refuse_shared(development: Run, rows: pd.DataFrame, run: Run, judged: pd.DataFrame) -> None:
    """Refuses a development run whose rows are about a picture that judged rows of another run are about."""
    shared = shared_images(development, set(rows["image_id"].unique()), run, set(judged["image_id"].unique()))
    if shared:
        name = min(shared)
        there = "" if shared[name] == name else f", which is {shared[name]} there"
        raise SightlineError(
            f"development run {development.path} and {run.path} share {len(shared)} images (first: {name}{there}); "
            "thresholds must be chosen on other images than they are judged on"
        )


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


def _audit(
    run: Run, name: str, only: ProbeList | None, also: Collection[str] = (), same: Mapping[str, str] | None = None
) -> Audited:
    notes: list[str] = []
    frame = run.compact_frame(lambda column: column not in UNREAD or column in also, same)
    if "margin" in frame and frame["margin"].isna().all():
        empty = (batch.column(0).null_count == batch.num_rows for batch in run.scan(["margin"]))
        if all(empty):  # of a scorer that gives none; one that overflowed is no number, but it is not missing
            frame = frame.drop(columns="margin")
    frame["row"] = np.arange(len(frame), dtype=np.int32)
    if only is not None:
        frame = only.chosen(frame, run.path, notes).copy()
    frame["arm_name"] = frame["plain_arm"]
    frame["arm"] = frame["plain_arm"].cat.rename_categories(lambda arm: f"{name} · {arm}" if name else arm)
    name_control_views(frame, run.each_probe(CONTROL))
    if run.unfinished:
        notes.append(run.unfinished)
    if run.left_out:
        notes.append(run.left_out)
    if run.mixture:
        notes.append(run.mixture)
    plain = is_plain(frame)
    # Apart: a margin that overflowed under an intervention takes nothing from the plain tables.
    main = finite_in_every_arm(frame if plain.all() else frame[plain], notes).reset_index(drop=True)
    others = finite_alone(frame[~plain], notes).reset_index(drop=True)
    if main.empty:
        return Audited(name, run, main, others, notes)
    unlimited = None if only is None else _audit(run, name, None, same=same).frame
    return Audited(name, run, paired(main, notes), others, notes, unlimited=unlimited)


def _at_thresholds(source: Source, rules: Thresholds) -> Source:
    """Every run whose model has a rule with its answers at the thresholds that the rule names."""
    if not rules:
        return source
    parted = replace(
        source,
        runs=[_set_apart(one, source, rules) for one in source.runs],
        controls=[_set_apart(one, source, rules) for one in source.controls],
    )
    settings = {one.setting for one in source.runs}
    return replace(
        parted,
        runs=[_answered(one, parted) for one in parted.runs],
        controls=[_answered(one, parted) if one.setting in settings else one for one in parted.controls],
    )


def _set_apart(audited: Audited, source: Source, rules: Thresholds) -> Audited:
    """The run with its rule; without its development images where the rule is chosen on them."""
    rule = threshold_for(rules, audited.model)
    if rule is None or not rule.needs_development or source.developments_of(audited):
        return replace(audited, rule=rule)
    frame, others = audited.frame, audited.others
    plain, other = on_development_side(frame), on_development_side(others)
    if len(frame) and plain.all():
        raise SightlineError(audited.said(NONE_LEFT))
    return replace(
        audited,
        rule=rule,
        frame=frame[~plain].reset_index(drop=True),
        others=others[~other].reset_index(drop=True),
        set_apart=replace(audited, frame=frame[plain], others=others[other]).rows,
    )


def _answered(audited: Audited, source: Source) -> Audited:
    """The run with its answers at the thresholds of its rule, and a note that says which and whence."""
    if audited.rule is None:
        return audited
    development = _to_choose_on(audited, source)
    with located(audited.name):
        chosen = choose(audited.rows, development, audited.rule)
    named = ", ".join(dict.fromkeys(one.run.path.resolve().name for one in source.developments_of(audited)))
    where = f"all of the development run {named}" if named else HASH_SPLIT
    return replace(
        audited,
        frame=at_thresholds(audited.frame, chosen),
        others=at_thresholds(audited.others, chosen),
        thresholds=chosen,
        notes=[words_of(audited.rule, chosen, audited.frame, development, where), *audited.notes],
    )


def _to_choose_on(audited: Audited, source: Source) -> pd.DataFrame:
    """The development rows of a run; Full, where the rule needs it, and all plain rows, where it has none, may come
    from another run of the same weights and settings."""
    own = source.development_rows(audited)
    if own is None:
        return audited.rows.iloc[:0]
    alike = (source.development_rows(one) for one in source.runs if one.setting == audited.setting)
    others = [rows for rows in alike if rows is not None]
    if not is_plain(own).any():
        return others[0] if others else own
    if audited.rule is not None and audited.rule.needs_full and _full_rows(own).empty:
        full = next((found for found in map(_full_rows, others) if len(found)), own.iloc[:0])
        return pd.concat([own, full], ignore_index=True)
    return own


def _full_rows(rows: pd.DataFrame) -> pd.DataFrame:
    found: pd.DataFrame = rows[is_plain(rows) & (rows["selector"] == "full")]
    return found


def _with_reference(audited: Audited) -> Audited:
    """The run with Full's answers beside every row, and the lines that say what its rows lack."""
    main = audited.frame.copy(deep=False)
    named = {"margin": "reference_margin", "predicted": "reference_predicted", "correct": "reference_correct",
             "score": "reference_score", "ecr": "full_ecr"}  # fmt: skip
    told = [name for name in named if name in main]
    full = main.loc[main["selector"] == "full", ["probe_id", *told]].drop_duplicates("probe_id").set_index("probe_id")
    for name, own in named.items():
        main[own] = looked_up(main["probe_id"], full[name]) if name in full else np.float32(np.nan)
    twins = twin_rows(audited.others)
    if len(twins):
        said = twins.drop_duplicates(["arm", "probe_id"]).set_index(["arm", "probe_id"])["correct"].astype(float)
        main["twin_right"] = said.reindex(pd.MultiIndex.from_frame(main[["arm", "probe_id"]].astype(str))).to_numpy()
    note_data(main, audited.notes)
    return replace(audited, frame=main)


def twin_rows(others: pd.DataFrame) -> pd.DataFrame:
    """Of rows that are not plain, those about the twins of pages and under no other intervention."""
    found: pd.DataFrame = others[(others["view"] == TWIN) & (others["intervention"] == TWIN)]
    return found


def with_masks(audited: Audited, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with their two mask columns, for the few tables that look at them."""
    kept, lineage = zip(*masks_of(audited, rows["row"].tolist()), strict=True) if len(rows) else ((), ())
    return rows.assign(kept_mask=list(kept), lineage_mask=list(lineage))


def masks_of(audited: Audited, rows: Sequence[int]) -> list[tuple[bytes, bytes | None]]:
    """(kept, lineage) bit-packed masks of some rows, read only when a picture needs them."""
    table = rows_at(audited.run, rows, MASK_COLUMNS)
    kept, lineage = (table.column(name).to_pylist() for name in MASK_COLUMNS)
    return list(zip(kept, lineage, strict=True))
