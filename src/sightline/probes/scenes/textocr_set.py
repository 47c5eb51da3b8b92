"""A set of scenes on disk in TextOCR's format: JPEG images and one annotation file, for ``sightline probes build``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError
from sightline.probes.scenes.compose import CANVAS, Scene, inside
from sightline.probes.scenes.draw import draw
from sightline.probes.scenes.lexicon import Split
from sightline.probes.scenes.page_designs import DESIGNS, compose

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
