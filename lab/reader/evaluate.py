"""Held-out check of a reader: hard pairs on freshly drawn scenes, with all visual tokens and under masks."""

from __future__ import annotations

import math
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from lab.reader import vocabulary
from lab.reader.forward import BatchedForward, SeenTokens
from lab.reader.objectives import overlap_shares, target_scores
from lab.scenes.compose import CANVAS, draw, inside
from lab.scenes.lexicon import Split
from lab.scenes.page_designs import compose
from sightline.core.probe import Probe
from sightline.probes.hard_pairs import HardPairRules, build_hard_pairs
from sightline.probes.regions import ImageRegions
from sightline.probes.regions import Word as RegionWord

MIN_AREA, MAX_AREA = 1e-3, 8e-3
"""Word areas, as fractions of the canvas, that the hard-pair builder may choose from in these scenes."""
KEEP = 0.3
HELD_OUT_SEED = 500_000_000
"""First scene seed of the check; far above any that training reaches, and of another role besides."""
ROW_LENGTH = 64
"""Tokens of one probe's two continuations, padded."""


@dataclass(frozen=True)
class HeldOut:
    """Probes in pairs, and per probe its image, target ids and box."""

    probes: tuple[Probe, ...]
    images: Tensor
    """(n, 3, 448, 448) uint8, one per probe."""
    targets: Tensor
    """(n, 24) int64, -1 where there is no character."""
    boxes: Tensor
    """(n, 4) float32 pixels."""

    def first(self, count: int) -> HeldOut:
        return HeldOut(self.probes[:count], self.images[:count], self.targets[:count], self.boxes[:count])

    @property
    def positive(self) -> Tensor:
        return torch.tensor([probe.label == "yes" for probe in self.probes])


def scene_regions(seed: int, role: Split) -> ImageRegions:
    """The words of a scene that lie on the canvas, as a region record."""
    scene = compose(seed, role)
    boxes = [(word.text, scene.box(word)) for word in scene.words]
    words = tuple(
        RegionWord(text, (x1 / CANVAS, y1 / CANVAS, x2 / CANVAS, y2 / CANVAS))
        for text, (x1, y1, x2, y2) in boxes
        if inside((x1, y1, x2, y2))
    )
    return ImageRegions(str(seed), f"{seed}.png", words, CANVAS, CANVAS)


def draw_held_out(count: int, role: Split = "development", workers: int = 0) -> HeldOut:
    """Hard pairs on ``count`` scenes of ``role``, drawn with Pillow as the shipped sets are."""
    seeds = range(HELD_OUT_SEED, HELD_OUT_SEED + 2 * count)
    rules = HardPairRules(seed=17, limit_images=count, min_area=MIN_AREA, max_area=MAX_AREA)
    probes = build_hard_pairs([scene_regions(seed, role) for seed in seeds], rules).probes
    used = list(dict.fromkeys((int(probe.image_id), role) for probe in probes))
    if workers:
        with ProcessPoolExecutor(workers) as pool:
            drawn = dict(zip(used, pool.map(_pixels, used, chunksize=4), strict=True))
    else:
        drawn = {key: _pixels(key) for key in used}
    images = torch.from_numpy(np.stack([drawn[int(probe.image_id), role] for probe in probes])).permute(0, 3, 1, 2)
    targets = torch.full((len(probes), 24), -1)
    for row, probe in enumerate(probes):
        spelled = torch.tensor(vocabulary.spell(probe.target_text))
        targets[row, : len(spelled)] = spelled
    boxes = torch.tensor([probe.regions[0] for probe in probes], dtype=torch.float32) * CANVAS
    return HeldOut(probes, images, targets, boxes)


def _pixels(key: tuple[int, Split]) -> NDArray[np.uint8]:
    seed, role = key
    return np.asarray(draw(compose(seed, role), seed))


def masks(tokens: Tensor, embedding: Tensor, targets: Tensor, evidence: Tensor, seed: int) -> dict[str, Tensor]:
    """Kept visual tokens, (n, N) bool, of each arm; ``evidence`` (n, N) bool: the cells of the probes' regions."""
    count, every = evidence.shape
    k, side = math.ceil(KEEP * every), math.isqrt(every)
    noise = _noise(evidence, seed)
    lines = math.ceil(math.sqrt(k))
    line = ((torch.arange(lines) + 0.5) * side / lines).long()
    grid = torch.zeros(every, dtype=torch.bool, device=tokens.device)
    grid[(line[:, None] * side + line).flatten()[:k].to(tokens.device)] = True
    return {
        "full": torch.ones_like(evidence),
        "target": _top(target_scores(tokens, embedding, targets[:, None])[:, 0], k),
        "random": _top(noise, k),
        "grid": grid.expand(count, -1),
        "evidence kept": _top(noise + 2.0 * evidence, k),
        "evidence avoided": avoiding(evidence, seed),
        "full without evidence": ~evidence,
    }


def avoiding(cells: Tensor, seed: int) -> Tensor:
    """Tokens kept at random with none of ``cells`` (n, N) among them, where enough others are there."""
    return _top(_noise(cells, seed) - 2.0 * cells, math.ceil(KEEP * cells.shape[1]))


def _noise(like: Tensor, seed: int) -> Tensor:
    """Uniform, from a CPU generator: equal on every device."""
    return torch.rand(like.shape, generator=torch.Generator().manual_seed(seed)).to(like.device)


def _top(scores: Tensor, k: int) -> Tensor:
    keep = torch.zeros_like(scores, dtype=torch.bool)
    return keep.scatter_(1, scores.topk(k, dim=1).indices, True)


def margins(forward: BatchedForward, seen: SeenTokens, probes: list[Probe], keep: Tensor) -> Tensor:
    """(n,) mean loss of the three tokens after " no" minus that after " yes", both continuations in one sequence."""
    count, device = len(probes), forward.device
    ids = torch.zeros(count, ROW_LENGTH, dtype=torch.long)
    labels = torch.full((count, ROW_LENGTH), -100)
    segments = torch.full((count, ROW_LENGTH), 9)
    positions = torch.zeros(count, ROW_LENGTH, dtype=torch.long)
    for row, probe in enumerate(probes):
        prompt = vocabulary.question_ids(probe.target_text)
        place = 0
        for number, answer in enumerate((vocabulary.YES, vocabulary.NO)):
            text = torch.tensor([*prompt, answer, vocabulary.IM_END, vocabulary.NEWLINE])
            span = slice(place, place + len(text) - 1)
            ids[row, span], segments[row, span] = text[:-1], number
            labels[row, place + len(text) - 4 : place + len(text) - 1] = text[-3:]
            positions[row, span] = torch.arange(len(text) - 1)
            place += len(text) - 1
    segments = segments.to(device)
    states = forward.read(seen, ids.to(device), positions.to(device), segments, keep)
    logits = forward.logits(states).float()
    losses = F.cross_entropy(logits.flatten(0, 1), labels.to(device).flatten(), reduction="none").view(count, -1)
    return (losses * (segments == 1)).sum(1) / 3 - (losses * (segments == 0)).sum(1) / 3


@torch.no_grad()
def evaluate(forward: BatchedForward, held_out: HeldOut, batch: int = 32) -> dict[str, dict[str, float]]:
    """Arm -> accuracy, tpr, fpr, pos_ecr (mean coverage of positives), neg_src (of negatives)."""
    device = forward.device
    margin: dict[str, list[Tensor]] = {}
    coverage: dict[str, list[Tensor]] = {}
    count = len(held_out.probes)
    for start in range(0, count, batch):
        rows = slice(start, min(count, start + batch))
        probes = list(held_out.probes[rows])
        images = held_out.images[rows].to(device).float()
        targets, boxes = held_out.targets[rows].to(device), held_out.boxes[rows].to(device)
        other = held_out.images[[(row + count // 4 * 2) % count for row in range(rows.start, rows.stop)]]
        seen = forward.see(images)
        shares = overlap_shares(boxes, math.isqrt(seen.tokens.shape[1]))
        arms = masks(seen.tokens, forward.embedding, targets, shares > 0, seed=start)
        for arm, keep in arms.items():
            margin.setdefault(arm, []).append(margins(forward, seen, probes, keep).cpu())
            coverage.setdefault(arm, []).append((shares * keep).sum(1).cpu())
        for arm, replaced in (
            ("blank image", torch.full_like(images, 127.0)),
            ("wrong image", other.to(device).float()),
        ):
            blind = forward.see(replaced)
            margin.setdefault(arm, []).append(margins(forward, blind, probes, arms["full"]).cpu())
            coverage.setdefault(arm, []).append(torch.zeros(len(probes)))
    return {arm: _row(torch.cat(margin[arm]), torch.cat(coverage[arm]), held_out.positive) for arm in margin}


def _row(margin: Tensor, coverage: Tensor, positive: Tensor) -> dict[str, float]:
    yes = margin >= 0
    return {
        "accuracy": (yes == positive).float().mean().item(),
        "tpr": yes[positive].float().mean().item(),
        "fpr": yes[~positive].float().mean().item(),
        "pos_ecr": coverage[positive].mean().item(),
        "neg_src": coverage[~positive].mean().item(),
    }


def render(table: dict[str, dict[str, float]]) -> str:
    """The table as text."""
    columns = ("accuracy", "tpr", "fpr", "pos_ecr", "neg_src")
    lines = [f"{'arm':<22}" + "".join(f"{column:>10}" for column in columns)]
    lines += [f"{arm:<22}" + "".join(f"{row[column]:>10.3f}" for column in columns) for arm, row in table.items()]
    return "\n".join(lines)
