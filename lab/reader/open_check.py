"""Held-out check of open answers: spelled without a mistake or not, per kind of question, with and without tokens.

An answer counts where every letter and the end are the likeliest after the right ones before them, which is where
greedy decoding gives exactly that answer.
"""

from __future__ import annotations

import math
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lab.reader import record, vocabulary
from lab.reader.evaluate import HELD_OUT_SEED, avoiding, masks
from lab.reader.forward import BatchedForward, SeenTokens
from lab.reader.objectives import overlap_shares
from lab.scenes.compose import draw
from lab.scenes.lexicon import Split
from lab.scenes.open_questions import TEMPLATES, OpenQuestion
from lab.scenes.open_set import AskedScene, asked_scenes

OPEN_ROW_LENGTH = 72
"""Tokens of the longest question with its answer."""
IGNORED = -100


@dataclass(frozen=True)
class OpenHeldOut:
    """Open questions, and per question its image."""

    questions: tuple[OpenQuestion, ...]
    images: Tensor
    """(n, 3, 448, 448) uint8, one per question."""

    def first(self, count: int) -> OpenHeldOut:
        return OpenHeldOut(self.questions[:count], self.images[:count])


def draw_open_held_out(images: int, role: Split = "development", workers: int = 0) -> OpenHeldOut:
    """Questions about ``images`` scenes of ``role``, other ones than those of the shipped sets."""
    scenes = list(islice(asked_scenes(role, HELD_OUT_SEED), images))
    if workers:
        with ProcessPoolExecutor(workers) as pool:
            drawn = list(pool.map(_pixels, scenes, chunksize=4))
    else:
        drawn = [_pixels(scene) for scene in scenes]
    questions = tuple(question for scene in scenes for question in scene.questions)
    repeated = [pixels for pixels, scene in zip(drawn, scenes, strict=True) for _ in scene.questions]
    return OpenHeldOut(questions, torch.from_numpy(np.stack(repeated)).permute(0, 3, 1, 2))


def _pixels(asked: AskedScene) -> NDArray[np.uint8]:
    return np.asarray(draw(asked.scene, asked.seed))


def spelled_exactly(
    forward: BatchedForward, seen: SeenTokens, questions: tuple[OpenQuestion, ...], keep: Tensor
) -> Tensor:
    """(n,) bool for the questions' images as ``seen``, under ``keep`` (n, N) bool."""
    count, device = len(questions), forward.device
    ids = torch.zeros(count, OPEN_ROW_LENGTH, dtype=torch.long)
    labels = torch.full((count, OPEN_ROW_LENGTH), IGNORED)
    for row, question in enumerate(questions):
        prompt = vocabulary.open_question_ids(question.text)
        text = torch.tensor([*prompt, *vocabulary.spell(question.answer), vocabulary.IM_END])
        ids[row, : len(text) - 1] = text[:-1]
        labels[row, len(prompt) - 1 : len(text) - 1] = text[len(prompt) :]
    segments = torch.zeros(count, OPEN_ROW_LENGTH, dtype=torch.long, device=device)
    positions = torch.arange(OPEN_ROW_LENGTH, device=device).expand(count, -1)
    in_words = torch.ones(count, dtype=torch.bool, device=device)
    states = forward.read(seen, ids.to(device), positions, segments, keep, in_words)
    found = forward.logits(states).argmax(-1).cpu()
    return ((found == labels) | (labels == IGNORED)).all(1)


@torch.no_grad()
def evaluate_open(forward: BatchedForward, held_out: OpenHeldOut, batch: int = 32) -> dict[str, dict[str, float]]:
    """Arm -> exact match over all questions (``all``) and per kind."""
    device, count = forward.device, len(held_out.questions)
    right: dict[str, list[Tensor]] = {}
    for start in range(0, count, batch):
        rows = range(start, min(count, start + batch))
        questions = held_out.questions[rows.start : rows.stop]
        images = held_out.images[rows.start : rows.stop].to(device).float()
        other = held_out.images[[(row + count // 4 * 2) % count for row in rows]].to(device).float()
        seen = forward.see(images)
        side = math.isqrt(seen.tokens.shape[1])
        answer = torch.stack([_cells(question, side, "answer_value") for question in questions]).to(device)
        evidence = torch.stack([_cells(question, side, *question.roles) for question in questions]).to(device)
        arms = masks(seen.tokens, forward.embedding, _targets(questions).to(device), evidence, seed=start)
        arms["answer avoided"] = avoiding(answer, seed=start)
        for arm, keep in arms.items():
            right.setdefault(arm, []).append(spelled_exactly(forward, seen, questions, keep))
        for arm, replaced in (("blank image", torch.full_like(images, 127.0)), ("wrong image", other)):
            blind = forward.see(replaced)
            right.setdefault(arm, []).append(spelled_exactly(forward, blind, questions, arms["full"]))
    kinds = np.array([question.kind for question in held_out.questions])
    return {arm: _shares(torch.cat(parts).numpy(), kinds) for arm, parts in right.items()}


def _cells(question: OpenQuestion, side: int, *roles: str) -> Tensor:
    """(N,) bool: the cells that hold a part of the regions with one of ``roles``."""
    return (overlap_shares(torch.tensor(question.boxes(*roles)), side) > 0).any(0)


def _targets(questions: tuple[OpenQuestion, ...]) -> Tensor:
    """(n, 24) int64 ids of what Target looks for, -1 where there is none."""
    targets = torch.full((len(questions), record.TARGET_LENGTH), -1)
    for row, question in enumerate(questions):
        named = torch.tensor(vocabulary.open_ids(question.target)[: record.TARGET_LENGTH])
        targets[row, : len(named)] = named
    return targets


def _shares(right: NDArray[np.bool_], kinds: NDArray[np.str_]) -> dict[str, float]:
    asked = [kind for kind in TEMPLATES if (kinds == kind).any()]
    return {"all": float(right.mean())} | {kind: float(right[kinds == kind].mean()) for kind in asked}


def render_open(table: dict[str, dict[str, float]]) -> str:
    """The table as text."""
    columns = tuple(next(iter(table.values())))
    lines = [f"{'exact match':<22}" + "".join(f"{column:>14}" for column in columns)]
    lines += [f"{arm:<22}" + "".join(f"{row[column]:>14.3f}" for column in columns) for arm, row in table.items()]
    return "\n".join(lines)
