"""The runs behind a leaderboard: one ordinary run folder per model, resumed and amended as everywhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sightline.arms.arm import MATCHED, Arm, parse_arm
from sightline.auditing.audit import audit, plan_audit
from sightline.auditing.config import AuditConfig, read_config
from sightline.auditing.shards import tasks_left
from sightline.auditing.worker import Worker, model_name
from sightline.backbones.base import weight_digest
from sightline.backbones.loading import Served, checkpoint_folder, model_type
from sightline.checks.demo import SHARD_IMAGES, asset
from sightline.core.selection import Budget, Role
from sightline.engines import Engine, engine_of
from sightline.errors import SightlineError
from sightline.rows.run import Run, load_run
from sightline.selectors import SELECTORS
from sightline.store.folder import RunFolder

# Who takes part: every registered method and control at every budget, and why some cannot on a model.

FULL, RANDOM, ENGINE = "full", "random", "engine"
"""The reference of all, and the control that every gain is counted from."""
COMPARED: tuple[Role, ...] = ("method", "control")
"""Roles that take part; oracles and replays are diagnostics of something else."""


@dataclass(frozen=True)
class Entry:
    """A method at a budget."""

    method: str
    """As it was named, without its budget: ``scope`` or ``scope:alpha=0``."""
    budget: str
    """Empty for Full."""
    arm: str
    """What its rows are called."""


@dataclass(frozen=True)
class Refusal:
    """A method that does not take part on a model."""

    method: str
    budget: str
    """Empty where it holds for every budget."""
    reason: str


@dataclass(frozen=True)
class Lineup:
    """The entries of one model, Full first, and the methods that it cannot serve."""

    entries: tuple[Entry, ...]
    refusals: tuple[Refusal, ...]


ANY_BUDGET = "0.5"
"""At which a method is tried before budgets are known."""


def chosen_methods(given: Sequence[str]) -> list[str]:
    """Those named, of which each must be one that can be ranked, once; without any, every registered method and control
    that needs no file of a user's, other packages' included."""
    named: dict[str, str] = {}
    for method in given:
        try:
            arm = method if method == ENGINE else _arm(method, ANY_BUDGET).text
        except SightlineError as error:
            raise SightlineError(f"--method {method}: {error}") from None
        if arm in named:
            raise SightlineError(f"--method {method} is {named[arm]} again; leave one of them out")
        named[arm] = method
    return list(given) or [name for name, kind in SELECTORS.items() if kind.role in COMPARED and not kind.needs_file]


def lineup(checkpoint: Path, methods: Sequence[str], budgets: Sequence[str], *, clip: bool) -> Lineup:
    """What ``config.json`` says that the checkpoint can serve; Random and Grid are there at every budget."""
    served = Served.by_description(checkpoint)
    entries, refusals = [Entry(FULL, "", FULL)], []
    for method in dict.fromkeys([*MATCHED, *methods]):
        reasons: dict[str, str] = {}
        for budget in budgets:
            try:
                arm = _arm(method, budget)
                served.refuse(arm.selector, clip=clip)
            except SightlineError as error:
                reasons[budget] = str(error)
            else:
                entries.append(Entry(method, budget, arm.text))
        refusals += said_once(method, reasons, len(budgets))
    return Lineup(tuple(entries), tuple(refusals))


def engine_lineup(engine: Engine, methods: Sequence[str], budgets: Sequence[str]) -> Lineup:
    """An engine's own pruning at every budget, as ``engine``; it can be asked for nothing else, Random included."""
    entries, reasons = [Entry(FULL, "", FULL)], {}
    for budget in budgets:
        keep = parse_arm(f"{RANDOM}:{budget}").budget.keep
        arm = None if keep is None else engine.pruning_arm(keep)
        if arm is None:
            reasons[budget] = f"{engine.name} has no switch for this budget"
        else:
            entries.append(Entry(ENGINE, budget, arm))
    others = [Refusal(name, "", f"{engine.name} shows no layers") for name in methods if name != ENGINE]
    return Lineup(tuple(entries), (*said_once(ENGINE, reasons, len(budgets)), *others))


def said_once(method: str, reasons: Mapping[str, str], budgets: int) -> list[Refusal]:
    """Refusals by budget, or a single one where all ``budgets`` of a method share the reason."""
    if len(reasons) == budgets and len(set(reasons.values())) == 1:
        return [Refusal(method, "", next(iter(reasons.values())))]
    return [Refusal(method, budget, reason) for budget, reason in reasons.items()]


def _arm(method: str, budget: str) -> Arm:
    """The method at a budget; refused where it takes none, or cannot be made without further arguments."""
    name, _, arguments = method.partition(":")
    kind = SELECTORS.get(name)
    if kind.role not in COMPARED:
        article = "an" if kind.role[0] in "aeiou" else "a"
        raise SightlineError(f"{name} is {article} {kind.role}, which is not ranked; leave it out")
    if not kind.needs_budget:
        raise SightlineError(f"{name} chooses its own budget, so that it has no place beside others at one")
    return parse_arm(":".join(filter(None, (name, budget, arguments))))


def read_budgets(given: Sequence[str]) -> list[str]:
    """``0.1,0.3`` and repeated options alike, as arms spell them, ascending; each once."""
    budgets = {}
    for text in (part.strip() for item in given for part in item.split(",") if part.strip()):
        budget: Budget = parse_arm(f"{RANDOM}:{text}").budget
        if budget.keep == 1.0:
            raise SightlineError(f"--budgets {text} keeps everything, which Full does already; name smaller ones")
        budgets[str(budget)] = (budget.count or 0, budget.keep or 0.0)
    if not budgets:
        raise SightlineError("--budgets names none; write for example --budgets 0.1,0.3,0.5")
    return sorted(budgets, key=lambda text: budgets[text])


RUNS = "runs"


@dataclass(frozen=True)
class Contest:
    """What is compared: methods on models at budgets, over one probe set."""

    out: Path
    models: Mapping[str, str]
    """Checkpoint folder or hub id by the name that tables have for it."""
    probes: Path
    images: Path
    methods: Sequence[str]
    budgets: Sequence[str]
    pages: int | None = None
    """Only the first so many images."""
    clip: str | None = None
    run: Mapping[str, Any] = field(default_factory=dict)
    """Further options of ``sightline run``: device, dtype, box_source, ..."""
    image_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """How images reach a model, by its name."""
    notes: Sequence[str] = ()
    """What whoever reads the ranks should know first."""

    def configuration(self, model: str, arms: Sequence[str]) -> AuditConfig:
        settings: dict[str, Any] = {
            "model": self.models[model],
            "probes": self.probes,
            "images": self.images,
            "arms": list(arms),
            "out": self.out / RUNS / model,
            "limit": self.pages,
            "clip": self.clip,
            "image_options": dict(self.image_options.get(model, {})),
            "matched_controls": False,  # they are among the arms
        }
        return read_config(None, {**settings, **self.run})


@dataclass(frozen=True)
class MeasuredModel:
    """One model's finished run, the entries that have rows there, and the methods that have none."""

    name: str
    run: Run
    lineup: Lineup


def measure(contest: Contest) -> list[MeasuredModel]:
    """Computes what is missing, model after model; what is refused for all of them is refused before any is loaded."""
    lineups = {
        name: engine_lineup(engine, contest.methods, contest.budgets)
        if (engine := engine_of(source)) is not None
        else lineup(checkpoint_folder(source), contest.methods, contest.budgets, clip=contest.clip is not None)
        for name, source in contest.models.items()
    }
    for name, found in lineups.items():
        plan_audit(contest.configuration(name, [entry.arm for entry in found.entries]))
    return [_measured(contest, name, found) for name, found in lineups.items()]


def _measured(contest: Contest, name: str, found: Lineup) -> MeasuredModel:
    """Audits until every entry either has its rows or is known to have none."""
    while True:
        config = contest.configuration(name, [entry.arm for entry in found.entries])
        if finished(config):
            return MeasuredModel(name, load_run(config.out), found)
        try:
            return MeasuredModel(name, audit(config), found)
        except Exception:  # whatever a method may raise, the others are worth comparing
            reasons = _failed(config) or _unserved(config)
            needed = {entry.arm for entry in found.entries if entry.method in (FULL, RANDOM)}
            if not reasons or needed & set(reasons):  # without these two there is nothing to compare with
                raise
        for arm, reason in reasons.items():
            print(f"note: {name}: {arm} is left out: {reason}", file=sys.stderr, flush=True)
        found = _without(found, reasons)


def finished(config: AuditConfig) -> bool:
    """Whether the run folder holds all of it already, made from these probes, settings and weights: no model is needed.

    A folder that holds something else is refused, as ``audit`` would.
    """
    job = plan_audit(config)
    if not job.recorded:
        return False
    if engine_of(config.model) is None:  # of an engine ``plan_audit`` has compared all that can be
        source = checkpoint_folder(config.model)
        names = {"model": model_name(config), "model_type": model_type(source)}
        job.folder.refuse_other({**names, "weight_digest": weight_digest(source)})
    known = all(arm.text in job.recorded["arms"] for arm in job.plan.arms)
    return known and not tasks_left(job.folder, job.shards, job.plan.arms)


def _failed(config: AuditConfig) -> dict[str, str]:
    """Arms of this command that raised an error while they ran, with the reason that the run folder keeps."""
    folder = RunFolder(config.out)
    aside = folder.manifest().get("set_aside", {}) if folder.exists else {}
    return {arm: str(aside[arm]) for arm in config.arms if arm in aside}


def _unserved(config: AuditConfig) -> dict[str, str]:
    """Arms that the loaded model refuses although its description did not say so, such as an image too large to fit."""
    job = plan_audit(config)
    reasons: dict[str, str] = {}
    worker = Worker(job.config)
    for arm in job.plan.arms:
        try:
            worker.refuse_unserved([arm], job.sizes)
        except SightlineError as error:
            reasons[arm.text] = str(error)
    return reasons


def _without(found: Lineup, reasons: Mapping[str, str]) -> Lineup:
    """The lineup less some arms, each with its reason."""
    refusals = []
    for method in dict.fromkeys(entry.method for entry in found.entries):
        own = [entry for entry in found.entries if entry.method == method]
        gone = {entry.budget: reasons[entry.arm] for entry in own if entry.arm in reasons}
        refusals += said_once(method, gone, len(own)) if gone else []
    kept = tuple(entry for entry in found.entries if entry.arm not in reasons)
    return Lineup(kept, (*found.refusals, *refusals))


# The demonstration: every reader that ships with the package, on the first pages of the locked scenes.

PAGES, OPEN_PAGES = 40, 50
"""Of those shipped, with two questions each: enough for intervals, few enough for minutes on two cores."""
SMALL = "These readers are small and read drawn pages alone: the order is not that on other models."
FAVOURED = (
    "Their training worked on the target selector's own score, the agreement of a visual token with the embeddings of "
    "the words asked for, and dropped tokens at random or as target chooses them: methods that compare tokens with "
    "the question are favoured where the question names what the page has to show."
)
"""Of yes/no questions. An open question names the label of a value, not the value."""


def readers(names: Sequence[str] = ()) -> dict[str, str]:
    """The shipped checkpoints of these names; without any, all of them."""
    folders = sorted(folder for folder in asset().glob("reader*") if (folder / "config.json").is_file())
    shipped = {folder.name: str(folder) for folder in folders}
    for name in names:
        if name not in shipped:
            raise SightlineError(
                f"no reader '{name}' is shipped here; choose from {', '.join(shipped)} (reader-llava is not in wheels: "
                "run in a checkout of the repository)"
            )
    return {name: folder for name, folder in shipped.items() if not names or name in names}


def demo_contest(
    out: Path,
    methods: Sequence[str],
    budgets: Sequence[str],
    *,
    models: Sequence[str] = (),
    in_words: bool = False,
    pages: int | None = None,
    clip: str | None = None,
    run: Mapping[str, Any] | None = None,
) -> Contest:
    """The yes/no questions of the locked scenes, or those that are answered ``in_words``."""
    scenes = asset("scenes", "confirmation")
    # Tokens were dropped at their own positions while the readers learned; LLaVA's usual policy would close the gaps.
    settings: dict[str, Any] = {"dtype": "float32", "shard_images": SHARD_IMAGES, "positions": "preserve"}
    if in_words:
        settings["box_source"] = "gt"  # for oracles alone: nothing else looks at boxes
    return Contest(
        out,
        readers(models),
        scenes / ("open_probes.jsonl" if in_words else "probes.jsonl"),
        scenes / ("open_images" if in_words else "images"),
        methods,
        budgets,
        pages or (OPEN_PAGES if in_words else PAGES),
        clip,
        {**settings, **(run or {})},
        notes=(SMALL,) if in_words else (SMALL, FAVOURED),
    )
