"""A study: one folder with the probe sets, runs and tables of the paper, shared by all tables and resumable.

An entry of ``probe_sets.toml``, and ``@builds("name")`` above a function that returns the probes, and where their
images are, is all that a new probe set needs. Each is built once per study, locked, and verified when it is used again.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from sightline.arms.arm import parse_arm
from sightline.backbones.clip import clip_trouble
from sightline.boxes.sources import check_source
from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.places.writing import write_whole
from sightline.probes import lock_probes, read_probes, verify_lock, write_probes
from sightline.probes.probe_file import ProbeSet, lock_path
from sightline.rows.run import Run, load_run
from sightline.statistics.summaries import arm_summary
from sightline_paper.data import OpenData, SourceImages, drawn_scenes, textocr
from sightline_paper.models import MODELS, stand_in
from sightline_paper.needs import Need, StudyOptions, merged, needs_clip, with_recorded

T = TypeVar("T")
RECORD = "study.json"
DEMO_IMAGES = 12
DETECTOR = "easyocr"
"""The text detector of the paper."""
STAND_INS = ("rapidocr", "tesseract")
"""Detectors that stand in for it where it is not installed, and are said to."""


# Probe sets.


class NothingToAskError(SightlineError):
    """A set that depends on answers came out empty: its runs are left out, and the study goes on."""


@dataclass(frozen=True)
class Built:
    """Probes, how they came about, and the folder their image names are relative to."""

    probes: Sequence[Probe]
    construction: dict[str, Any]
    images: Path | None
    """None for TextOCR's, which are looked for when somebody wants to see one."""
    source: Mapping[str, Any] | None = None
    """What they were built from, for the header of the file; None for TextOCR's words."""


@dataclass(frozen=True)
class ProbeSetRecipe:
    """What ``probe_sets.toml`` says of a set; its first lines say what each entry means."""

    name: str
    about: str
    command: str
    scorer: str = "yes_no"
    file: str = ""
    images: str = ""
    lite: str = ""
    reviewed: bool = False
    source: str = "textocr"
    size: int = 96


PROBE_SETS = {
    name: ProbeSetRecipe(name, **{"file": f"probes/{name}.jsonl", **facts})
    for name, facts in tomllib.loads(Path(__file__).with_name("probe_sets.toml").read_text(encoding="utf-8")).items()
}
Build = Callable[["Study", str], Built]
BUILDERS: dict[str, Build] = {}
LACKS: dict[str, Callable[[Study, str], str]] = {}
"""Why a study cannot build a set, in words, or nothing; without it what is missing stops the whole study."""


def builds(*names: str, lacks: Callable[[Study, str], str] | None = None) -> Callable[[Build], Build]:
    """The function below it builds these sets; it is given the study and the name of the set."""

    def decorate(build: Build) -> Build:
        BUILDERS.update(dict.fromkeys(names, build))
        if lacks is not None:
            LACKS.update(dict.fromkeys(names, lacks))
        return build

    return decorate


def scorer_of(need: Need) -> str:
    """What an answer is in the rows of a need."""
    return need.scorer or PROBE_SETS[need.probes].scorer


@dataclass
class Study:
    """Computes what tables need and hands out rows; every table of a folder sees the same ones."""

    out: Path
    models: dict[str, str]
    """Checkpoints by the paper's name for them; a table's lines about other models stay unmeasured."""
    textocr: Path | None = None
    options: StudyOptions = field(default_factory=StudyOptions)
    open_data: dict[str, Path] = field(default_factory=dict)
    """Folders with open questions by benchmark: textvqa, docvqa, ocrbench."""
    notes: list[str] = field(default_factory=list)
    _made: dict[Any, Any] = field(default_factory=dict, repr=False)
    _said: dict[Any, tuple[str, ...]] = field(default_factory=dict, repr=False)
    """What was noted while each was made."""

    def __post_init__(self) -> None:
        self.out = Path(self.out)
        recorded = self.recorded()
        for name, value in self._fixed().items() if recorded else ():
            before = recorded.get(name, False if name == "lite" else None)
            if before != value:
                raise SightlineError(f"{self.out} was begun with {name}={before}, not {value}; take another --out")
        self.models = {**recorded.get("models", {}), **self.models}
        if self.textocr is None and recorded.get("textocr"):
            self.textocr = Path(recorded["textocr"])
        named = {task: Path(path) for task, path in recorded.get("open_data", {}).items()}
        self.open_data = {**named, **self.open_data}
        self.options = with_recorded(self.options, recorded)

    def recorded(self) -> dict[str, Any]:
        """What the folder says of itself; empty for a new one."""
        try:
            found: dict[str, Any] = json.loads((self.out / RECORD).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            raise SightlineError(f"{self.out / RECORD} cannot be read; take another --out or remove it") from None
        return found

    @property
    def limit(self) -> int | None:
        return DEMO_IMAGES if self.options.demo and self.options.limit is None else self.options.limit

    def _fixed(self) -> dict[str, Any]:
        """What may not change within one folder: rows would no longer belong together."""
        options = self.options
        return {"demo": options.demo, "profile": options.profile, "limit": self.limit, "lite": options.lite}

    @cached_property
    def source(self) -> SourceImages:
        if self.options.demo:
            return drawn_scenes()
        if self.textocr is None:
            raise SightlineError("the paper's probes come from TextOCR: give its folder with --textocr, or try --demo")
        return textocr(self.textocr, self.options.profile)

    @property
    def questions(self) -> OpenData:
        """Open questions; those of a demonstration are drawn below its folder."""
        return OpenData(self.open_data, self.out / "stand-ins" if self.options.demo else None)

    def record(self, tables: Sequence[str] = ()) -> None:
        """Writes what the folder was begun with, before anything is computed, and the tables that were run in it."""
        self.out.mkdir(parents=True, exist_ok=True)
        known = list(dict.fromkeys([*self.recorded().get("tables", []), *tables]))
        record = {
            **self._fixed(),
            "models": self.models,
            "textocr": None if self.textocr is None else str(self.textocr),
            "open_data": {task: str(path) for task, path in self.open_data.items()},
            "clip": self.options.clip,
            **{name: None if path is None else str(path) for name, path in self.options.judgements.items()},
            "tables": known,
        }
        write_whole(self.out / RECORD, (json.dumps(record, indent=1) + "\n").encode())

    # What tables need, computed once.

    def servable(self, needs: Iterable[Need]) -> list[Need]:
        """The needs that the given checkpoints can meet, one per run; what cannot run is noted in words."""
        found = []
        wanted = merged(replace(need, probes=self.standing_for(need.probes)) for need in needs)
        here = (self._with_detector(need) for need in wanted if need.model in self.models)
        for need in filter(None, here):
            if self._lacks_questions(need.probes):
                continue
            if PROBE_SETS[need.probes].reviewed and self.options.decisions is None and not self.options.demo:
                self.note("replaced words were screened by an OCR engine alone: give --decisions with people's review")
            # Two spellings of one arm, such as a default that is written out, are one column.
            arms = {self.arm(need.model, arm): arm for arm in need.arms if not self._lacks(need.model, arm)}
            if arms:
                found.append(replace(need, arms=tuple(arms.values())))
        return found

    def standing_for(self, probes: str) -> str:
        """The probe set that is asked where a table names this one: under ``lite`` a 500-question part, and noted."""
        lite = PROBE_SETS[probes].lite
        if not self.options.lite or not lite:
            return probes
        self.note(
            "TextVQA and DocVQA were asked their 500-question parts (--lite): figures published for full validation "
            "are those of other questions"
        )
        return lite

    def _lacks_questions(self, probes: str) -> str:
        """Why a probe set cannot be built here, in words; nothing where it can."""
        return LACKS[probes](self, probes) if probes in LACKS else ""

    def _lacks(self, model: str, arm: str) -> bool:
        """Whether an arm needs CLIP and none was given that serves the model."""
        if not needs_clip(arm):
            return False
        clip, checkpoint = self.options.clip, self.models[model]
        reason = "it compares with CLIP embeddings, give --clip"
        if clip:
            reason = self.remembered(("clip", clip, checkpoint), lambda: clip_trouble(clip, checkpoint))
        if reason:
            self.note(f"{arm} on {MODELS[model].title} is left out: {reason}")
        return bool(reason)

    def _with_detector(self, need: Need) -> Need | None:
        """The need with a text detector that is installed here; None, and a note, where there is none."""
        if need.box_source != DETECTOR:
            return need
        found = self.detector
        if found != DETECTOR:
            stands_in = f"{found} stands in for it" if found else "its lines are left out; pip install easyocr"
            self.note(f"EasyOCR is not installed: {stands_in}")
        return replace(need, box_source=found) if found else None

    @cached_property
    def detector(self) -> str | None:
        """EasyOCR, or the first of its stand-ins that is installed."""
        for name in (DETECTOR, *STAND_INS):
            with suppress(SightlineError):
                check_source(name)
                return name
        return None

    def note(self, words: str) -> None:
        if words not in self.notes:
            self.notes.append(words)

    @contextmanager
    def noting(self) -> Iterator[list[str]]:
        """What is noted meanwhile, by itself: the notes of one table."""
        before, self.notes = self.notes, []
        try:
            yield self.notes
        finally:
            said, self.notes = self.notes, before
            for words in said:
                self.note(words)

    def remembered(self, key: Any, make: Callable[[], T]) -> T:
        """What ``make`` returns, made once until rows change; what it noted is noted whenever it is asked for."""
        if key not in self._made:
            with self.noting() as said:
                found = make()
            self._made[key], self._said[key] = found, tuple(said)
        for words in self._said.get(key, ()):
            self.note(words)
        made: T = self._made[key]
        return made

    def compute(self, needs: Iterable[Need]) -> None:
        """Audits what is missing, run by run; each amends what other tables left there."""
        from sightline.auditing.audit import audit

        self.record()
        for need in self.servable(needs):
            if not self.missing(need):
                continue
            try:
                audit(self.configuration(need))
            except NothingToAskError as error:
                self.note(f"{need.probes} is left out: {error}")
            self._made.clear()  # a later set may be chosen by the answers just given

    def configuration(self, need: Need) -> Any:
        """The options of ``sightline run`` that a need stands for."""
        from sightline.auditing.config import read_config

        model = MODELS[need.model]
        file, _, images = built_set(self, need.probes)
        settings: dict[str, Any] = {
            "model": self.models[need.model],
            "probes": file,
            "images": images,
            "arms": list(need.arms),
            "out": self.folder(need),
            "matched_controls": False,
            "box_source": need.box_source,
            "scorer": scorer_of(need),
            "profile": self.options.profile,
            "clip": self.options.clip if any(map(needs_clip, need.arms)) else None,
            "dtype": "float32" if self.options.demo else model.dtype(need.probes),
            # The drawn pages have the size that the embedded reader knows.
            "image_options": {} if self.options.demo else dict(model.images(scorer_of(need))),
        }
        return read_config(None, {**settings, **self.options.run})

    def folder(self, need: Need) -> Path:
        return self.out / "runs" / need.folder

    def missing(self, need: Need) -> int:
        """How many of its arms are not finished in the run folder."""
        run = self.run_of(need)
        if run is None or run.missing:
            return len(need.arms)
        return sum(self.arm(need.model, arm) not in run.arms for arm in need.arms)

    def run_of(self, need: Need) -> Run | None:
        """The run folder of a need, if anything is in it."""
        try:
            return load_run(self.folder(need))
        except SightlineError:
            return None

    # What tables read.

    def arm(self, model: str, text: str) -> str:
        """An arm as rows call it, under the study's profile."""
        return parse_arm(text, profile=self.options.profile, model_type=MODELS[model].model_type).text

    def rows(self, model: str, probes: str, box_source: str = "annotation", scorer: str = "") -> pd.DataFrame:
        """All rows of a run, coverage counted as in the paper; refused in words where there are none."""
        return self.remembered(
            ("rows", model, probes, box_source, scorer),
            lambda: of_visible_evidence(self.run(model, probes, box_source, scorer).frame()),
        )

    def stand_in(self, model: str) -> str:
        """What stands in for one of the paper's models here; nothing where it is that model, or none was given."""
        source = self.models.get(model)
        if source is None:
            return ""
        return self.remembered(("stand-in", source), lambda: stand_in(source, model))

    def require(self, model: str) -> None:
        """Refuses in words where no checkpoint of the model was given."""
        if model not in self.models:
            raise SightlineError(f"no checkpoint of {MODELS[model].title} was given")

    def run(self, model: str, probes: str, box_source: str = "annotation", scorer: str = "") -> Run:
        self.require(model)
        need = self._with_detector(Need(model, self.standing_for(probes), (), box_source, scorer))
        if need is None:
            raise SightlineError("no text detector is installed")
        found = self.run_of(need)
        if found is None:
            if reason := self._lacks_questions(need.probes):
                raise SightlineError(reason)
            raise SightlineError(f"{self.folder(need)} has no rows yet")
        return found

    def summary(self, rows: pd.DataFrame, arm: str, metrics: Sequence[str], key: Any) -> Any:
        """One arm's line of ``arm_summary``, computed once per ``key``, arm and set of metrics."""

        def make() -> Any:
            own = rows[rows["arm"] == arm]
            if own.empty:
                raise SightlineError(f"{arm} has not been measured")
            return arm_summary(own, metrics=list(metrics), draws=self.options.draws).iloc[0]

        return self.remembered((key, arm, tuple(metrics)), make)


def built_set(study: Study, name: str) -> tuple[Path, ProbeSet, Path]:
    """(file, probes, image folder) of a set, built and locked on first use."""
    file, found = built_probes(study, name)
    root = file.with_suffix(".images")
    if not root.exists():
        write_whole(root, f"{study.source.images}\n".encode())
    return file, found, Path(root.read_text(encoding="utf-8").strip())


def built_probes(study: Study, name: str) -> tuple[Path, ProbeSet]:
    """(file, probes) of a set, for those who do not look at images."""
    file = study.out / "probes" / f"{name}.jsonl"
    if lock_path(file).exists():
        found = read_probes(file)
        verify_lock(file, found)
        if study.options.decisions is not None and found.construction.get("reviewed") is False:
            raise SightlineError(
                f"{file} was built before people's decisions were given; take another --out, or remove the file, its "
                "lock and the runs that were made from it"
            )
        return file, found
    made = BUILDERS[name](study, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    source = study.source.ingest.source if made.source is None else made.source
    found = write_probes(file, made.probes, construction=made.construction, source=source)
    if made.images is not None:
        write_whole(file.with_suffix(".images"), f"{made.images}\n".encode())
    lock_probes(file, found, replace=True)
    return file, found


# Coverage as the paper counts it: of the part of the evidence that the vision tower sees at all.
#
# Its boxes are those of the processed image, so Full covers everything. A tower that crops, such as LLaVA's, never sees
# some of the annotated words; rows count them as uncovered, the paper's tables do not count them.

COVERAGES = {"ecr": ("lpp", "geo_f1"), "anchor_ecr": ("anchor_lpp", "anchor_geo_f1")}
"""Coverage -> (precision, harmonic mean of both)."""


def of_visible_evidence(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with ecr := ecr / visible and Geo-F1 to match; no coverage where nothing of the evidence is visible."""
    if "visible" not in rows or not (rows["visible"].astype(float) < 1.0).any():
        return rows
    visible = rows["visible"].astype(float).where(rows["visible"].astype(float) > 0.0)
    changed: dict[str, pd.Series[float]] = {}
    for coverage, (precision, both) in COVERAGES.items():
        relative = rows[coverage].astype(float) / visible
        local = rows[precision].astype(float)
        total = (relative + local).replace(0.0, np.nan)
        changed[coverage] = relative
        changed[both] = (2.0 * relative * local / total).fillna(0.0).where(relative.notna())
    return rows.assign(**changed)
