"""Which probes are shown as pictures, and what the page needs to draw them: each image once, masks as bits."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from sightline.answers import normalised
from sightline.arms.plan import MATCHED
from sightline.errors import SightlineError
from sightline.geometry.region_marks import RegionMark, marks_of
from sightline.report.answer_changes import CHANGES, EVIDENCE, LOST, NONE, UNCHANGED, confident_wrong, with_changes
from sightline.report.source import Audited, Source, masks_of
from sightline.statistics.correct_positives import has_little_evidence, has_no_evidence, unsupported_rows
from sightline.statistics.plain_rows import are_positives
from sightline.store.load import unpack_cells, unpack_mask

LARGEST_SIDE = 560
JPEG_QUALITY = 62
NEARLY_ALIKE = 0.25
"""Margins that differ by no more than this share of the smaller one."""


@dataclass(frozen=True)
class Case:
    """One probe with the arm that makes it worth a look."""

    probe_id: str
    run: int
    featured: str
    """The arm the case was chosen for."""
    beside: str = ""
    """Of a case that tells a story: the arm that gives the same answer with the evidence, or Full, whose answer went
    with it."""


def choose_cases(source: Source, limit: int, *, between_runs: bool = False) -> list[Case]:
    """At most ``limit`` probes, arms taking turns: unsupported answers first, then flips, then low coverage.

    Among answers in words, wrong ones that the model was sure of come before those that are other than Full's.

    The first case is a correct answer with zero coverage whenever the runs contain one, if they can with an arm beside
    it that answers alike and kept the evidence; else, among answers in words, one that went with its evidence, beside
    Full's. ``between_runs`` is for a comparison: the arms of the second run lead,
    answers that differ from the first run's come before everything else.
    """
    if limit < 1:
        return []
    queues: list[list[Case]] = []
    first: tuple[tuple[bool, int, float], Case] | None = None
    told: tuple[tuple[bool, ...], float, Case] | None = None
    for index, audited in enumerate(source.runs):
        if between_runs and index == 0:
            continue
        marked = mark_rows(audited, flips_first=between_runs)
        pair = None if between_runs else telling_pair(marked, index)
        if pair is not None and (told is None or pair[:2] < told[:2]):
            told = pair
        for arm, rows in marked.groupby("arm", sort=False):
            if arm == audited.full and len(audited.arms) > 1 and not between_runs:
                continue  # Full loses nothing: it is shown beside the others, never as the point of a case.
            ranked = rows.sort_values(["rank", "strength"], ascending=[True, False], kind="stable")
            queues.append([Case(str(p), index, str(arm)) for p in ranked["probe_id"]])
            telling = ranked[ranked["flip" if between_runs else "unsupported"]]
            if not telling.empty:
                best = telling.iloc[0]
                score = (bool(best["seen"]), -standing(best["regime"], best["selector"]), float(best["strength"]))
                if first is None or score > first[0]:
                    first = (score, Case(str(best["probe_id"]), index, str(arm)))
    lost = None if told or first or between_runs else lost_pair(source)
    leading = told[2] if told else first[1] if first else lost
    order = chain([leading] if leading else [], (c for turn in zip_longest(*queues) for c in turn if c is not None))
    chosen: dict[tuple[str, int], Case] = {}
    for case in order:
        # Runs over the same probes share a case: its panels show the arms of all of them.
        chosen.setdefault((case.probe_id, 0 if source.same_probes else case.run), case)
        if len(chosen) >= limit:
            break
    return list(chosen.values())


def telling_pair(marked: pd.DataFrame, run: int) -> tuple[tuple[bool, ...], float, Case] | None:
    """The probe on which a method and another box-free arm are right alike, one with the evidence and one without.

    Returns what the best pair is chosen by, smallest first: whether the arm without evidence is other than the
    controls that every method is shown beside, whether the margins (of answers in words: the losses) are far apart,
    whether budgets differ, and how far they are apart relative to the smaller one. None where no probe has such a
    pair.
    """
    right = marked[are_positives(marked) & marked["correct"] & marked["seen"]]
    kept = right[(right["regime"] == "box-free method") & ~has_little_evidence(right["anchor_ecr"])]
    gone = right[right["unsupported"] & right["regime"].isin(["box-free method", "box-free control"])]
    pairs = kept.merge(gone, on="probe_id", suffixes=("_kept", "_gone"))
    pairs = pairs[pairs["said_kept"] == pairs["said_gone"]]
    if pairs.empty:
        return None
    apart = pd.Series(0.0, index=pairs.index)
    measure = next((name for name in ("margin", "answer_loss") if f"{name}_kept" in pairs), None)
    if measure is not None:
        both = pairs[[f"{measure}_kept", f"{measure}_gone"]].astype(float)
        apart = ((both.iloc[:, 0] - both.iloc[:, 1]) / both.abs().min(axis=1)).abs().fillna(np.inf)
    pairs = pairs.assign(
        far=apart > NEARLY_ALIKE,
        unmatched=~pairs["selector_gone"].isin(MATCHED),
        unlike=pairs["budget_kept"] != pairs["budget_gone"],
        apart=apart,
    )
    order = ["unmatched", "far", "unlike"]
    best = pairs.sort_values([*order, "apart"], kind="stable").iloc[0]
    case = Case(str(best["probe_id"]), run, str(best["arm_gone"]), str(best["arm_kept"]))
    return tuple(bool(best[name]) for name in order), float(best["apart"]), case


def lost_pair(source: Source) -> Case | None:
    """Among answers in words one that an arm lost with all of its evidence, beside Full's; the surest of box-free arms.

    None where no run has one.
    """
    for index, audited in enumerate(source.runs):
        if not audited.in_words or audited.full is None:
            continue
        marked = mark_words(audited, flips_first=False)
        gone = marked[(marked["change"] == LOST) & (marked["evidence"] == NONE) & marked["seen"]]
        if not gone.empty:
            best = gone.assign(oracle=gone["regime"] == "oracle").sort_values(["oracle", "answer_loss"]).iloc[0]
            return Case(str(best["probe_id"]), index, str(best["arm"]), audited.full)
    return None


def standing(regime: object, selector: str) -> int:
    """Whose case is shown first, smallest: methods, the controls matched to them, other controls, then oracles.

    A selector that is not installed here has no regime and is taken for a method.
    """
    if regime == "box-free control":
        return 1 if selector in MATCHED else 2
    return 3 if regime in ("full", "oracle", "replay") else 0


def mark_rows(audited: Audited, flips_first: bool = False) -> pd.DataFrame:
    """Plain rows with ``unsupported`` (a metric's name), ``low`` coverage, ``flip`` (unlike its reference), ``said``.

    ``rank`` orders rows within an arm by how much they tell, ``strength`` breaks ties by how far the
    margin lies from the threshold.
    """
    if audited.in_words:
        return mark_words(audited, flips_first)
    rows = audited.frame.copy()
    rows["said"] = rows["predicted"]
    rows["unsupported"] = unsupported_rows(rows)
    rows["low"] = are_positives(rows) & has_little_evidence(rows["ecr"])
    known = rows["reference_predicted"].notna()
    rows["flip"] = known & (rows["predicted"] != rows["reference_predicted"])
    margin = rows["margin"] if "margin" in rows else pd.Series(np.nan, index=rows.index)
    beyond = margin - rows["threshold"] if "threshold" in rows else margin
    change = (margin - rows["reference_margin"]).abs().fillna(beyond.abs())
    # Evidence that a crop took away before any pruning is no fault of the selector: it waits behind flips.
    rows["seen"] = ~has_no_evidence(rows["full_ecr"])
    telling = [rows["unsupported"] & rows["seen"], rows["flip"], rows["unsupported"], rows["low"] & rows["correct"]]
    rows["rank"] = np.select(telling, [1, 0, 2, 3] if flips_first else [0, 1, 2, 3], 4)
    rows["strength"] = np.where(rows["unsupported"], beyond.abs(), change)
    return rows


def mark_words(audited: Audited, flips_first: bool) -> pd.DataFrame:
    """The same of answers in words, with ``confident`` (sure of a wrong answer), ``change`` and ``evidence``.

    Strength is how sure the model was of what it said, or how far the score fell where the answer only changed, those
    without any evidence first.
    """
    rows = with_changes(audited.frame)
    rows["said"] = rows["predicted"].map(normalised)
    rows["unsupported"] = unsupported_rows(rows)
    rows["low"] = has_little_evidence(rows["ecr"])
    rows["flip"] = ~rows["change"].isin(["", UNCHANGED])
    rows["confident"] = confident_wrong(rows)
    rows["seen"] = ~has_no_evidence(rows["full_ecr"])
    telling = [
        rows["unsupported"] & rows["seen"],
        rows["confident"] & rows["flip"],
        rows["flip"],
        rows["unsupported"] | rows["confident"],  # Full is as blind, or as wrong: no fault of the selector.
        rows["low"] & rows["correct"],
    ]
    rows["rank"] = np.select(telling, [2, 0, 1, 3, 4] if flips_first else [0, 1, 2, 3, 4], 5)
    fall = (rows["reference_score"] - rows["score"]).abs().fillna(0.0) + (rows["evidence"] == NONE)
    rows["strength"] = np.where(rows["unsupported"] | rows["confident"], -rows["answer_loss"], fall)
    return rows


def pack_cases(source: Source, cases: list[Case], reference: str = "Full") -> dict[str, Any]:
    """The data of the gallery as plain JSON: arms, images (JPEG once each), cell sets (deduplicated), cases.

    ``reference`` names what flips and margin changes are measured against.
    """
    if not cases:
        raise SightlineError("no case to show: raise --cases")
    arms = [(i, arm) for i, audited in enumerate(source.runs) for arm in audited.arms]
    arm_index = {arm: n for n, (_, arm) in enumerate(arms)}
    marked = [mark_rows(audited).set_index("probe_id") for audited in source.runs]
    names = source.frame.drop_duplicates("arm").set_index("arm")["arm_name"]
    seen = list(names.unique())
    order = {arm: seen.index(name) for arm, name in names.items()}
    packer = _Packer()
    packed = []
    for case in cases:
        probe = source.runs[case.run].probes.get(case.probe_id, {})
        panels = []
        shown = range(len(source.runs)) if source.same_probes else [case.run]
        for index in shown:
            if case.probe_id not in marked[index].index:
                continue
            audited, rows = source.runs[index], marked[index].loc[[case.probe_id]]
            for (_, row), masks in zip(rows.iterrows(), masks_of(audited, rows["row"].tolist()), strict=True):
                panels.append(packer.panel(audited, probe, row, masks, arm_index[str(row["arm"])]))
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
        "words": {"changes": CHANGES, "evidence": EVIDENCE},
        "cases": packed,
    }


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
        self,
        audited: Audited,
        probe: dict[str, Any],
        row: pd.Series[Any],
        masks: tuple[bytes, bytes | None],
        arm: int,
    ) -> dict[str, Any]:
        image, cell_set, cells = self._look_up(audited, str(row["image_key"]))
        kept, lineage = masks
        regions = probe.get("regions", [])
        touched, lit = touching(cells, regions), unpack_mask(kept, len(cells))
        return {
            "arm": arm,
            "image": image,
            "cells": cell_set,
            "kept": base64.b64encode(kept).decode(),
            "lineage": None if lineage is None else base64.b64encode(lineage).decode(),
            "margin": _number(row.get("margin")),
            "threshold": _number(row.get("threshold")) or 0.0,
            "reference_margin": _number(row["reference_margin"]),
            "predicted": str(row["predicted"]),
            "correct": bool(row["correct"]),
            "ecr": _number(row["ecr"]),
            "anchor_ecr": _number(row["anchor_ecr"]),
            "evidence_cells": int(touched.sum()),
            "evidence_kept": int((touched & lit).sum()),
            "by_region": [_kept_of(touching(cells, [box]), lit) for box in regions],
            "keep": _number(row["keep"]),
            "unsupported": bool(row["unsupported"]),
            "low": bool(row["low"]),
            "flip": bool(row["flip"]),
            **(_of_words(row) if audited.in_words else {}),
        }

    def _look_up(self, audited: Audited, key: str) -> tuple[int, int, np.ndarray]:
        """Index of the image, index of its cell set, and the cells themselves."""
        known = (audited.run.path, key)
        if known not in self._known:
            where = audited.image_index.get(key)
            if where is None:
                raise SightlineError(f"{audited.run.path} has no picture for {key}: its images table is incomplete")
            record = audited.run.images.slice(where, 1).to_pylist()[0]
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


def _of_words(row: pd.Series[Any]) -> dict[str, Any]:
    """What a panel says of an answer in words and of the answer it is compared with."""
    before = row["reference_predicted"]
    return {
        "score": _number(row["score"]),
        "loss": _number(row["answer_loss"]),
        "reference_predicted": None if pd.isna(before) else str(before),
        "reference_score": _number(row["reference_score"]),
        "change": str(row["change"]),
        "evidence": str(row["evidence"]),
        "confident": bool(row["confident"]),
    }


def _kept_of(touched: np.ndarray, lit: np.ndarray) -> tuple[int, int]:
    """Kept and all cells of one region."""
    return int((touched & lit).sum()), int(touched.sum())


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
