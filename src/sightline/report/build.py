"""From run folders to a report: ``build_report(paths, out)`` writes report.html and tables/*.{csv,md,tex}."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError
from sightline.geometry.marks import UNTYPED, RegionMark
from sightline.places.listing import Place
from sightline.report.case_packing import pack_cases
from sightline.report.cases import Case, choose_cases
from sightline.report.hero import Hero, make_hero
from sightline.report.page import Page, method_words, named_runs, run_facts, write_page
from sightline.report.sections import Context, Section, columns_read, make_sections
from sightline.report.sections.base import NamedCard
from sightline.report.sections.cost import card_facts, read_cards, realised_cost_section
from sightline.report.summary import headlines, main_table, summarise, verdicts
from sightline.report.verdict import MARGIN, audit_verdict
from sightline.rows.source import Source, read_probe_list, read_source
from sightline.statistics.bootstrap import DRAWS, SEED, OneThread
from sightline.statistics.thresholds import ThresholdLike
from sightline.store.folder import RunPlace
from sightline.version import __version__

CASES = 60
MARKED = {"swapped": "swapped_box", "lost": "lost"}
"""Marks that belong to answers and not to questions -> what a panel has where it is drawn."""

Progress = Callable[[str], None]


@OneThread()
def build_report(
    runs: Sequence[RunPlace],
    out: Path | str,
    *,
    references: Sequence[str] = (),
    costs: Sequence[Path | str] = (),
    developments: Sequence[Place | str] = (),
    threshold: ThresholdLike | None = None,
    only: Path | str | None = None,
    margin: float = MARGIN,
    cases: int = CASES,
    draws: int = DRAWS,
    seed: int = SEED,
    progress: Progress = lambda step: None,
) -> Path:
    """Writes the report of one or more runs into ``out`` and returns the path of its HTML file.

    ``references`` are arms to compare all others with, besides Full. ``costs`` are cost cards to show beside the runs,
    or alone when there are none. ``threshold`` is the one at which all answers are read, or the rule that names it
    (``statistics.thresholds``); ``developments`` are runs over other images on which thresholds are chosen. ``only``
    is a list of the probes to report on. ``margin`` is the loss of right answers that the verdict accepts.
    """
    cards = read_cards(costs)
    if not runs:
        for option, given in (
            ("--reference", references),
            ("--development", developments),
            ("--threshold", () if threshold is None else (threshold,)),
            ("--only", only),
        ):
            if given:
                raise SightlineError(f"{option} is about arms and probes of a run; name a run folder too")
        return write_page(_cards_alone(cards), Path(out))
    progress("reading rows")
    chosen = None if only is None else read_probe_list(Path(only))
    source = read_source(runs, only=chosen, developments=developments, threshold=threshold, also=columns_read())
    progress("resampling images")
    summary = summarise(source, draws, seed, references)
    outcome = audit_verdict(source, summary, margin=margin, draws=draws, seed=seed)
    parts = make_sections(Context(source, summary, draws, seed, cards, margin), progress)
    progress("pictures")
    gallery = next(part for part in parts if part.pictures)
    packed, hero = pack_pictures(source, cases, gallery, silent=summary.says_nothing, also=outcome.cases(source))
    models = dict.fromkeys(str(audited.run.manifest.get("model")) for audited in source.runs)
    page = Page(
        title=f"Visual-token pruning audit of {', '.join(models)}",
        facts=[run_facts(audited) for audited in source.runs],
        notes=[*summary.ranked_notes(draws), *source.notes],
        verdicts=verdicts(source, summary),
        overview=[main_table(summary)],
        sections=parts,
        packed=packed,
        hero=hero,
        method=method_words(draws, seed),
        headline=headlines(source, summary),
        banner=list(summary.says_nothing.values()),
        runs=named_runs(source),
        outcome=outcome,
    )
    progress("writing")
    return write_page(page, Path(out))


def _cards_alone(cards: Sequence[NamedCard]) -> Page:
    """The page of cost cards without a run."""
    if not cards:
        raise SightlineError("no run folder and no cost card to report: name a run, a card (--cost), or both")
    models = sorted({card.model for card in cards})
    return Page(
        title=f"Realised cost of {', '.join(models)}",
        facts=[card_facts(card) for card in cards],
        notes=[],
        verdicts=[],
        overview=[],
        sections=[realised_cost_section(cards, beside_runs=False)],
        packed=None,
        hero=None,
        method=f"Made by Sightline {__version__} from cost cards alone: nothing here is about answers or evidence.",
    )


def pack_pictures(
    source: Source,
    cases: int,
    section: Section,
    *,
    silent: Collection[str],
    reference: str = "Full",
    between_runs: bool = False,
    also: Sequence[Case] = (),
) -> tuple[dict[str, Any] | None, Hero | None]:
    """The gallery's data and the first picture; a problem becomes a line in the section instead.

    ``silent`` names the runs from whose answers nothing can be read: a picture of them is a case and no more.
    """
    try:
        chosen = choose_cases(source, cases, between_runs=between_runs, also=also)
        packed = pack_cases(source, chosen, reference)
        section.marks = [RegionMark(*mark) for mark in packed["marks"] if mark[0]]
        panels = [panel for case in packed["cases"] for panel in case["panels"]]
        answers = [packed[name] for name, there in MARKED.items() if any(panel.get(there) for panel in panels)]
        section.marks = [*(section.marks or [UNTYPED]), *answers] if answers else section.marks
        return packed, make_hero(packed, tells=source.runs[chosen[0].run].name not in silent)
    except SightlineError as error:
        section.notes.append(str(error))
        section.pictures = False
        return None, None
