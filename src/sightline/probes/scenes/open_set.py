"""Held-out open questions: scenes in which every kind of question is asked, as images and a probe file."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.probes.probe_file import ProbeSet, write_probes
from sightline.probes.scenes.compose import CANVAS, PixelBox, Scene
from sightline.probes.scenes.draw import draw
from sightline.probes.scenes.lexicon import Split
from sightline.probes.scenes.open_questions import NEIGHBOURS, TEMPLATES, OpenQuestion, open_questions
from sightline.probes.scenes.page_designs import DESIGNS
from sightline.probes.scenes.paired_designs import PAIRED_DESIGNS, compose_open
from sightline.probes.scenes.textocr_set import JPEG

FIRST_OPEN_SEED: dict[Split, int] = {"train": 0, "development": 800_000_000, "confirmation": 900_000_000}
OPEN_PROBES, OPEN_IMAGES = "open_probes.jsonl", "open_images"
TASK = "scenes"
PER_IMAGE = 2
"""Questions asked about one image, of different kinds."""
LARGEST_NOISE = 4.0
"""Noise of held-out images, in levels: stronger noise doubles the size of a file and changes no answer."""


class AskedScene(NamedTuple):
    """A scene and the questions that a held-out set asks about it."""

    seed: int
    scene: Scene
    questions: tuple[OpenQuestion, ...]


def asked_scenes(split: Split, first_seed: int | None = None) -> Iterator[AskedScene]:
    """Scenes without end: each drawn for one kind of question, kinds in turn; the second kind is the rarest so far."""
    seeds = count(FIRST_OPEN_SEED[split] if first_seed is None else first_seed)
    asked: Counter[str] = Counter()
    for number in count():
        kind = tuple(TEMPLATES)[number % len(TEMPLATES)]
        designs = tuple(PAIRED_DESIGNS if kind not in NEIGHBOURS else DESIGNS | PAIRED_DESIGNS)
        design = "bill" if kind == "total" else designs[number // len(TEMPLATES) % len(designs)]
        found = next(filter(None, (_ask(seed, split, design, kind, asked) for seed in seeds)))
        asked.update(question.kind for question in found.questions)
        yield found


def _ask(seed: int, split: Split, design: str, kind: str, asked: Counter[str]) -> AskedScene | None:
    """``PER_IMAGE`` questions about one scene, the first of ``kind``; None where the scene has no such questions."""
    scene = compose_open(seed, split, design)
    scene.noise = min(scene.noise, LARGEST_NOISE)
    left = open_questions(scene, random.Random(f"open set:{split}:{seed}"))
    chosen: list[OpenQuestion] = []
    for place in range(PER_IMAGE):
        taken = {question.kind for question in chosen}
        fitting = [
            question for question in left if (question.kind == kind if not place else question.kind not in taken)
        ]
        if not fitting:
            return None
        chosen.append(min(fitting, key=lambda question: asked[question.kind]))
    return AskedScene(seed, scene, tuple(chosen))


def open_probe(question: OpenQuestion, image_id: str, number: int) -> Probe:
    """The question as a probe: boxes in fractions of the canvas."""
    return Probe(
        id=f"{image_id}-{number}",
        image=f"{image_id}.jpg",
        image_id=image_id,
        question=question.text,
        label="open",
        target_text=question.target,
        source_text=question.answer,
        regions=tuple(_fractions(box) for box in question.regions),
        kind=question.kind,
        answers=(question.answer,),
        roles=question.roles,
        task=TASK,
        decoy=question.decoy,
    )


def write_open_set(split: Split, images: int, out: Path, progress: Callable[[], None] = lambda: None) -> ProbeSet:
    """Draws the set's images into ``out/open_images`` and writes ``out/open_probes.jsonl``."""
    probes: list[Probe] = []
    try:
        (out / OPEN_IMAGES).mkdir(parents=True, exist_ok=True)
        for number, (seed, scene, questions) in zip(range(images), asked_scenes(split), strict=False):
            image_id = f"open-{split}-{number:04d}"
            draw(scene, seed).save(out / OPEN_IMAGES / f"{image_id}.jpg", **JPEG)
            probes += [open_probe(question, image_id, place) for place, question in enumerate(questions, start=1)]
            progress()
    except OSError as problem:
        raise SightlineError(f"cannot write scenes to {out}: {problem.strerror or problem}") from None
    construction = {"scenes": split, "images": images, "first_seed": FIRST_OPEN_SEED[split]}
    return write_probes(out / OPEN_PROBES, probes, construction=construction)


def _fractions(box: PixelBox) -> PixelBox:
    x1, y1, x2, y2 = (round(value / CANVAS, 5) for value in box)
    return x1, y1, x2, y2
