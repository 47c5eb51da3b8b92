"""A static site of a chosen part of some runs, which works from a file: no server, no network, nothing to install.

Browsers load neither modules nor data from files, so the page holds both: the pages' modules joined into one script,
pinned by its hash, and the answers to everything that the pages will ask. Images stay files beside it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError
from sightline.places.writing import make_folder, write_whole
from sightline.report.page import embed_json
from sightline.serving.server import LOOK
from sightline.view.overview import measured
from sightline.view.runs import OUTCOMES, ViewedRun
from sightline.view.server import PAGES, PageData

PAGE = "index.html"
SUFFIXES = {"image/jpeg": ".jpg", "image/png": ".png", "image/webp": ".webp", "image/gif": ".gif"}
IMPORT = re.compile(r'^import\s[^;]*?from\s+"\./(\w+)\.js";\n', re.MULTILINE)
EXPORT = re.compile(r"^export\s+", re.MULTILINE)
MOST_ARMS = 60
"""Arms whose masks go into a bundle, per run."""


def write_bundle(answers: PageData, folder: Path, query: str, most: int) -> Path:
    """Writes the site into a new or empty folder and returns its page."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SightlineError(f"{folder} exists and is not empty; name a new folder for the bundle")
    chosen = [_Chosen(answers, number, run, query, most) for number, run in enumerate(answers.runs)]
    make_folder(folder)
    make_folder(folder / "images")
    data = {
        "words": _words(query, most, chosen),
        "runs": answers.about_runs({}),
        # With intervals: a bundle has no process beside it.
        "overviews": [
            {**run.numbers(), "headline": [], **measured(str(run.folder)), "version": 0} for run in answers.runs
        ],
        "rows": [one.rows() for one in chosen],
        "cases": [one.cases for one in chosen],
        "keepers": [one.keepers() for one in chosen],
        "images": [one.write_images(folder) for one in chosen],
        "compared": list(_compared(answers, chosen)),
    }
    write_whole(folder / PAGE, _page(data).encode())
    return folder / PAGE


def _words(query: str, most: int, chosen: list[_Chosen]) -> str:
    shown = " and ".join(f"{len(one.probes)} of {one.total}" for one in chosen)
    said = f"rows with {query}" if query else "all rows"
    return (
        f"A fixed part of the run: {shown} cases of {said}, at most {most} per run. "
        "Numbers of the overview are over all rows."
    )


class _Chosen:
    """The cases of one run that go into a bundle."""

    def __init__(self, answers: PageData, number: int, run: ViewedRun, query: str, most: int) -> None:
        self.answers, self.number, self.run = answers, number, run
        asked = run.asked()
        indices = asked.listed(query, "", False, True)
        self.total = len(indices)
        self.probes = [
            (record["probe_id"], record["view"]) for record in asked.records(indices[:most], ["probe_id", "view"])
        ]
        if not self.probes:
            raise SightlineError(f"no row of {run.name} fits the query {query!r}; a bundle needs at least one case")
        if len(asked.rows.arms) > MOST_ARMS:
            raise SightlineError(f"{run.name} has {len(asked.rows.arms)} arms; a bundle holds at most {MOST_ARMS}")

    def rows(self) -> list[dict[str, Any]]:
        """All rows of the chosen probes, whatever arm the query named."""
        asked = self.run.asked()
        columns = self.answers.rows({"run": str(self.number), "limit": "1"})["columns"]
        indices = [int(index) for probe, view in self.probes for index in asked.rows.of_probe(probe, view)]
        return asked.records(indices, columns)

    @cached_property
    def cases(self) -> dict[str, Any]:
        """By probe, with all arms."""
        arms = "|".join(self.run.asked().rows.arms)
        return {
            probe: self.answers.case({"run": str(self.number), "probe": probe, "view": view, "arms": arms})
            for probe, view in self.probes
        }

    def keepers(self) -> dict[str, Any]:
        """By probe and image; from the very masks of the cases."""
        found: dict[str, Any] = {}
        for probe, case in self.cases.items():
            for panel in case["panels"]:
                key = f"{probe} {panel['image_key']}"
                found.setdefault(key, {"arms": []})["arms"].append(
                    {"arm": panel["arm"], "kept_mask": panel["kept_mask"]}
                )
        return found

    def write_images(self, folder: Path) -> dict[str, str]:
        """By image key, or key and number of a detail, the file beside the page."""
        names: dict[str, str] = {}
        for case in self.cases.values():
            for key, image in case["images"].items():
                if key in names:
                    continue
                asked = {"run": str(self.number), "key": key, "view": case["view"], "source": image["source"]}
                names[key] = self._write(folder, asked)
                if image["source"] == "preview":
                    for detail in range(len(image["details"])):
                        names[f"{key} {detail}"] = self._write(folder, {**asked, "detail": str(detail)})
        return names

    def _write(self, folder: Path, asked: dict[str, str]) -> str:
        content, media = self.answers.image(asked)
        name = f"images/{hashlib.sha256(content).hexdigest()[:20]}{SUFFIXES[media]}"
        if not (folder / name).exists():
            write_whole(folder / name, content)
        return name


def _compared(answers: PageData, chosen: list[_Chosen]) -> Iterator[dict[str, Any]]:
    """Every arm of every run with the same arm of every other, and with Full of its own, over the chosen cases."""
    for first, one in enumerate(chosen):
        for second, two in enumerate(chosen):
            own, others = one.run.asked().rows.arms, two.run.asked().rows.arms
            pairs = [(arm, arm) for arm in own if arm in others and first != second]
            pairs += [("full", arm) for arm in own if first == second and "full" in own and arm != "full"]
            names = {probe for probe, _ in one.probes} & {probe for probe, _ in two.probes}
            for arm, other in pairs:
                asked = {"first": str(first), "second": str(second), "arm": arm, "other": other}
                for outcome in OUTCOMES:
                    try:
                        found = answers.compare({**asked, "outcome": outcome, "limit": "500"})
                    except SightlineError:
                        continue  # no probe in common
                    rows = [row for row in found["rows"] if row["probe_id"] in names]
                    yield {**asked, **found, "rows": rows, "total": len(rows)}


def _page(data: dict[str, Any]) -> str:
    script = joined_script()
    sheets = "\n".join(file.read_text(encoding="utf-8") for file in (*LOOK.values(), PAGES / "view.css"))
    policy = (
        f"default-src 'none'; img-src 'self' file: data:; style-src '{_pin(sheets)}'; script-src '{_pin(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    page = (PAGES / PAGE).read_text(encoding="utf-8")
    page = re.sub(r"<link rel=\"(stylesheet|modulepreload)\"[^>]*>\n", "", page)
    head = f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{sheets}</style>\n</head>'
    page = page.replace("</head>", head)
    held = f'<script type="application/json" id="bundle">{embed_json(data)}</script>\n<script>{script}</script>'
    return page.replace('<script type="module" src="/view/main.js"></script>', held)


def _pin(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def joined_script() -> str:
    """The modules of the pages, each behind those that it imports, as one script without imports.

    Names at the top of a module are the bundle's own: no two modules may declare the same one.
    """
    order: list[str] = []

    def visit(name: str) -> None:
        if name in order:
            return
        for needed in IMPORT.findall((PAGES / f"{name}.js").read_text(encoding="utf-8")):
            visit(needed)
        order.append(name)

    visit("main")
    bodies = []
    for name in ("held_answers", *order):
        text = (PAGES / f"{name}.js").read_text(encoding="utf-8")
        bodies.append(f"// {name}\n" + EXPORT.sub("", IMPORT.sub("", text)))
    return '(() => {\n"use strict";\n' + "\n".join(bodies) + "})();\n"
