"""From run folders to a report: ``build_report(paths, out)`` writes report.html and tables/*.{csv,md,tex}."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from sightline import __version__
from sightline.errors import SightlineError
from sightline.report import sections as made
from sightline.report.cases import choose_cases, pack_cases
from sightline.report.contract import facts
from sightline.report.hero import Hero, make_hero
from sightline.report.intervention_sections import intervention_sections
from sightline.report.probe_list import read_probe_list
from sightline.report.realised_cost import Card, card_facts, read_cards, realised_cost_section
from sightline.report.sections import Section
from sightline.report.source import Source, read_source
from sightline.report.summary import Verdict, summarise, verdicts
from sightline.report.table import NUMERIC, Table
from sightline.report.tables import main_table
from sightline.statistics.bootstrap import DRAWS, SEED
from sightline.store.folder import write_whole

HERE = Path(__file__).parent
CASES = 60
HTML = "report.html"

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Page:
    """Everything the template needs."""

    title: str
    facts: list[list[tuple[str, str]]]
    notes: list[str]
    verdicts: list[Verdict]
    overview: list[Table]
    sections: list[Section]
    packed: dict[str, Any] | None
    hero: Hero | None
    method: str

    def tables(self) -> list[Table]:
        return [*self.overview, *(table for section in self.sections for table in section.all_tables())]


def build_report(
    runs: Sequence[Path | str],
    out: Path | str,
    *,
    references: Sequence[str] = (),
    costs: Sequence[Path | str] = (),
    developments: Sequence[Path | str] = (),
    only: Path | str | None = None,
    cases: int = CASES,
    draws: int = DRAWS,
    seed: int = SEED,
    progress: Progress = lambda step: None,
) -> Path:
    """Writes the report of one or more runs into ``out`` and returns the path of its HTML file.

    ``references`` are arms to compare all others with, besides Full. ``costs`` are cost cards to show beside the runs,
    or alone when there are none. ``developments`` are runs over other images on which thresholds are chosen, ``only`` a
    list of the probes to report on.
    """
    cards = read_cards(costs)
    if not runs:
        for option, given in (("--reference", references), ("--development", developments), ("--only", only)):
            if given:
                raise SightlineError(f"{option} is about arms and probes of a run; name a run folder too")
        return write_page(_cards_alone(cards), Path(out))
    progress("reading rows")
    chosen = None if only is None else read_probe_list(Path(only))
    source = read_source(runs, only=chosen, developments=developments)
    progress("resampling images")
    summary = summarise(source, draws, seed, references)
    progress("tables and charts")
    parts = [
        made.contract_section(source),
        made.frontier_section(source, summary),
        made.differences_section(source, summary),
        made.provenance_section(source, draws, seed),
        made.pictures_section(),
        made.calibration_section(source, summary),
        made.geometry_section(source, summary),
        made.cost_section(source),
    ]
    if cards:
        parts.append(realised_cost_section(cards, beside_runs=True))
    progress("interventions")
    parts += intervention_sections(source, draws, seed)
    progress("pictures")
    packed, hero = pack_pictures(source, cases, next(part for part in parts if part.pictures))
    models = sorted({str(audited.run.manifest.get("model")) for audited in source.runs})
    page = Page(
        title=f"Visual-token pruning audit of {', '.join(models)}",
        facts=[facts(audited) for audited in source.runs],
        notes=source.notes,
        verdicts=verdicts(source, summary),
        overview=[main_table(summary)],
        sections=parts,
        packed=packed,
        hero=hero,
        method=method_words(draws, seed),
    )
    progress("writing")
    return write_page(page, Path(out))


def _cards_alone(cards: Sequence[Card]) -> Page:
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
    source: Source, cases: int, section: Section, *, reference: str = "Full", between_runs: bool = False
) -> tuple[dict[str, Any] | None, Hero | None]:
    """The gallery's data and the first picture; a problem becomes a line in the section instead."""
    try:
        packed = pack_cases(source, choose_cases(source, cases, between_runs=between_runs), reference)
        return packed, make_hero(packed)
    except SightlineError as error:
        section.notes.append(str(error))
        section.pictures = False
        return None, None


def method_words(draws: int, seed: int) -> str:
    # Intervention tables are computed with the default seed, whatever the report's is.
    other = "" if seed == SEED else f"; {SEED} in tables of validity and interventions"
    return (
        f"Intervals are 95% percentiles of {draws} seeded draws (seed {seed}{other}), fewer where a caption says so, "
        "that resample images with all their probes; differences are paired within each draw. Coverage is geometric "
        "availability of annotated evidence, not proof that the model used it. "
        f"Made by Sightline {__version__} from the run folder alone."
    )


def embed_json(data: Any) -> Markup:
    """JSON that cannot end its script element or be read as markup, whatever strings the data hold."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def render(page: Page) -> str:
    """The whole page as one string; style and script inlined, the script pinned by its hash."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=False)
    template = environment.from_string((HERE / "template.html").read_text(encoding="utf-8"))
    script = (HERE / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return template.render(
        title=page.title,
        facts=page.facts,
        notes=page.notes,
        verdicts=page.verdicts,
        overview=page.overview,
        sections=page.sections,
        hero=page.hero,
        reference="Full" if page.packed is None else page.packed["reference"],
        cases=None if page.packed is None else embed_json(page.packed),
        method=page.method,
        numeric=NUMERIC,
        version=__version__,
        css=Markup((HERE / "report.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=digest,
    )


def write_page(page: Page, out: Path) -> Path:
    try:
        out.mkdir(parents=True, exist_ok=True)
        for table in page.tables():
            table.write(out / "tables")
    except OSError as error:
        raise SightlineError(f"cannot write the report to {out}: {error.strerror or error}") from None
    path = out / HTML
    write_whole(path, render(page).encode())
    return path
