"""Does every token have a cell, and the right one? Counts, and cells by ramps beside those that are declared."""

from __future__ import annotations

import numpy as np

from sightline.backbones.found_cells import FoundCells
from sightline.checks.doctor.asked_page import AskedPage
from sightline.checks.doctor.examination import Check
from sightline.checks.doctor.fact_words import layout_words
from sightline.checks.doctor.finding_cells import declares_cells
from sightline.geometry.cells import Cells

ALLOWED = 1.0
"""Source pixels that an edge may be off."""


def cell_count(page: AskedPage) -> Check:
    encoded = page.encoded
    blocks = sum(rows * columns for rows, columns in encoded.layout)
    inside = bool(((encoded.cells >= 0) & (encoded.cells <= 1)).all())
    counted = encoded.n == len(encoded.cells) == blocks and all(len(level) == encoded.n for level in encoded.deepstack)
    return Check(
        counted and inside,
        f"token-to-cell map: {encoded.n} visual tokens, {len(encoded.cells)} cells, "
        f"{layout_words(encoded.layout)}, {len(encoded.deepstack)} DeepStack levels"
        + ("" if inside else "; some cells lie outside the image"),
        {"tokens": encoded.n, "cells": len(encoded.cells), "in_layout": blocks, "inside": inside},
    )


def cells_by_ramps(page: AskedPage) -> Check | None:
    """None for a model whose features cannot be traced to pixels: the bright word alone then tries its cells."""
    found, audited = page.found, page.encoded.cells
    if found is None:
        return None
    count, took = int(found.sourced.sum()), f"by ramps in {found.seconds:.2f} s"
    measured = {"declared": declares_cells(page.backbone), "found": count, "seconds": found.seconds}
    if count != len(audited):
        return Check(False, f"cells: {len(audited)} are audited, {count} found {took}", measured)
    difference = largest_difference(found, audited, page.image.size)
    passed = difference <= ALLOWED
    words = f"those declared {'are' if passed else 'are NOT'} those found {took}"
    if not declares_cells(page.backbone):
        words = f"{count} found {took}, none declared" if passed else f"those audited are NOT those found {took}"
    return Check(
        passed,
        f"cells: {words}, largest difference {difference:.2f} source pixels (allowed {ALLOWED:g})",
        {**measured, "difference": difference, "allowed": ALLOWED},
    )


def largest_difference(found: FoundCells, declared: Cells, size: tuple[int, int]) -> float:
    """In source pixels. Cells that both say are empty, since padding alone is seen there, may lie anywhere."""
    cells = found.cells[found.sourced]
    empty = _empty(cells) & _empty(declared)
    return float(np.abs((cells - declared) * np.tile(size, 2))[~empty].max(initial=0.0))


def _empty(cells: Cells) -> np.ndarray:
    none: np.ndarray = (cells[:, 2] <= cells[:, 0]) | (cells[:, 3] <= cells[:, 1])
    return none
