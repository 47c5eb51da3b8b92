"""One training sample: a scene, where its characters stand, and packed questions, as a flat record."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from lab.reader import record, vocabulary
from lab.reader.atlas import MARGIN, glyph_table
from lab.reader.questions import Question, ask
from lab.reader.token_grid import SLOT_HEIGHT, SLOT_WIDTH, SLOTS, UNIT, UNITS_PER_SIDE
from lab.scenes.compose import CANVAS, PixelBox, Scene
from lab.scenes.open_questions import NEIGHBOURS, OpenQuestion, choose, open_questions
from lab.scenes.page_designs import compose
from lab.scenes.paired_designs import compose_open

CHARACTER_COUNT = 94
BIGRAM_BUCKETS = 1024
ANSWER, ENDING, SPELLING, LETTER = 1, 2, 3, 4
"""Kinds of scored tokens: the yes or no; what follows it; the letters of a target that is in the image; the letters of
an open answer and its end."""
NO_QUESTION = 99
BLANK_SHARE = 0.03
VALUES_ONLY_SHARE = 0.5
"""Pages with labelled values that are asked about nothing else."""

Views = dict[str, NDArray[Any]]


def build_sample(seed: int) -> NDArray[np.int32]:
    """The record of training scene ``seed``: see ``record.FIELDS``."""
    row = np.zeros(record.WIDTH, np.int32)
    out = record.views(row)
    scene = compose(seed, "train")
    rng = random.Random(f"questions:{seed}")
    if rng.random() < BLANK_SHARE:
        scene.words.clear()
        if rng.random() < 0.5:
            scene.shapes.clear()
    _write_surfaces(scene, out)
    _write_glyphs(scene, out)
    _begin_questions(out)
    _write_questions(ask(scene, rng, record.QUESTIONS), out)
    return row


def build_open_sample(seed: int) -> NDArray[np.int32]:
    """The record of a training scene that is asked open questions: the system message differs, hence no mixture."""
    row = np.zeros(record.WIDTH, np.int32)
    out = record.views(row)
    scene = compose_open(seed, "train")
    rng = random.Random(f"open questions:{seed}")
    found = open_questions(scene, rng)
    if scene.pairs and rng.random() < VALUES_ONLY_SHARE:
        found = [question for question in found if question.kind not in NEIGHBOURS]
    _write_surfaces(scene, out)
    _write_glyphs(scene, out)
    _begin_questions(out)
    out["in_words"][:] = 1
    _write_open_questions(choose(found, rng, record.QUESTIONS), out)
    return row


def _write_surfaces(scene: Scene, out: Views) -> None:
    out["background"][:] = scene.background
    for index, shape in enumerate(scene.shapes):
        out["shapes"][index] = shape[:4]
        out["shape_colour"][index] = _pack(shape.colour)
    out["effects"][:] = (scene.angle, *scene.light, scene.blur, scene.noise)


def _write_glyphs(scene: Scene, out: Views) -> None:
    """Glyph tiles and, after rotation, the slot of each character and the unit of each pair of neighbours."""
    for name in ("glyph", "slot", "bigram"):
        out[name][:] = -1
    if not scene.words:
        return
    table = glyph_table(scene.role)
    lengths = np.array([len(word.text) for word in scene.words])
    columns = np.array([(word.font, word.size, word.x, word.y, _pack(word.colour)) for word in scene.words])
    font, size, x, y, colour = np.repeat(columns, lengths, axis=0).T
    character = np.frombuffer("".join(word.text for word in scene.words).encode(), np.uint8).astype(np.int64) - 33
    advance = table.advance[font, size, character]
    end = np.cumsum(advance)
    first = np.cumsum(lengths) - lengths
    begin = end - advance
    begin -= np.repeat(begin[first], lengths)
    count = len(character)
    sizes = table.advance.shape[1]
    out["glyph"][:count] = (font * sizes + size) * CHARACTER_COUNT + character
    out["glyph_x"][:count] = x + begin - MARGIN
    out["glyph_y"][:count] = y + table.top[font, size]
    out["glyph_colour"][:count] = colour

    middle = y + table.middle[font, size]
    centre_x, centre_y = _turn(x + begin + advance / 2, middle, scene.angle)
    unit = _unit(centre_x, centre_y)
    slot = (centre_y % UNIT // SLOT_HEIGHT * (UNIT // SLOT_WIDTH) + centre_x % UNIT // SLOT_WIDTH).astype(int)
    on_canvas = (centre_x >= 0) & (centre_x < CANVAS) & (centre_y >= 0) & (centre_y < CANVAS)
    out["slot"][:count] = np.where(on_canvas, (unit * SLOTS + slot) * CHARACTER_COUNT + character, -1)

    edge_x, edge_y = _turn(x + begin, middle, scene.angle)
    on_canvas = (edge_x >= 0) & (edge_x < CANVAS) & (edge_y >= 0) & (edge_y < CANVAS)
    on_canvas[first] = False
    pair = np.roll(character, 1) * CHARACTER_COUNT + character
    bucket = (pair * 2654435761 >> 7) % BIGRAM_BUCKETS
    out["bigram"][:count] = np.where(on_canvas, _unit(edge_x, edge_y) * BIGRAM_BUCKETS + bucket, -1)


def _unit(x: NDArray[np.floating], y: NDArray[np.floating]) -> NDArray[np.int64]:
    """Which unit of the grid, in reading order, holds a point."""
    return (y // UNIT).astype(np.int64) * UNITS_PER_SIDE + (x // UNIT).astype(np.int64)


def _begin_questions(out: Views) -> None:
    out["segments"][:] = NO_QUESTION
    out["targets"][:] = -1


def _write_questions(questions: list[Question], out: Views) -> None:
    """Packs questions with their answers one after another while they fit; each starts at the same position."""
    place = 0
    for number, question in enumerate(questions):
        spelled = vocabulary.spell(question.target)[: record.TARGET_LENGTH]
        answer = vocabulary.YES if question.answer else vocabulary.NO
        prompt = vocabulary.question_ids(question.target)
        ids = [*prompt, answer, vocabulary.IM_END, vocabulary.NEWLINE]
        kinds = [0] * (len(ids) - 1)
        kinds[-3], kinds[-2], kinds[-1] = ANSWER, ENDING, ENDING
        if question.answer:
            # From the second letter on: the first cannot be known before the reader has found the word.
            kinds[2 : 1 + len(spelled)] = [SPELLING] * (len(spelled) - 1)
        if place + len(kinds) > record.TEXT_LENGTH:
            break
        _write_text(out, number, place, ids, kinds)
        out["targets"][number, : len(spelled)] = spelled
        if question.box is not None:
            out["boxes"][number, 0] = question.box
        place += len(kinds)


def _write_open_questions(questions: list[OpenQuestion], out: Views) -> None:
    """The same for open questions, whose answers are spelled; those that do not fit any more are left out."""
    place = number = 0
    for question in questions:
        prompt = vocabulary.open_question_ids(question.text)
        ids = [*prompt, *vocabulary.spell(question.answer), vocabulary.IM_END]
        kinds = [0] * (len(prompt) - 1) + [LETTER] * (len(ids) - len(prompt))
        if place + len(kinds) > record.TEXT_LENGTH:
            continue
        _write_text(out, number, place, ids, kinds)
        named = vocabulary.open_ids(question.target)[: record.TARGET_LENGTH]
        out["targets"][number, : len(named)] = named
        _write_boxes(out["boxes"][number], question.boxes("field_label"))
        _write_boxes(out["values"][number], question.boxes("answer_value", "comparison_anchor"))
        place += len(kinds)
        number += 1


def _write_text(out: Views, number: int, place: int, ids: list[int], kinds: list[int]) -> None:
    """``ids``: a whole question and answer; each but the last is an input whose label is the next."""
    span = slice(place, place + len(kinds))
    out["ids"][span], out["labels"][span], out["kinds"][span] = ids[:-1], ids[1:], kinds
    out["segments"][span] = number
    out["positions"][span] = np.arange(len(kinds))


def _write_boxes(out: NDArray[np.float32], boxes: list[PixelBox]) -> None:
    for place, box in enumerate(boxes):
        out[place] = box


def _turn(
    x: NDArray[np.floating], y: NDArray[np.floating], angle: float
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """``compose.rotate`` for arrays."""
    cos, sin, half = np.cos(np.radians(angle)), np.sin(np.radians(angle)), CANVAS / 2
    return half + (x - half) * cos + (y - half) * sin, half - (x - half) * sin + (y - half) * cos


def _pack(colour: tuple[int, int, int]) -> int:
    return colour[0] << 16 | colour[1] << 8 | colour[2]


class SampleBatches(IterableDataset[Tensor]):
    """Endless (B, WIDTH) int32 batches; scene seeds are never repeated within a run nor between its legs.

    ``open_share`` of the scenes, spread evenly over a batch, are asked open questions; the others yes/no questions.
    """

    def __init__(self, batch: int, first_seed: int, open_share: float = 0.0) -> None:
        self.batch, self.first_seed = batch, first_seed
        asked = [int((place + 1) * open_share) > int(place * open_share) for place in range(batch)]
        self.builders = [build_open_sample if open_ended else build_sample for open_ended in asked]

    def __iter__(self) -> Iterator[Tensor]:
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        seed = self.first_seed + number
        while True:
            seeds = [seed + index * workers for index in range(self.batch)]
            rows = [build(each) for build, each in zip(self.builders, seeds, strict=True)]
            seed += self.batch * workers
            yield torch.from_numpy(np.stack(rows))
