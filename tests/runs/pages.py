"""A written page as tests look at it, and pages on runs that are made for them."""

import csv
import json
import re
from dataclasses import dataclass
from functools import cached_property
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd

from sightline.report.build import build_report
from sightline.report.compare import compare_runs
from tests.runs.open_questions import make_open_run
from tests.runs.yes_no import make_run

DRAWS = 300


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


@dataclass(frozen=True)
class Page:
    """A page that was written, and the tables beside it."""

    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def outline(self) -> Outline:
        parser = Outline()
        parser.feed(self.text)
        parser.close()
        assert parser.stack == []
        return parser

    @property
    def ids(self) -> list[str]:
        return self.outline.ids

    @property
    def headings(self) -> list[str]:
        """The sections, by id, in their order."""
        return re.findall(r'<h2 id="([\w-]+)-title">', self.text)

    @property
    def notes(self) -> str:
        return " ".join(re.findall(r'<p class="note" role="note">(.*?)</p>', self.text))

    @property
    def readings(self) -> str:
        return " ".join(part.split("</p>")[0] for part in self.text.split('<p class="sentence">')[1:])

    @property
    def said(self) -> str:
        """Everything that a reader of the page can see, tooltips and descriptions of drawings included."""
        text = re.sub(r"<(style|script)[^>]*>.*?</\1>", "", self.text, flags=re.DOTALL)
        told = re.findall(r'(?:title|aria-label)="([^"]*)"', text)
        return unescape(re.sub(r"<[^>]+>", " ", text) + " ".join(told))

    @property
    def packed(self) -> dict[str, Any]:
        """The cases of its gallery."""
        found = re.search(r'<script type="application/json" id="cases">(.*?)</script>', self.text)
        assert found is not None
        data: dict[str, Any] = json.loads(found[1])
        return data

    def html(self, table: str) -> str:
        found = re.search(rf'<table id="table-{table}">.*?</table>', self.text, re.S)
        assert found is not None
        return found[0]

    def file(self, name: str) -> Path:
        return self.path.parent / "tables" / name

    def has(self, table: str) -> bool:
        return self.file(f"{table}.csv").exists()

    def rows(self, table: str) -> list[dict[str, str]]:
        with self.file(f"{table}.csv").open() as file:
            return list(csv.DictReader(file))

    def frame(self, table: str) -> pd.DataFrame:
        return pd.read_csv(self.file(f"{table}.csv"))

    def frames(self) -> dict[str, pd.DataFrame]:
        return {file.stem: pd.read_csv(file) for file in sorted(self.file(".").glob("*.csv"))}


def missing(text: str, *words: str) -> list[str]:
    """Those of some words that do not stand in a text."""
    return [each for each in words if each not in text]


def report_on(out: Path, *runs: Path, draws: int = DRAWS, cases: int = 1, **options: Any) -> Page:
    return Page(build_report(list(runs), out, draws=draws, cases=cases, **options))


def page_of(folder: Path, *, draws: int = DRAWS, cases: int = 1, **run: Any) -> Page:
    """The report on a run that is made for it: ``make_run`` takes the other options."""
    return report_on(folder / "out", make_run(folder / "run", **run), draws=draws, cases=cases)


def open_page_of(folder: Path, **run: Any) -> Page:
    """The same of open questions."""
    return report_on(folder / "out", make_open_run(folder / "run", **run), draws=50, cases=2)


def comparison_of(out: Path, first: Path, second: Path, *, cases: int = 0, **options: Any) -> Page:
    return Page(compare_runs(first, second, out, **{"draws": DRAWS, "cases": cases, **options}))
