"""What the page needs to draw its cases: each image once, masks as bits."""

from __future__ import annotations

import base64
import io
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from sightline.errors import SightlineError
from sightline.geometry.marks import NOT_FOUND, SWAPPED_FOR, RegionMark, marks_of, veil_of
from sightline.report.cases import CHANGES, EVIDENCE, Case, mark_rows
from sightline.rows.images import image_records
from sightline.rows.picture import lost_texts
from sightline.rows.reader import rows_at
from sightline.rows.source import Audited, Source, masks_of
from sightline.statistics.arm_rows import as_names
from sightline.store.shard_files import unpack_cells, unpack_mask

LARGEST_SIDE = 560
JPEG_QUALITY = 62
DRAWN = ("swapped_box", "text_hits")
"""Columns that only pictures look at: where a wrong answer stands, which texts of a page were written."""


def pack_cases(source: Source, cases: list[Case], reference: str = "Full") -> dict[str, Any]:
    """The data of the gallery as plain JSON: arms, images (JPEG once each), cell sets (deduplicated), cases.

    ``reference`` names what flips and margin changes are measured against.
    """
    if not cases:
        raise SightlineError("no case to show: raise --cases")
    arms = [(i, arm) for i, audited in enumerate(source.runs) for arm in audited.arms]
    arm_index = {arm: n for n, (_, arm) in enumerate(arms)}
    wanted = {case.probe_id for case in cases}
    shown_rows = [_ShownRows.of(audited, wanted) for audited in source.runs]
    marked = [shown.rows for shown in shown_rows]
    names = {arm: own for audited in source.runs for own, arm in audited.shown_arms.items()}
    seen = list(dict.fromkeys(names.values()))
    order = {arm: seen.index(name) for arm, name in names.items()}
    packer = _Packer()
    packed = []
    for case in cases:
        probe = shown_rows[case.run].probes.get(case.probe_id, {})
        panels = []
        shown = range(len(source.runs)) if source.same_probes else [case.run]
        for index in shown:
            if case.probe_id not in marked[index].index:
                continue
            for _, row in marked[index].loc[[case.probe_id]].iterrows():
                arm = arm_index[str(row["arm"])]
                panels.append(packer.panel(source.runs[index], probe, row, shown_rows[index], arm))
        # The same arm of several runs side by side.
        panels.sort(key=lambda panel: order[arms[panel["arm"]][1]])
        packed.append(
            {
                "probe": case.probe_id,
                "question": probe.get("question", ""),
                "label": str(marked[case.run].loc[[case.probe_id], "label"].iloc[0]),
                "target": probe.get("target_text", ""),
                "source": probe.get("source_text", ""),
                "regions": [[round(float(v), 6) for v in box] for box in probe.get("regions", [])],
                "marks": packer.marks(probe),
                "accepted": list(dict.fromkeys(probe.get("answers") or [])) if source.runs[case.run].in_words else None,
                "task": probe.get("task", ""),
                "featured": arm_index[case.featured],
                "beside": arm_index[case.beside] if case.beside else None,
                "panels": panels,
            }
        )
    return {
        "reference": reference,
        "arms": [{"label": arm, "full": arm == source.runs[i].full} for i, arm in arms],
        "images": packer.images,
        "cells": packer.cells,
        "marks": packer.known_marks,
        "swapped": SWAPPED_FOR,
        "lost": NOT_FOUND,
        "words": {"changes": CHANGES, "evidence": EVIDENCE},
        "cases": packed,
    }


@dataclass(frozen=True)
class _ShownRows:
    """Everything of one run that its cases need, and nothing else of it."""

    rows: pd.DataFrame
    """Marked, by probe."""
    probes: Mapping[str, dict[str, Any]]
    masks: Mapping[int, tuple[bytes, bytes | None]]
    """By the row's place in the run."""
    images: Mapping[str, dict[str, Any]]
    """Records by image key."""

    @classmethod
    def of(cls, audited: Audited, probes: Collection[str]) -> _ShownRows:
        rows = mark_rows(audited, which=audited.frame["probe_id"].isin(list(probes)).to_numpy())
        rows = rows.set_index(as_names(rows["probe_id"])).drop(columns="probe_id")
        places = rows["row"].tolist()
        drawn = [name for name in DRAWN if name in audited.run.columns]
        if drawn and len(rows):
            told = rows_at(audited.run, places, drawn)
            rows = rows.assign(**{name: pd.Series(told.column(name).to_pylist(), rows.index, object) for name in drawn})
        masks = dict(zip(places, masks_of(audited, places), strict=True))
        keys = {str(key) for key in rows["image_key"].unique()}
        return cls(rows, audited.probes(probes), masks, image_records(audited.run, keys))


class _Packer:
    """Collects images and cell sets, each stored once however many panels use it."""

    def __init__(self) -> None:
        self.images: list[dict[str, Any]] = []
        self.cells: list[str] = []
        self.known_marks: list[RegionMark] = []
        self._image: dict[str, int] = {}
        self._cells: dict[bytes, int] = {}
        self._known: dict[tuple[Path, str], tuple[int, int, np.ndarray]] = {}

    def marks(self, probe: dict[str, Any]) -> list[int]:
        """Which of the known marks each region of a probe has."""
        found = marks_of(probe.get("roles") or (), len(probe.get("regions", [])))
        self.known_marks += [mark for mark in dict.fromkeys(found) if mark not in self.known_marks]
        return [self.known_marks.index(mark) for mark in found]

    def panel(
        self, audited: Audited, probe: dict[str, Any], row: pd.Series[Any], shown: _ShownRows, arm: int
    ) -> dict[str, Any]:
        image, cell_set, cells = self._look_up(audited, str(row["image_key"]), shown.images)
        kept, lineage = shown.masks[row["row"]]
        regions = probe.get("regions", [])
        touched, lit = touching(cells, regions), unpack_mask(kept, len(cells))
        each = [touching(cells, [box]) for box in regions]
        return {
            "arm": arm,
            "image": image,
            "cells": cell_set,
            "kept": base64.b64encode(kept).decode(),
            "lineage": None if lineage is None else base64.b64encode(lineage).decode(),
            **{name: _number(row.get(name)) for name in ("margin", "reference_margin", "ecr", "anchor_ecr", "keep")},
            "threshold": _number(row.get("threshold")) or 0.0,
            "predicted": str(row["predicted"]),
            **{name: bool(row[name]) for name in ("correct", "unsupported", "low", "flip")},
            "no_cells": not len(cells),
            "evidence_cells": int(touched.sum()),
            "evidence_kept": int((touched & lit).sum()),
            "by_region": [(int((own & lit).sum()), int(own.sum())) for own in each],
            **(_of_words(row, probe) if audited.in_words else {}),
        }

    def _look_up(
        self, audited: Audited, key: str, records: Mapping[str, dict[str, Any]]
    ) -> tuple[int, int, np.ndarray]:
        """Index of the image, index of its cell set, and the cells themselves."""
        known = (audited.run.path, key)
        if known not in self._known:
            record = records.get(key)
            if record is None:
                raise SightlineError(f"{audited.run.path} has no picture for {key}: its images table is incomplete")
            cells = unpack_cells(record["cells"])
            self._known[known] = self._add_image(record), self._add_cells(cells), cells
        return self._known[known]

    def _add_image(self, record: dict[str, Any]) -> int:
        # The same picture reaches the page once even when several runs carry it.
        key = f"{record['digest']}|{record['image_key']}"
        if key not in self._image:
            data, width, height = small_jpeg(record["preview"], record["image_key"])
            self._image[key] = len(self.images)
            details = zip(record["detail_boxes"] or (), record["details"] or (), strict=True)
            self.images.append(
                {
                    "w": width,
                    "h": height,
                    "veil": veil_of(Image.open(io.BytesIO(data))),
                    "jpeg": base64.b64encode(data).decode(),
                    "details": [
                        {"box": [round(v, 6) for v in box], "jpeg": base64.b64encode(jpeg).decode()}
                        for box, jpeg in details
                    ],
                }
            )
        return self._image[key]

    def _add_cells(self, cells: np.ndarray) -> int:
        quantised = np.rint(np.clip(cells, 0, 1) * 65535).astype("<u2").tobytes()
        if quantised not in self._cells:
            self._cells[quantised] = len(self.cells)
            self.cells.append(base64.b64encode(quantised).decode())
        return self._cells[quantised]


def _of_words(row: pd.Series[Any], probe: Mapping[str, Any]) -> dict[str, Any]:
    """What a panel says of an answer in words and of the answer it is compared with."""
    before = row["reference_predicted"]
    return {
        **{name: _number(row[name]) for name in ("score", "reference_score")},
        "loss": _number(row["answer_loss"]),
        "reference_predicted": None if pd.isna(before) else str(before),
        **{name: str(row[name]) for name in ("change", "evidence")},
        "confident": bool(row["confident"]),
        "swapped_box": None if (box := _told(row, "swapped_box")) is None else [round(float(v), 6) for v in box],
        "lost": lost_texts(hits := _told(row, "text_hits"), probe),
        "texts": None if hits is None else len(hits),
    }


def _told(row: pd.Series[Any], name: str) -> Any:
    """A value that may be missing, be it a list; None where it is."""
    value = row.get(name)
    return None if value is None or (np.ndim(value) == 0 and pd.isna(value)) else value


def touching(cells: np.ndarray, regions: list[Any]) -> np.ndarray:
    """(N,) bool: the cells that overlap any region with a positive area."""
    boxes = np.asarray(regions, dtype=float).reshape(-1, 4)
    width = np.minimum(cells[:, None, 2], boxes[:, 2]) - np.maximum(cells[:, None, 0], boxes[:, 0])
    height = np.minimum(cells[:, None, 3], boxes[:, 3]) - np.maximum(cells[:, None, 1], boxes[:, 1])
    overlapping: np.ndarray = ((width > 1e-9) & (height > 1e-9)).any(axis=1)
    return overlapping


def small_jpeg(preview: bytes, name: str) -> tuple[bytes, int, int]:
    """The preview, recompressed when that makes it smaller; returns (JPEG, width, height)."""
    try:
        image = Image.open(io.BytesIO(preview))
        image.load()
    except (OSError, ValueError, Image.DecompressionBombError):
        raise SightlineError(f"the stored preview of {name} is not a readable picture; write its shard again") from None
    small = image.convert("RGB")
    small.thumbnail((LARGEST_SIDE, LARGEST_SIDE), Image.Resampling.LANCZOS)
    sink = io.BytesIO()
    small.save(sink, "JPEG", quality=JPEG_QUALITY, optimize=True, progressive=True)
    data = sink.getvalue()
    if image.size == small.size and image.format == "JPEG" and len(preview) <= len(data):
        data = preview
    return data, small.width, small.height


def _number(value: Any) -> float | None:
    number = float("nan") if value is None else float(value)
    return round(number, 5) if np.isfinite(number) else None
