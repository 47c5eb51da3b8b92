"""Run folders of any size, written in bounded memory: the real columns, masks that fit their coverage, five arms.

    python -m benchmarks.large_runs --rows 1000000 --out large

Nothing here runs a model. Images have a raster of 16 x 16 cells, and regions are whole cells of it, so that coverage is
counted from the very masks that are stored. An answer depends on what is covered, on a bias that a probe has under
every arm, and on noise: paired differences and flips occur as they do in an audit.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from PIL import Image

from sightline.answering.scorers.yes_no import YesNo
from sightline.core.row import image_schema, row_schema
from sightline.core.selection import NO_BOXES, arm_regime
from sightline.selectors import SELECTORS
from sightline.store.folder import MANIFEST, PROBES, RunFolder
from sightline.store.manifest import OF_PROBES, manifest_bytes
from sightline.store.verify import file_checksum

ARMS = ("full", "target:0.3", "target:0.5", "random:0.3", "grid:0.3")
SIDE = 16
CELLS = SIDE * SIDE
SIZE = (640, 480)
MODEL = {"model": "large-run", "model_type": "llava", "weight_digest": "sha256:" + "ab" * 32, "device": "cpu"}
SETTINGS = {"dtype": "float32", "attention": "sdpa", "profile": "paper", "positions": "compact"}
VERSIONS = {"sightline": "0.2.0", "torch": "2.13.0"}


@dataclass(frozen=True)
class Plan:
    """How many rows, and how they are divided."""

    rows: int
    arms: Sequence[str] = ARMS
    probes_per_image: int = 10
    images_per_shard: int = 64
    seed: int = 17

    @property
    def probes(self) -> int:
        return self.rows // len(self.arms)

    @property
    def shards(self) -> int:
        return -(-self.probes // (self.probes_per_image * self.images_per_shard))


@dataclass(frozen=True)
class Questions:
    """The probes of one shard, as columns."""

    plan: Plan
    shard: int

    @cached_property
    def number(self) -> NDArray[np.int64]:
        """(P,) of every probe within the run; the last shard may be shorter."""
        size = self.plan.probes_per_image * self.plan.images_per_shard
        return np.arange(self.shard * size, min((self.shard + 1) * size, self.plan.probes))

    @cached_property
    def image(self) -> NDArray[np.int64]:
        """(P,) the image of every probe."""
        return self.number // self.plan.probes_per_image

    @property
    def positive(self) -> NDArray[np.bool_]:
        return np.asarray(self.number % 2 == 0)

    @cached_property
    def regions(self) -> NDArray[np.int64]:
        """(P, 4) column, row, end column and end row of the one region, in cells."""
        rng = np.random.default_rng((self.plan.seed, self.shard, 0))
        # Odd sizes: the centre of a region lies in one cell, not on the edge of two.
        size = 1 + 2 * np.stack([rng.integers(0, 3, len(self.number)), rng.integers(0, 2, len(self.number))], axis=1)
        start = (rng.random((len(self.number), 2)) * (SIDE - size + 1)).astype(int)
        return np.concatenate([start, start + size], axis=1)

    @cached_property
    def evidence(self) -> NDArray[np.bool_]:
        """(P, N) which cells are the region."""
        y, x = np.divmod(np.arange(CELLS), SIDE)
        left, top, right, bottom = (edge[:, None] for edge in self.regions.T)
        found: NDArray[np.bool_] = (x >= left) & (x < right) & (y >= top) & (y < bottom)
        return found

    @cached_property
    def bias(self) -> NDArray[np.float64]:
        """(P,) what a probe's margin has under every arm."""
        return np.random.default_rng((self.plan.seed, self.shard, 1)).normal(0.0, 0.7, len(self.number))

    @cached_property
    def ids(self) -> list[str]:
        return [f"probe{number:08d}" for number in self.number.tolist()]

    @cached_property
    def image_ids(self) -> list[str]:
        return [f"img{image:07d}" for image in self.image.tolist()]

    @cached_property
    def labels(self) -> list[str]:
        return ["yes" if positive else "no" for positive in self.positive.tolist()]

    @cached_property
    def kinds(self) -> list[str]:
        return ["small_positive" if positive else "near_miss_negative" for positive in self.positive.tolist()]

    def records(self) -> Iterator[dict[str, Any]]:
        """Every probe as a line of a probe file."""
        columns = zip(
            self.ids, self.image_ids, self.labels, self.kinds, self.number.tolist(), (self.regions / SIDE).tolist(),
            strict=True,
        )  # fmt: skip
        for name, image, label, kind, number, box in columns:
            source = f"word{number}"
            target = source if label == "yes" else f"{source}x"
            yield {
                "id": name,
                "image": f"{image}.jpg",
                "image_id": image,
                "question": f'Does the image contain the exact text "{target}"? Answer yes or no.',
                "label": label,
                "target_text": target,
                "source_text": source,
                "regions": [box],
                "kind": kind,
            }


def kept_cells(selector: str, keep: float, questions: Questions, rng: np.random.Generator) -> NDArray[np.bool_]:
    """(P, N) a caricature of each selector, vectorised over a shard's probes."""
    count, k = len(questions.number), max(1, round(keep * CELLS))
    kept = np.zeros((count, CELLS), dtype=bool)
    if selector == "full":
        return ~kept
    if selector == "grid":
        kept[:, np.linspace(0, CELLS - 1, k).round().astype(int)] = True
        return kept
    score = rng.random((count, CELLS), dtype=np.float32)
    if selector == "target":
        y, x = np.divmod(np.arange(CELLS, dtype=np.float32), SIDE)
        left, top, right, bottom = (edge[:, None].astype(np.float32) for edge in questions.regions.T)
        lost = (rng.random(count) < 0.3)[:, None]  # the method looks elsewhere
        far = np.abs(x + 0.5 - (left + right) / 2) + np.abs(y + 0.5 - (top + bottom) / 2)
        score += np.where(lost, 0.0, far / SIDE).astype(np.float32)
    np.put_along_axis(kept, np.argpartition(score, k, axis=1)[:, :k], True, axis=1)
    return kept


def row_table(arm: str, questions: Questions) -> pa.Table:
    """The rows of one arm over a shard."""
    selector, _, budget = arm.partition(":")
    keep, count = float(budget or 1.0), len(questions.number)
    rng = np.random.default_rng((questions.plan.seed, questions.shard, 2, questions.plan.arms.index(arm)))
    kept = kept_cells(selector, keep, questions, rng)
    inside = (kept & questions.evidence).sum(axis=1)
    ecr = inside / questions.evidence.sum(axis=1)
    k = kept.sum(axis=1)
    lpp = (inside > 0).astype(float)  # regions are whole cells: what touches evidence is evidence
    f1 = np.divide(2 * ecr * lpp, ecr + lpp, out=np.zeros(count), where=ecr + lpp > 0)
    noise = 0.0 if selector == "full" else rng.normal(0.0, 0.25, count)
    margin = np.where(questions.positive, 1.0, -0.8) * (0.35 + 0.75 * ecr) + questions.bias + noise
    yes = margin >= 0
    left, top, right, bottom = questions.regions.T
    centre = (top + bottom) // 2 * SIDE + (left + right) // 2
    method = SELECTORS.get(selector)
    reads = bool(object.__new__(method).reads_boxes)  # a default is a class attribute: no method has to be made
    values: dict[str, Any] = {
        "arm": arm,
        "plain_arm": arm,
        "selector": selector,
        "role": method.role,
        "regime": arm_regime(method.role, reads, detected=False),
        "arguments": "{}",
        "budget": budget or "1.0",
        "keep_requested": keep,
        "keep": k / CELLS,
        "policy": "none",
        "levels": budget or "1.0",
        "keep_spent": k / CELLS,
        "n_tokens": CELLS,
        "k_tokens": k,
        "keep_layer_mean": k / CELLS,
        "box_source": "annotation" if reads else NO_BOXES,
        "intervention": "none",
        "probe_id": questions.ids,
        "image_id": questions.image_ids,
        "image_key": [f"{name}.jpg" for name in questions.image_ids],
        "view": "orig",
        "label": questions.labels,
        "kind": questions.kinds,
        "loss_yes": 1.0 - margin / 2,
        "loss_no": 1.0 + margin / 2,
        "margin": margin,
        "greedy_yes": margin > 0.2,
        "greedy_no": margin < -0.2,
        "predicted": np.where(yes, "yes", "no"),
        "correct": yes == questions.positive,
        "n_regions": 1,
        "visible": 1.0,
        **dict.fromkeys(("ecr", "anchor_ecr", "patch_recall", "worst_region"), ecr),
        "center_recall": kept[np.arange(count), centre].astype(float),
        **dict.fromkeys(("lpp", "anchor_lpp"), lpp),
        **dict.fromkeys(("geo_f1", "anchor_geo_f1"), f1),
        "all_half": ecr >= 0.5,
        "legibility": 24.0 * np.sqrt(ecr),
        "kept_mask": [row.tobytes() for row in np.packbits(kept, axis=1)],
        "sequence_full": CELLS + 40,
        "sequence_pruned": k + 40,
        **{name: _times(rng, scale, count) for name, scale in _scales(selector, keep).items()},
        **MODEL,
        **SETTINGS,
        "versions": json.dumps(VERSIONS),
        "conditions": "{}",
    }
    schema = row_schema(YesNo.columns)
    return pa.Table.from_arrays([_column(values.get(field.name), field.type, count) for field in schema], schema=schema)


def _scales(selector: str, keep: float) -> dict[str, float]:
    """Mean milliseconds by column."""
    selecting = 0.0 if selector == "full" else 0.8
    return {"preprocess_ms": 3.0, "vision_ms": 12.0, "signal_ms": 0.0, "select_ms": selecting, "materialise_ms": 0.2,
            "language_ms": 4.0 + 20.0 * keep}  # fmt: skip


def _times(rng: np.random.Generator, scale: float, count: int) -> NDArray[np.float32]:
    return (scale * rng.uniform(0.9, 1.1, count)).astype(np.float32)


def _column(values: Any, kind: pa.DataType, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, kind)
    if isinstance(values, str | int | float):
        return pa.repeat(pa.scalar(values, kind), count)
    return pa.array(values).cast(kind) if isinstance(values, np.ndarray) else pa.array(values, kind)


def image_table(questions: Questions) -> pa.Table:
    """The image records of a shard."""
    names = [f"img{image:07d}" for image in dict.fromkeys(questions.image.tolist())]
    y, x = np.divmod(np.arange(CELLS), SIDE)
    cells = np.stack([x, y, x + 1, y + 1], axis=1).astype("<f4") / SIDE
    values: dict[str, Any] = {
        "image_key": [f"{name}.jpg" for name in names],
        "image": [f"{name}.jpg" for name in names],
        "image_id": names,
        "digest": [hashlib.sha256(name.encode()).hexdigest() for name in names],
        "width": SIZE[0],
        "height": SIZE[1],
        "layout": json.dumps([[SIDE, SIDE]]),
        "cells": [cells.tobytes()] * len(names),
        "preview": [_preview(int(name[3:])) for name in names],
    }
    schema = image_schema()
    columns = [_column(values.get(field.name), field.type, len(names)) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _preview(number: int) -> bytes:
    """A small JPEG in one of a few colours."""
    colour = number % len(_PREVIEWS)
    if not _PREVIEWS[colour]:
        sink = io.BytesIO()
        Image.new("RGB", (64, 48), (100 + 20 * colour, 160, 220 - 20 * colour)).save(sink, "JPEG")
        _PREVIEWS[colour] = sink.getvalue()
    return _PREVIEWS[colour]


_PREVIEWS = [b""] * 7


def probes_digest_of(plan: Plan) -> str:
    """As ``sightline.probes.probe_file`` computes it, one shard at a time."""
    digest = hashlib.sha256()
    for shard in range(plan.shards):
        for record in Questions(plan, shard).records():
            digest.update(json.dumps(record, sort_keys=True, separators=(",", ":")).encode() + b"\n")
    return f"sha256:{digest.hexdigest()}"


def write_large_run(path: Path, plan: Plan) -> Path:
    """Writes the run folder, a shard at a time, and returns its path."""
    folder, digest = RunFolder(path), probes_digest_of(plan)
    facts = {
        **MODEL, **SETTINGS, "versions": VERSIONS, "probe_digest": digest, "box_source": "annotation",
        "scorer": "yes_no", "image_options": {}, "limit": None, "execution": "eager", "batch_images": 1,
        "seed": plan.seed, "images": "images", "skip_bad_images": False,
        "shard_images": plan.images_per_shard, "shards": plan.shards, "created": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    folder.open(facts, list(plan.arms), b"")
    with open(path / PROBES, "w", encoding="utf-8") as probes:
        header = {"sightline_probes": 1, "digest": digest, "construction": {}, "source": {}}
        probes.write(json.dumps(header) + "\n")
        for shard in range(plan.shards):
            questions = Questions(plan, shard)
            probes.writelines(json.dumps(record) + "\n" for record in questions.records())
            folder.write_image_table(shard, "orig", image_table(questions))
            for arm in plan.arms:
                folder.write_row_table(arm, shard, row_table(arm, questions))
    stored = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    (path / MANIFEST).write_bytes(manifest_bytes({**stored, OF_PROBES: [file_checksum(path / PROBES)]}))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="Rows, over all arms.")
    parser.add_argument("--out", type=Path, required=True, help="Run folder to write.")
    parser.add_argument("--probes-per-image", type=int, default=10)
    parser.add_argument("--images-per-shard", type=int, default=64)
    asked = parser.parse_args()
    plan = Plan(asked.rows, probes_per_image=asked.probes_per_image, images_per_shard=asked.images_per_shard)
    write_large_run(asked.out, plan)
    print(f"{plan.probes * len(plan.arms)} rows: {plan.probes} probes, {len(plan.arms)} arms, {plan.shards} shards")


if __name__ == "__main__":
    main()
