"""Rows as something to take along: CSV, a list of probes, tasks of Label Studio."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from sightline.core.spreadsheet import BEGINNINGS, MARK
from sightline.errors import SightlineError
from sightline.view.asked_rows import AskedRows
from sightline.view.case_reader import CaseReader

MOST = 100_000
"""Rows of one file."""
FORMATS = {"csv": "text/csv", "probes": "text/plain", "label-studio": "application/json"}


def taken_along(rows: AskedRows, reader: CaseReader, places: NDArray[Any], format: str, columns: Sequence[str]) -> str:
    """The rows at these places in one of ``FORMATS``."""
    if len(places) > MOST:
        raise SightlineError(
            f"{len(places)} rows are too many to copy; narrow the query to {MOST}, or use `sightline rows`"
        )
    if format == "csv":
        return _csv(rows, places, columns)
    if format not in FORMATS:
        raise SightlineError(f"no format {format!r}; choose one of {', '.join(FORMATS)}")
    asked = list(dict.fromkeys((record["probe_id"], record["view"]) for record in
                               rows.records(places, ["probe_id", "view"])))  # fmt: skip
    if format == "probes":
        return "".join(f"{probe}\n" for probe in dict.fromkeys(probe for probe, _ in asked))
    return json.dumps([label_studio_task(rows, reader, *each) for each in asked], ensure_ascii=False, indent=1)


def _csv(rows: AskedRows, places: NDArray[Any], columns: Sequence[str]) -> str:
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(columns)
    for record in rows.records(places, list(columns)):
        writer.writerow([_cell(value) for value in record.values()])
    return sink.getvalue()


def _cell(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula gets an apostrophe in front."""
    return f"{MARK}{value}" if isinstance(value, str) and value.startswith(BEGINNINGS) else value


def label_studio_task(rows: AskedRows, reader: CaseReader, probe: str, view: str) -> dict[str, Any]:
    """A probe as a task: image and question as data, its regions as a prediction to be mended."""
    asked = reader.probes.record(probe, view)
    places = rows.rows.of_probe(probe, view)
    record = reader.image(rows.rows.records(places[:1], ["image_key"])[0]["image_key"])
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
