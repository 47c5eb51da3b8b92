"""What a page can ask: names with parameters, answers in plain values; a server and a bundle give the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sightline import __version__
from sightline.errors import SightlineError
from sightline.view.pairing import compared
from sightline.view.shown_image import shown_bytes, shown_source
from sightline.view.taken_along import taken_along
from sightline.view.viewed_run import ViewedRun

MOST_ROWS = 500
"""Rows of one answer."""
TABLE = ("arm", "probe_id", "view", "label", "predicted", "correct", "margin", "score", "ecr", "margin_full", "kind")
"""Columns of the list of rows, as far as a run has them."""
Parameters = Mapping[str, str]


class AnswersToPages:
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
        places = asked.listed(
            given.get("query", ""), given.get("sort", ""), given.get("down") == "1", given.get("cases") == "1"
        )
        offset, limit = _number(given, "offset", 0), min(MOST_ROWS, _number(given, "limit", 50))
        if given.get("near"):  # the page of three with this probe in the middle
            here = asked.place_in(places, given["near"], given.get("near_view") or None)
            offset, limit = max(0, here - 1), 3 if here else 2
        columns = [name for name in (given.get("columns") or ",".join(TABLE)).split(",") if name in asked.names]
        shown = places[offset : offset + limit]
        return {
            "total": len(places),
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
        for key, image in case["images"].items():
            record = run.reader.image(key)
            image["source"] = shown_source(record, case["view"] if key == _first_key(case) else "", run.images)
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
            places = asked.rows.of_probe(given["probe"], given.get("view") or None)
            if not len(places):
                raise SightlineError(f"no rows of probe {given['probe']!r}")
        else:
            places = asked.listed(given.get("query", ""), given.get("sort", ""), given.get("down") == "1", False)
        columns = [name for name in (given.get("columns") or ",".join(TABLE)).split(",") if name in asked.names]
        return taken_along(asked, run.reader, places, given.get("format", "csv"), columns)

    def image(self, given: Parameters) -> tuple[bytes, str]:
        """An image, or with ``detail`` one of the sharp parts that the run keeps of it."""
        run = self.run(given)
        record = run.reader.image(_needed(given, "key"))
        if "detail" in given:
            details, number = record.get("details") or [], _number(given, "detail", 0)
            if not 0 <= number < len(details):
                raise SightlineError(f"{record['image_key']} has no detail {number}")
            return bytes(details[number]), "image/jpeg"
        if given.get("source") == "preview":
            return bytes(record["preview"] or b""), "image/jpeg"
        return shown_bytes(record, given.get("view") or "orig", run.images)


def _first_key(case: Mapping[str, Any]) -> str:
    """The image that the probe itself is about."""
    plain = [one["image_key"] for one in case["answers_of_arms"] if one["intervention"] == "none"]
    return str(plain[0]) if plain else ""


def _needed(given: Parameters, name: str) -> str:
    if not given.get(name):
        raise SightlineError(f"the address lacks {name}=")
    return given[name]


def _number(given: Parameters, name: str, usual: int) -> int:
    try:
        return max(0, int(given.get(name) or usual))
    except ValueError:
        raise SightlineError(f"{name}={given[name]!r} is no whole number") from None
