"""A run as a notebook shows it: its arms with their main numbers, and what some of them kept of a few pages.

One piece of HTML that stands by itself: no script, no style sheet, pictures inside.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import pandas as pd
from PIL import Image

from sightline.core.table import format_value
from sightline.errors import SightlineError
from sightline.probes.images import stored_as
from sightline.rows.picture import ArmPicture
from sightline.statistics.arm_rows import are_in_words, is_plain
from sightline.statistics.correct_positives import unsupported_rows
from sightline.statistics.metrics import metrics_shown_in
from sightline.statistics.summaries import arm_points, nothing_to_read

CASES, ARMS = 3, 4
"""Probes that are shown, and arms of each."""
SIDE = 200
"""Pixels of a picture's longer side."""
LARGEST = 200_000
"""Rows up to which pictures are drawn: they need all of them in memory."""
DRAWS = 500
"""Bootstrap draws behind the sentence about answers that say nothing."""
HEAVY = ("kept_mask", "lineage_mask", "scores", "k_layers")
CELL = "padding:.15em .6em;text-align:{};border-bottom:1px solid rgba(128,128,128,.35)"


class ShownRun(Protocol):
    """What is asked of a run."""

    @property
    def arms(self) -> list[str]: ...

    @property
    def count(self) -> int: ...

    @property
    def unfinished(self) -> str: ...

    def compact_frame(self, wanted: Callable[[str], bool]) -> pd.DataFrame: ...

    def _arm_pictures(self, probe: str, *arms: str) -> list[ArmPicture]: ...


def run_html(run: ShownRun) -> str:
    """The table, and below it the cases that tell most."""
    frame = run.compact_frame(lambda column: column not in HEAVY)
    plain = is_plain(frame)
    frame = frame[plain] if plain.any() else frame
    said = [f"<p><b>{_escaped(repr(run))}</b></p>", _table(frame)]
    notes = [note for note in (run.unfinished, nothing_to_read(frame, draws=DRAWS)) if note]
    said += [f"<p><em>{_escaped(note)}</em></p>" for note in notes]
    if run.count <= LARGEST:
        said += [_case(run, probe, frame) for probe in telling_probes(frame)]
    else:
        said.append(f"<p>{run.count} rows: <code>run.picture(probe)</code> draws one of them.</p>")
    return f'<div style="font-size:90%">{"".join(said)}</div>'


def _table(frame: pd.DataFrame) -> str:
    metrics = [metric for metric in metrics_shown_in("terminal") if not metric.repeats]
    names = [metric.name for metric in metrics]
    points = {str(arm): arm_points(rows, names) for arm, rows in frame.groupby("arm", sort=False, observed=True)}
    told = [metric for metric in metrics if any(np.isfinite(values[metric.name]) for values in points.values())]
    in_words = bool(are_in_words(frame).all())
    labels = [metric.label_of_words if in_words and metric.label_of_words else metric.label for metric in told]
    head = "".join(f'<th style="{CELL.format("right")}">{_escaped(label)}</th>' for label in labels)
    lines = [f'<tr><th style="{CELL.format("left")}">arm</th>{head}<th style="{CELL.format("right")}">rows</th></tr>']
    counts = frame["arm"].value_counts()
    for arm, values in points.items():
        cells = [format_value(values[metric.name], "score") for metric in told] + [str(counts[arm])]
        numbers = "".join(f'<td style="{CELL.format("right")}">{cell}</td>' for cell in cells)
        lines.append(f'<tr><th style="{CELL.format("left")}">{_escaped(arm)}</th>{numbers}</tr>')
    return f'<table style="border-collapse:collapse">{"".join(lines)}</table>'


def telling_probes(frame: pd.DataFrame) -> list[str]:
    """A few probes of different images: arms that disagree first, then right answers without evidence, then any."""
    by_probe = frame.groupby(frame["probe_id"].astype(str), sort=False)
    disagree = by_probe["correct"].nunique() > 1
    blind = unsupported_rows(frame).groupby(frame["probe_id"].astype(str), sort=False).any()
    strength = 2 * disagree.astype(int) + blind.reindex(disagree.index).astype(int)
    images = by_probe["image_id"].first().astype(str)
    ordered = strength.sort_values(ascending=False, kind="stable").index
    return [str(probe) for probe in images.reindex(ordered).drop_duplicates().index[:CASES]]


def _case(run: ShownRun, probe: str, frame: pd.DataFrame) -> str:
    """One question, and side by side what arms kept of its page: the first, and those that answer unlike it."""
    rows = frame[frame["probe_id"] == probe]
    own = [str(arm) for arm in rows.sort_values("correct", kind="stable")["arm"] if arm != run.arms[0]]
    arms = sorted([run.arms[0], *own[: ARMS - 1]], key=run.arms.index)
    drawn = []
    for picture in run._arm_pictures(probe, *arms):
        name, answer = picture.caption
        image = picture.drawn(picture.pixels(None)[0])
        image.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
        jpeg = base64.b64encode(stored_as(image, "JPEG", quality=70)).decode()
        drawn.append(
            f'<figure style="display:inline-block;margin:0 .8em .6em 0;max-width:{SIDE}px;vertical-align:top">'
            f'<img src="data:image/jpeg;base64,{jpeg}" alt="{_escaped(f"{name}: {answer}")}">'
            f"<figcaption><b>{_escaped(name)}</b><br>{_escaped(answer)}</figcaption></figure>"
        )
    asked = picture.probe
    accepted: Sequence[str] = asked.get("answers") or [asked.get("label", "")]
    question = f"{asked.get('question') or probe} ({', '.join(dict.fromkeys(map(str, accepted)))})"
    return f"<p>{_escaped(question)}</p><div>{''.join(drawn)}</div>"


def _escaped(text: object) -> str:
    return html.escape(str(text))


def shown(run: ShownRun) -> str:
    """The same, or the words alone where the rows cannot be read: a notebook goes on."""
    try:
        return run_html(run)
    except SightlineError as error:
        return f"<p><b>{_escaped(repr(run))}</b></p><p>{_escaped(error)}</p>"
