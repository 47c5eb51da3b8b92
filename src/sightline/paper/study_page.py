"""All measured tables of a study on one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup

from sightline.paper.models import MODELS
from sightline.paper.printed import PrintedTable
from sightline.paper.study import Study
from sightline.places.writing import write_whole
from sightline.report import page as report_page
from sightline.version import __version__

TEMPLATE = Path(__file__).with_name("study_page.html")
HTML = "paper.html"


def write_paper_page(study: Study, tables: Sequence[PrintedTable]) -> Path:
    """Writes ``paper.html`` and ``tables/`` into the study's folder."""
    for printed in tables:
        printed.write(study.out / "tables")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    images = "500 a set" if study.limit is None else f"{study.limit} a set"
    text = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        title="The paper's tables, measured again",
        facts=[
            *((MODELS[name].title, Path(path).name) for name, path in study.models.items()),
            ("images", images),
            ("profile", study.options.profile),
            ("draws", str(study.options.draws)),
        ],
        warning=next((printed.warning for printed in tables), ""),
        tables=tables,
        version=__version__,
        css=Markup((report_page.HERE / "report.css").read_text(encoding="utf-8")),
    )
    path = study.out / HTML
    write_whole(path, text.encode())
    return path
