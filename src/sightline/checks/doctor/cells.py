"""Checks of cells: does every token have one, is it the right one, and are signals read from the token's own rows?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from sightline.backbones import Backbone
from sightline.backbones.found_cells import FoundCells
from sightline.backbones.isolated_tokens import silenced
from sightline.checks.doctor.examination import Check, ExaminedPage, LitTokens, declares_cells, layout_words
from sightline.geometry.cells import Cells
from sightline.statistics.metrics import auroc

# Does every token have a cell, and the right one? Counts, and cells by ramps beside those that are declared.

ALLOWED = 1.0
"""Source pixels that an edge may be off."""


def cell_count(page: ExaminedPage) -> Check:
    encoded = page.encoded
    blocks = sum(rows * columns for rows, columns in encoded.layout)
    inside = bool(((encoded.cells >= 0) & (encoded.cells <= 1)).all())
    counted = encoded.n == len(encoded.cells) == blocks and all(len(level) == encoded.n for level in encoded.deepstack)
    planned = page.backbone.token_count(page.image.size)
    return Check(
        counted and inside and planned == encoded.n,
        f"token-to-cell map: {encoded.n} visual tokens, {len(encoded.cells)} cells, "
        f"{layout_words(encoded.layout)}, {len(encoded.deepstack)} DeepStack levels"
        + ("" if inside else "; some cells lie outside the image")
        + ("" if planned == encoded.n else f"; token_count says {planned}"),
        {"tokens": encoded.n, "cells": len(encoded.cells), "in_layout": blocks, "inside": inside},
    )


def cells_by_ramps(page: ExaminedPage) -> Check | None:
    """None for a model whose features cannot be traced to pixels: the bright word alone then tries its cells."""
    found, audited = page.found, page.encoded.cells
    if found is None:
        return None
    count, took = int(found.sourced.sum()), f"by ramps in {found.seconds:.2f} s"
    measured = {"declared": declares_cells(page.backbone), "found": count, "seconds": found.seconds}
    if count != len(audited):
        return Check(False, f"cells: {len(audited)} are audited, {count} found {took}", measured)
    _, difference = worst_cell(found, audited, page.image.size)
    passed = difference <= ALLOWED
    words = f"those declared {'are' if passed else 'are NOT'} those found {took}"
    if not declares_cells(page.backbone):
        words = f"{count} found {took}, none declared" if passed else f"those audited are NOT those found {took}"
    return Check(
        passed,
        f"cells: {words}, largest difference {difference:.2f} source pixels (allowed {ALLOWED:g})",
        {**measured, "difference": difference, "allowed": ALLOWED},
    )


def worst_cell(found: FoundCells, declared: Cells, size: tuple[int, int]) -> tuple[int, float]:
    """The token whose cell is furthest from the found one, and by how many source pixels.

    Cells that both say are empty, since padding alone is seen there, may lie anywhere.
    """
    cells = found.cells[found.sourced]
    away: np.ndarray = np.abs((cells - declared) * np.tile(size, 2)).max(axis=1)
    away[empty(cells) & empty(declared)] = 0.0
    return int(away.argmax()), float(away.max())


def empty(cells: Cells) -> np.ndarray:
    none: np.ndarray = (cells[:, 2] <= cells[:, 0]) | (cells[:, 3] <= cells[:, 1])
    return none


# Are signals read from the rows of the tower that a token is made from? Black in its cell must be seen by them.

FIRST_STATES = "vision.hidden@0"
"""What the tower holds before any attention: a token's rows have seen its own cell and nothing else."""
SHARE = 4.0
"""How much more a token may be moved that has a finer cell in the same place: a tile's beside the thumbnail's."""


def signal_rows(page: ExaminedPage) -> Check | None:
    """None for a model whose tower no signal is read from."""
    encoded, backbone = page.encoded, page.backbone
    if backbone.serves(FIRST_STATES) is not None:
        return None

    def states(image: Image.Image) -> Tensor:
        with torch.inference_mode():
            shown = backbone.encode([backbone.preprocess(image)], [FIRST_STATES])[0]
            return backbone.vision_signal(FIRST_STATES, shown)

    width, height = page.image.size
    before = states(page.image)
    for token in sorted({0, encoded.n // 3, encoded.n // 2, encoded.n - 1}):
        cell = np.clip(encoded.cells[token], 0.0, 1.0)
        x1, y1, x2, y2 = np.rint(cell * (width, height, width, height)).astype(int).tolist()
        if x1 >= x2 or y1 >= y2:
            continue
        darkened = page.image.copy()
        darkened.paste((0, 0, 0), (x1, y1, x2, y2))
        moved = (states(darkened) - before).norm(dim=1)
        other = encoded.cells[int(moved.argmax())]
        touches = bool((np.minimum(cell[2:], other[2:]) > np.maximum(cell[:2], other[:2])).all())
        if not (touches and bool(moved[token] * SHARE >= moved.max())):
            return Check(
                False,
                f"rows of the tower: black in the cell of token {token} is seen by rows of token {int(moved.argmax())} "
                f"at {cell_words(other)}: signals are read from rows that it is not made from",
            )
    return Check(True, "rows of the tower: black in a token's cell is seen by the rows that its signals are read from")


def cell_words(cell: np.ndarray) -> str:
    return f"({', '.join(f'{edge:.3f}' for edge in cell)})"


# Does a word on the page light up the tokens whose cells it stands on?
#
# The page is encoded with and without one bright word, drawn where the map says that some token looks. Among tokens
# whose cells lie on the word and tokens whose cells are clear of it, the change must tell one from the other: AUROC,
# the probability that a token on the word changes more than one off it. With attention silenced a token changes for
# what it sees itself; a map that is transposed, or whose tiles are shuffled, names other tokens than those that
# change. With attention every token may change, so that figure is a fact and decides nothing.

PLACES, MOST_PLACES, ATTENDING = 8, 32, 3
"""Words drawn one after the other: at least so many, at most so many where there are many tiles, with attention."""
LEAST = 0.9
SMALLEST = (32, 16)
"""(width, height) of the smallest word in source pixels."""
BRIGHT = ((255, 214, 0), (0, 40, 255))
REACH = 3
"""Source pixels beyond a cell that a resampling filter may still read."""
GOLDEN = (math.sqrt(5) - 1) / 2

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class BrightWord:
    box: Box
    on: np.ndarray
    """(N,) bool: tokens whose cells lie on the word, for half of the cell or of the word."""
    off: np.ndarray
    """(N,) bool: tokens clear of it. Those in between do not count."""

    @staticmethod
    def at(box: Box, cells: Cells, size: tuple[int, int]) -> BrightWord:
        left, top, right, bottom = box
        wide = np.minimum(cells[:, 2], right) - np.maximum(cells[:, 0], left)
        high = np.minimum(cells[:, 3], bottom) - np.maximum(cells[:, 1], top)
        sides = cells[:, 2:] - cells[:, :2]
        smaller = np.minimum(sides.prod(1), (right - left) * (bottom - top))
        common = wide.clip(min=0) * high.clip(min=0)
        reach = np.maximum(sides / 4, REACH / np.array(size))
        return BrightWord(box, (common > 0) & (common >= smaller / 2), (wide < -reach[:, 0]) | (high < -reach[:, 1]))

    def told_by(self, change: np.ndarray) -> float:
        counted = self.on | self.off
        return auroc(self.on[counted], change[counted])


def check_bright_word(page: ExaminedPage) -> tuple[Check, LitTokens | None]:
    """The check, and of its worst word what it changed, to be looked at."""
    words = words_on(page.encoded.cells, page.encoded.layout, page.image.size)
    if not words:
        return Check(False, "bright word: no place on the page is seen by some tokens and not by others"), None
    drawn = [with_word(page.image, word.box) for word in words]
    with silenced(page.backbone.model):
        plain = features(page.backbone, page.image)
        changes = [change(plain, features(page.backbone, image)) for image in drawn]
    told = [word.told_by(each) for word, each in zip(words, changes, strict=True)]
    plain = features(page.backbone, page.image)
    attending = [
        word.told_by(change(plain, features(page.backbone, image)))
        for word, image in list(zip(words, drawn, strict=True))[:ATTENDING]
    ]
    worst = int(np.argmin(told))
    verdict = "lights up the tokens that look there" if told[worst] >= LEAST else "lights up OTHER tokens"
    check = Check(
        told[worst] >= LEAST,
        f"bright word: at {len(words)} places it {verdict}, smallest AUROC {told[worst]:.3f} with attention silenced "
        f"(at least {LEAST}), mean {np.mean(attending):.3f} with attention",
        {"places": len(words), "silenced": told, "attending": attending, "least": LEAST},
    )
    return check, LitTokens(drawn[worst], words[worst].box, changes[worst])


def words_on(cells: Cells, layout: tuple[tuple[int, int], ...], size: tuple[int, int]) -> list[BrightWord]:
    """Places over cells of every block, away from the diagonal, on which a transposed map would be right."""
    tokens: list[int] = []
    first = 0
    for rows, columns in layout:
        tokens.append(first + int((1 - GOLDEN) * rows * columns))
        first += rows * columns
    wanted = min(max(len(tokens), PLACES), MOST_PLACES)
    tokens = [tokens[round(place)] for place in np.linspace(0, len(tokens) - 1, min(len(tokens), MOST_PLACES))]
    tokens += [int(len(cells) * (number * GOLDEN % 1)) for number in range(1, 3 * PLACES)]
    words = (BrightWord.at(word_box(cells[token], size), cells, size) for token in dict.fromkeys(tokens))
    return [word for word in words if word.on.any() and word.off.any()][:wanted]


def word_box(cell: np.ndarray, size: tuple[int, int]) -> Box:
    """The cell in whole pixels, or around its middle as much as a word needs; fractions of the image."""
    edges = []
    for axis in (0, 1):
        low, high = float(cell[axis]) * size[axis], float(cell[axis + 2]) * size[axis]
        lacking = max(0.0, SMALLEST[axis] - (high - low)) / 2
        edges.append((max(0, math.floor(low - lacking)), min(size[axis], math.ceil(high + lacking))))
    (left, right), (top, bottom) = edges
    return left / size[0], top / size[1], right / size[0], bottom / size[1]


def with_word(image: Image.Image, box: Box) -> Image.Image:
    """A copy with a bright label, of the two colours that which differs more from what is there."""
    drawn = image.convert("RGB")
    left, top, right, bottom = (round(edge * drawn.size[place % 2]) for place, edge in enumerate(box))
    there = np.asarray(drawn.crop((left, top, right, bottom))).mean((0, 1))
    colour = max(BRIGHT, key=lambda each: float(np.abs(there - each).sum()))
    draw = ImageDraw.Draw(drawn)
    draw.rectangle((left, top, right - 1, bottom - 1), fill=colour)
    font = ImageFont.load_default(max(8, min(bottom - top, (right - left) // 2) * 0.7))
    draw.text(((left + right) / 2, (top + bottom) / 2), "WORD", fill=(20, 20, 20), font=font, anchor="mm")
    return drawn


def features(backbone: Backbone, image: Image.Image) -> np.ndarray:
    """(N, D) visual tokens, as an audit gets them."""
    tokens: np.ndarray = backbone.encode([backbone.preprocess(image)])[0].tokens.float().cpu().numpy()
    return tokens


def change(plain: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """(N,)"""
    length: np.ndarray = np.linalg.norm(changed - plain, axis=1)
    return length
