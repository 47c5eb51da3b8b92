"""Held-out open questions: scenes in which every kind of question is asked, as images and a probe file."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

from lab.scenes.compose import CANVAS, PixelBox, Scene, draw, inside
from lab.scenes.lexicon import Split
from lab.scenes.open_questions import NEIGHBOURS, TEMPLATES, OpenQuestion, open_questions
from lab.scenes.page_designs import DESIGNS, compose
from lab.scenes.paired_designs import PAIRED_DESIGNS, compose_open
from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.probes.hard_pairs import normalise_word
from sightline.probes.probe_file import ProbeSet, write_probes

# A set of scenes on disk in TextOCR's format: JPEG images and one annotation file, for ``sightline probes build``.

FIRST_SEED: dict[Split, int] = {"train": 0, "development": 600_000_000, "confirmation": 700_000_000}
"""Seeds of the sets' page designs. Training consumes seeds from 100 000 000 on and stays below 500 000 000."""
ANNOTATIONS, IMAGES = "annotations.json", "images"
JPEG: dict[str, Any] = {"format": "JPEG", "quality": 75, "optimize": True, "progressive": True}

Document = dict[str, dict[str, Any]]


def scenes_of(split: Split, images: int) -> Iterable[tuple[str, int, Scene]]:
    """(image id, seed, scene) of a set: all kinds of scene in turn."""
    kinds = tuple(DESIGNS)
    for number, seed in zip(range(images), count(FIRST_SEED[split]), strict=False):
        yield f"{split}-{number:04d}", seed, compose(seed, split, kinds[number % len(kinds)])


def annotate(split: Split, images: int) -> Document:
    """The annotation file's content. Words that a rotation moved partly off the canvas are left out, as in training."""
    document: Document = {"imgs": {}, "anns": {}, "imgToAnns": {}}
    for image_id, _, scene in scenes_of(split, images):
        document["imgs"][image_id] = {
            "id": image_id,
            "width": CANVAS,
            "height": CANVAS,
            "set": split,
            "file_name": f"{image_id}.jpg",
            "kind": scene.kind,
        }
        document["imgToAnns"][image_id] = []
        for word in scene.words:
            box = scene.box(word)
            if not inside(box):
                continue
            x1, y1, x2, y2 = (round(value, 2) for value in box)
            name = f"{image_id}_{len(document['imgToAnns'][image_id]) + 1}"
            document["imgToAnns"][image_id].append(name)
            document["anns"][name] = {
                "image_id": image_id,
                "bbox": [x1, y1, round(x2 - x1, 2), round(y2 - y1, 2)],
                "utf8_string": word.text,
            }
    return document


def write_scenes(split: Split, images: int, out: Path, progress: Callable[[], None] = lambda: None) -> Document:
    """Draws the set's images into ``out/images`` and writes ``out/annotations.json``."""
    document = annotate(split, images)
    try:
        (out / IMAGES).mkdir(parents=True, exist_ok=True)
        for image_id, seed, scene in scenes_of(split, images):
            draw(scene, seed).save(out / IMAGES / document["imgs"][image_id]["file_name"], **JPEG)
            progress()
        text = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
        (out / ANNOTATIONS).write_text(text + "\n", encoding="utf-8")
    except OSError as problem:
        raise SightlineError(f"cannot write scenes to {out}: {problem.strerror or problem}") from None
    return document


FIRST_OPEN_SEED: dict[Split, int] = {"train": 0, "development": 800_000_000, "confirmation": 900_000_000}
OPEN_PROBES, OPEN_IMAGES = "open_probes.jsonl", "open_images"
WRONG_IMAGES = "open_wrong_images.jsonl"
WRONG_VIEW = "image_mismatch"
"""View of a question that is asked about another image of its set."""
TASK = "scenes"
PER_IMAGE = 2
"""Questions asked about one image, of different kinds."""
LARGEST_NOISE = 2.0
"""Noise of held-out images, in levels; training goes up to 9, which would make the files much larger."""


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


def open_set(split: Split, images: int) -> tuple[list[AskedScene], list[Probe]]:
    """The scenes of a set and its probes, image by image."""
    scenes = list(islice(asked_scenes(split), images))
    probes = [
        open_probe(question, f"open-{split}-{number:04d}", place)
        for number, asked in enumerate(scenes)
        for place, question in enumerate(asked.questions, start=1)
    ]
    return scenes, probes


def wrong_images(scenes: list[AskedScene], probes: list[Probe]) -> list[Probe]:
    """Every question about another image of the set: half the set away, or the next one that shows no answer to it."""
    shown = [{normalise_word(word.text).casefold() for word in asked.scene.words} for asked in scenes]
    files = list(dict.fromkeys(probe.image for probe in probes))
    control = []
    for place, probe in enumerate(probes):
        own = place // PER_IMAGE
        others = [(own + len(files) // 2 + step) % len(files) for step in range(len(files))]
        other = next(
            (
                number
                for number in others
                if number != own and not {answer.casefold() for answer in probe.answers} & shown[number]
            ),
            None,
        )
        if other is None:
            raise SightlineError(f"every other image shows {probe.answers[0]!r}; draw more scenes")
        extra = {"control_type": WRONG_VIEW, "original_image": probe.image}
        control.append(replace(probe, image=files[other], view=WRONG_VIEW, extra=extra))
    return control


def write_open_set(split: Split, images: int, out: Path, progress: Callable[[], None] = lambda: None) -> ProbeSet:
    """Draws the set's images into ``out/open_images`` and writes its probes, also as asked about wrong images."""
    scenes, probes = open_set(split, images)
    try:
        (out / OPEN_IMAGES).mkdir(parents=True, exist_ok=True)
        for asked, probe in zip(scenes, probes[::PER_IMAGE], strict=True):
            draw(asked.scene, asked.seed).save(out / OPEN_IMAGES / probe.image, **JPEG)
            progress()
    except OSError as problem:
        raise SightlineError(f"cannot write scenes to {out}: {problem.strerror or problem}") from None
    construction = {"scenes": split, "images": images, "first_seed": FIRST_OPEN_SEED[split]}
    if images > 1:
        control = wrong_images(scenes, probes)
        write_probes(out / WRONG_IMAGES, control, construction=construction | {"control": WRONG_VIEW})
    return write_probes(out / OPEN_PROBES, probes, construction=construction)


def _fractions(box: PixelBox) -> PixelBox:
    x1, y1, x2, y2 = (round(value / CANVAS, 5) for value in box)
    return x1, y1, x2, y2
