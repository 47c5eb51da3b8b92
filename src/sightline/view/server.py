"""Pages of the viewer: what they ask for, what is answered, what is taken along as a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from sightline.errors import SightlineError
from sightline.probes.data_rows import csv_text
from sightline.serving.server import application, html_page
from sightline.version import __version__
from sightline.view.cases import CaseReader, shown_bytes, shown_source, small_picture
from sightline.view.query import AskedRows
from sightline.view.runs import ViewedRun, compared

# Rows as something to take along: CSV, a list of probes, tasks of Label Studio.

MOST = 100_000
"""Rows of one file."""
FORMATS = {"csv": "text/csv", "probes": "text/plain", "label-studio": "application/json"}


def rows_as_text(
    rows: AskedRows, reader: CaseReader, indices: NDArray[Any], format: str, columns: Sequence[str]
) -> str:
    """The rows at these indices in one of ``FORMATS``."""
    if len(indices) > MOST:
        raise SightlineError(
            f"{len(indices)} rows are too many to copy; narrow the query to {MOST}, or use `sightline rows`"
        )
    if format == "csv":
        return csv_text(rows.records(indices, columns), columns)
    if format not in FORMATS:
        raise SightlineError(f"no format {format!r}; choose one of {', '.join(FORMATS)}")
    asked = list(dict.fromkeys((record["probe_id"], record["view"]) for record in
                               rows.records(indices, ["probe_id", "view"])))  # fmt: skip
    if format == "probes":
        return "".join(f"{probe}\n" for probe in dict.fromkeys(probe for probe, _ in asked))
    return json.dumps([label_studio_task(rows, reader, *each) for each in asked], ensure_ascii=False, indent=1)


def label_studio_task(rows: AskedRows, reader: CaseReader, probe: str, view: str) -> dict[str, Any]:
    """A probe as a task: image and question as data, its regions as a prediction to be mended."""
    asked = reader.probes.record(probe, view)
    indices = rows.rows.of_probe(probe, view)
    record = reader.image(rows.rows.records(indices[:1], ["image_key"])[0]["image_key"])
    size = {"original_width": record["width"], "original_height": record["height"], "image_rotation": 0}
    roles = asked.get("roles") or ["evidence"] * len(asked.get("regions") or ())
    result = [
        {
            "id": f"region{number}",
            "from_name": "label",
            "to_name": "image",
            "type": "rectanglelabels",
            **size,
            "value": {
                "x": 100 * x1,
                "y": 100 * y1,
                "width": 100 * (x2 - x1),
                "height": 100 * (y2 - y1),
                "rotation": 0,
                "rectanglelabels": [role],
            },
        }
        for number, ((x1, y1, x2, y2), role) in enumerate(zip(asked.get("regions") or (), roles, strict=True))
    ]
    return {
        "data": {
            "image": f"/data/local-files/?d={record['image']}",
            "question": asked.get("question", ""),
            "label": asked.get("label", ""),
            "answers": list(asked.get("answers") or ()),
            "probe_id": probe,
            "view": view,
        },
        "predictions": [{"model_version": "sightline", "result": result}],
    }


# What a page can ask: names with parameters, answers in plain values; a server and a bundle give the same.

MOST_ROWS = 500
"""Rows of one answer."""
TABLE = (
    "arm", "probe_id", "view", "label", "predicted", "correct", "outcome", "margin", "score", "ecr", "margin_full",
    "kind", "question", "target_text", "accepted", "image_key",
)  # fmt: skip
"""Columns of the list of rows, as far as a run has them."""
Parameters = Mapping[str, str]


class PageData:
    """The runs of one viewer."""

    def __init__(self, runs: Sequence[ViewedRun]) -> None:
        self.runs = list(runs)
        self.names: dict[str, Callable[[Parameters], Any]] = {
            "runs": self.about_runs,
            "overview": self.overview,
            "rows": self.rows,
            "case": self.case,
            "keepers": self.keepers,
            "compare": self.compare,
        }

    def run(self, given: Parameters, key: str = "run") -> ViewedRun:
        number = _number(given, key, 0)
        if not 0 <= number < len(self.runs):
            raise SightlineError(f"there is no run {number}; runs are numbered from 0 to {len(self.runs) - 1}")
        return self.runs[number]

    def about_runs(self, given: Parameters) -> dict[str, Any]:
        return {"sightline": __version__, "runs": [run.facts() for run in self.runs]}

    def overview(self, given: Parameters) -> dict[str, Any]:
        """Points at once; headline and intervals as soon as they are computed."""
        run = self.run(given)
        found = {**run.numbers(), "version": run.asked().rows.version}
        return {**found, "headline": [], **run.intervals.of(found["version"])}

    def rows(self, given: Parameters) -> dict[str, Any]:
        """Some of the rows that a query names."""
        asked = self.run(given).asked()
        indices = asked.listed(
            given.get("query", ""), given.get("sort", ""), given.get("down") == "1", given.get("cases") == "1"
        )
        offset, limit = _number(given, "offset", 0), min(MOST_ROWS, _number(given, "limit", 50))
        if given.get("near"):  # the page of three with this probe in the middle
            here = asked.index_in(indices, given["near"], given.get("near_view") or None)
            offset, limit = max(0, here - 1), 3 if here else 2
        columns = [name for name in (given.get("columns") or ",".join(TABLE)).split(",") if name in asked.names]
        shown = indices[offset : offset + limit]
        return {
            "total": len(indices),
            "offset": offset,
            "columns": columns,
            "version": asked.rows.version,
            "rows": asked.records(shown, columns),
        }

    def case(self, given: Parameters) -> dict[str, Any]:
        run = self.run(given)
        rows = run.asked().rows
        arms = [arm for arm in given.get("arms", "").split("|") if arm]
        case = run.reader.case(rows, _needed(given, "probe"), given.get("view") or None, arms)
        # The image that the probe itself is about.
        plain = [one["image_key"] for one in case["answers_of_arms"] if one["intervention"] == "none"]
        for key, image in case["images"].items():
            view = case["view"] if key in plain[:1] else ""
            image["source"] = shown_source(run.reader.image(key), view, run.images)
        return case

    def keepers(self, given: Parameters) -> dict[str, Any]:
        run = self.run(given)
        return run.reader.keepers(run.asked().rows, _needed(given, "probe"), _needed(given, "key"))

    def compare(self, given: Parameters) -> dict[str, Any]:
        first, second = self.run(given, "first"), self.run(given, "second")
        return compared(
            first.asked(),
            _needed(given, "arm"),
            second.asked(),
            _needed(given, "other"),
            given.get("outcome", "only_first"),
            _number(given, "offset", 0),
            min(MOST_ROWS, _number(given, "limit", 50)),
        )

    def take(self, given: Parameters) -> str:
        """The rows of a query, or of one probe, as something to take along."""
        run = self.run(given)
        asked = run.asked()
        if given.get("probe"):
            indices = asked.rows.of_probe(given["probe"], given.get("view") or None)
            if not len(indices):
                raise SightlineError(f"no rows of probe {given['probe']!r}")
        else:
            indices = asked.listed(given.get("query", ""), given.get("sort", ""), given.get("down") == "1", False)
        columns = [name for name in (given.get("columns") or ",".join(TABLE)).split(",") if name in asked.names]
        return rows_as_text(asked, run.reader, indices, given.get("format", "csv"), columns)

    def image(self, given: Parameters) -> tuple[bytes, str]:
        """An image, or with ``detail`` one of the sharp parts that the run keeps of it."""
        run = self.run(given)
        record = run.reader.image(_needed(given, "key"))
        if "detail" in given:
            details, number = record.get("details") or [], _number(given, "detail", 0)
            if not 0 <= number < len(details):
                raise SightlineError(f"{record['image_key']} has no detail {number}")
            return bytes(details[number]), "image/jpeg"
        if given.get("source") in ("preview", "thumbnail"):
            preview = bytes(record["preview"] or b"")
            return small_picture(preview) if given["source"] == "thumbnail" else preview, "image/jpeg"
        return shown_bytes(record, given.get("view") or "orig", run.images)


def _needed(given: Parameters, name: str) -> str:
    if not given.get(name):
        raise SightlineError(f"the address lacks {name}=")
    return given[name]


def _number(given: Parameters, name: str, usual: int) -> int:
    try:
        return max(0, int(given.get(name) or usual))
    except ValueError:
        raise SightlineError(f"{name}={given[name]!r} is no whole number") from None


# The viewer as an application: pages, and what they ask under ``/api``. Nothing can be written through it.

PAGES = Path(__file__).parent / "pages"
KEPT = {"cache-control": "private, max-age=3600"}
"""Pictures of a case do not change while it is looked at."""


def viewer(answers: PageData) -> Starlette:
    """An application over some runs; only ``GET`` is answered."""

    def in_json(name: str) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            found = answers.names[name](request.query_params)
            body = json.dumps(found, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
            return Response(body, media_type="application/json")

        return answer

    def index(request: Request) -> Response:
        return html_page(PAGES / "index.html")

    def image(request: Request) -> Response:
        content, media = answers.image(request.query_params)
        return Response(content, media_type=media, headers=KEPT)

    def take(request: Request) -> Response:
        words = answers.take(request.query_params)
        return PlainTextResponse(words, media_type=FORMATS[request.query_params.get("format", "csv")])

    own = [Route(f"/api/{name}", in_json(name)) for name in answers.names]
    return application([Route("/", index), *own, Route("/api/image", image), Route("/api/take", take)], {"view": PAGES})
