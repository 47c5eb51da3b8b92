"""Runs, reports and cost cards that are made once and looked at by many tests; what is read from a page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from sightline.report.build import build_report
from tests.unit.report.cost_cards import make_cards
from tests.unit.report.fake_open_run import make_open_run
from tests.unit.report.fake_run import make_run

DRAWS = 300


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A synthetic run of 8 arms over 20 images."""
    return make_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="session")
def report(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its report.html."""
    return build_report([run], tmp_path_factory.mktemp("report"), draws=DRAWS)


@pytest.fixture(scope="session")
def open_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A synthetic run of 10 arms over two open questions on each of 18 pages."""
    return make_open_run(tmp_path_factory.mktemp("open_runs") / "run")


@pytest.fixture(scope="session")
def open_report(open_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its report.html."""
    return build_report([open_run], tmp_path_factory.mktemp("open_report"), draws=DRAWS)


@pytest.fixture(scope="session")
def cards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A cost card of each kind, by kind."""
    return make_cards(tmp_path_factory.mktemp("cards"))


class Outline(HTMLParser):
    """Checks that elements nest, and collects ids, headings and text outside scripts and styles."""

    VOID = frozenset({"meta", "br", "link", "img", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if found.get("id"):
            self.ids.append(str(found["id"]))
        self.references += [str(found[k]) for k in ("src", "href", "action", "data") if found.get(k)]
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.stack or self.stack[-1] not in ("script", "style"):
            self.text.append(data)


def outline(page: Path) -> Outline:
    parser = Outline()
    parser.feed(page.read_text(encoding="utf-8"))
    parser.close()
    assert parser.stack == []
    return parser


def notes(page: Path) -> str:
    return " ".join(re.findall(r'<p class="note" role="note">(.*?)</p>', page.read_text(encoding="utf-8")))
