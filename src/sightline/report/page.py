"""The page itself: everything the template needs, rendered into one self-contained file beside its tables."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from sightline.core.selection import NO_BOXES
from sightline.core.table import NUMERIC, NamedRun, Table, unlettered
from sightline.places.listing import file_errors
from sightline.places.writing import make_folder, write_whole
from sightline.report.hero import Hero
from sightline.report.sections import Section
from sightline.report.summary import Verdict
from sightline.report.verdict import AuditVerdict
from sightline.rows.source import Audited, Source
from sightline.statistics.bootstrap import SEED
from sightline.version import __version__

HERE = Path(__file__).parent
HTML = "report.html"
DECISIONS = {
    "prune": "may be pruned",
    "more pages": "not enough pages",
    "no": "do not prune",
    "nothing": "nothing can be said",
}
"""What a verdict decides -> the words of its tag."""


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
    headline: list[str] = field(default_factory=list)
    """What the numbers come to, before anything is said of single arms."""
    banner: list[str] = field(default_factory=list)
    """Those of the headline that stand above everything: they say that nothing can be read from answers."""
    runs: list[NamedRun] = field(default_factory=list)
    outcome: AuditVerdict | None = None
    """What everything comes to, per method: it stands first, and everything else is folded away below."""

    def verdict_panels(self) -> list[tuple[str, list[Verdict]]]:
        """The verdicts under the headings of their panels."""
        found: dict[str, list[Verdict]] = {}
        for verdict in self.verdicts:
            found.setdefault(unlettered(verdict.panel), []).append(verdict)
        return list(found.items())

    def write_tables(self, folder: Path) -> None:
        """All tables; cost cards, which stand in parts of a section, are about models of their own."""
        for table in (*self.overview, *(table for section in self.sections for table in section.tables)):
            table.write(folder, self.runs)
        for table in (table for section in self.sections for part in section.parts for table in part.tables):
            table.write(folder)


def named_runs(source: Source) -> list[NamedRun]:
    found = []
    for audited in source.runs:
        model, folder = str(audited.run.manifest.get("model")), audited.run.path.resolve().name
        found.append(NamedRun(audited.name, folder if audited.name in ("", model) else audited.name, model))
    return found


def run_facts(audited: Audited) -> list[tuple[str, str]]:
    """The line under the title; the runs table has the rest."""
    manifest, probes = audited.run.manifest, audited.frame.drop_duplicates("probe_id")
    boxes = [str(source) for source in audited.frame["box_source"].unique() if source != NO_BOXES]
    told = [
        ("Run", _called(audited)),
        ("model", str(manifest.get("model"))),
        ("probes", f"{len(probes)} on {probes['image_id'].nunique()} images"),
        ("device", f"{manifest.get('device')}, {manifest.get('dtype')}"),
        ("positions", str(manifest.get("positions"))),
        ("boxes", ", ".join(boxes) or "none read"),
        ("profile", str(manifest.get("profile"))),
        ("created", str(manifest.get("created"))[:10]),
    ]
    return [(name, value) for name, value in told if value != "None"]  # what an engine does not tell


def _called(audited: Audited) -> str:
    """The folder, behind another name that the report has for it, such as the letters of a comparison."""
    folder = audited.run.path.resolve().name
    known = ("", folder, str(audited.run.manifest.get("model")))
    return folder if audited.name in known else f"{audited.name} = {folder}"


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
    reference = [] if page.outcome is None else page.outcome.reference
    return template.render(
        title=page.title,
        facts=page.facts,
        notes=[*page.banner, *page.notes],
        headline=[sentence for sentence in page.headline if sentence not in page.banner],
        findings=[(part, part.sentence) for part in page.sections if part.in_overview and part.sentence],
        verdicts=page.verdict_panels(),
        overview=page.overview,
        sections=page.sections,
        outcome=page.outcome,
        asked=[each for each in reference if not any(said in each for said in page.banner)],
        decisions=DECISIONS,
        hero=page.hero,
        reference="Full" if page.packed is None else page.packed["reference"],
        cases=None if page.packed is None else embed_json(page.packed),
        method=page.method,
        gallery=next((part.id for part in page.sections if part.pictures), ""),
        numeric=NUMERIC,
        version=__version__,
        css=Markup((HERE / "report.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=digest,
    )


def write_page(page: Page, out: Path) -> Path:
    """Tables first, the page last: an earlier page is taken away before, so that none stands beside other tables."""
    content, path = render(page).encode(), out / HTML
    make_folder(out)
    with file_errors(f"cannot write the report to {out}"):
        path.unlink(missing_ok=True)
        page.write_tables(out / "tables")
    write_whole(path, content)
    return path
