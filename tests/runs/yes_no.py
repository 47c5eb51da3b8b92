"""A synthetic run folder with drawn words, real masks and plausible margins, written through RunFolder itself.

Nothing here runs a model: answers depend on how much evidence an arm kept, plus noise that is shared between arms, so
that paired differences, flips and unsupported answers all occur, as they do in an audit.
"""

import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from sightline.answering.scorers.yes_no import YesNo
from sightline.core.probe import Box, Probe
from sightline.core.row import Column
from sightline.core.selection import NO_BOXES, Budget, arm_regime
from sightline.geometry.coverage import RegionGeometry
from sightline.interventions import Intervention, split_arm
from sightline.selectors import SELECTORS
from sightline.store.folder import RunFolder
from sightline.store.shard_files import pack_mask

ARMS = ("full", "target:0.15", "target:0.3", "target:0.5", "random:0.3", "random:0.5", "grid:0.3", "visionzip:0.3")
EDITS = (
    "remove_evidence",
    *(f"{kind}={part}" for part in (0.25, 0.5, 1.0) for kind in ("restore_evidence", "restore_random")),
    "occlude_evidence",
    "occlude_random",
    "blank",
    "swap_positions",
)
PLAIN = ("full", "target:0.3", "random:0.3", "evidence_only:0.3", "anti_evidence:0.3")
EDITED = (
    *PLAIN,
    *(f"target:0.3+{edit}" for edit in EDITS),
    *(f"full+{edit}" for edit in ("occlude_evidence", "occlude_random", "blank")),
)
"""A run with every intervention that ``sightline run`` offers."""
HOSTILE = "</script><script>document.title='owned'</script>"
WORDS = ("invoice", "total", "EXPRESS", "closed", "Saturday", "parking", "receipt", "24h", "MUSEUM", "exit", "ticket")
ROWS, COLUMNS = 15, 20
GEOMETRY = (
    "ecr", "anchor_ecr", "center_recall", "patch_recall", "lpp", "geo_f1", "anchor_lpp", "anchor_geo_f1",
    "worst_region", "all_half",
)  # fmt: skip
SIZE = (640, 480)
MODEL = {
    "model": "reader-mini", "model_type": "sightline_reader", "weight_digest": "ab" * 32, "device": "cpu",
    "dtype": "float32", "attention": "sdpa", "profile": "paper",
}  # fmt: skip
"""What rows and manifest say of it."""

Edit = Callable[[dict[str, Any]], None]
"""What happens to a row before it is written."""


def changed(*, arm: str | None = None, probe: str = "", **columns: Any) -> Edit:
    """Other values in all rows, or in those of an arm, or of probes whose ids begin so."""

    def edit(row: dict[str, Any]) -> None:
        if row["probe_id"].startswith(probe) and arm in (None, row["arm"]):
            row |= columns

    return edit


NAN = float("nan")
WITHOUT_MARGIN = changed(margin=None, loss_yes=None, loss_no=None, greedy_yes=None, greedy_no=None)
ALL_WRONG = changed(score=0.0, correct=False)


def grid_cells(rows: int = ROWS, columns: int = COLUMNS) -> np.ndarray:
    """(rows * columns, 4) float32 cells of a raster over the whole image."""
    y, x = np.divmod(np.arange(rows * columns), columns)
    return np.stack([x / columns, y / rows, (x + 1) / columns, (y + 1) / rows], axis=1).astype("<f4")


def overlap(cells: np.ndarray, box: Box) -> np.ndarray:
    """(N,) area of each cell within the box."""
    left, top, right, bottom = cells.astype(np.float64).T
    width = np.minimum(right, box[2]) - np.maximum(left, box[0])
    height = np.minimum(bottom, box[3]) - np.maximum(top, box[1])
    return np.clip(width, 0, None) * np.clip(height, 0, None)


def draw_image(rng: np.random.Generator, source: str) -> tuple[bytes, Box]:
    """A JPEG with a few words on a tinted page, and the box of the word that the probes ask about."""
    tint = tuple(int(v) for v in rng.integers(170, 245, 3))
    image = Image.new("RGB", SIZE, tint)
    draw = ImageDraw.Draw(image)
    for _ in range(4):
        x, y = int(rng.integers(0, 540)), int(rng.integers(0, 380))
        shade = tuple(int(v) for v in rng.integers(90, 230, 3))
        draw.rectangle((x, y, x + int(rng.integers(60, 260)), y + int(rng.integers(40, 160))), fill=shade)
    for _ in range(7):
        font = ImageFont.load_default(size=int(rng.integers(16, 44)))
        where = (int(rng.integers(0, 520)), int(rng.integers(0, 440)))
        draw.text(where, str(rng.choice(WORDS)), fill=(30, 34, 48), font=font)
    font = ImageFont.load_default(size=int(rng.integers(14, 20)))
    x, y = int(rng.integers(20, 480)), int(rng.integers(20, 420))
    left, top, right, bottom = draw.textbbox((x, y), source[:14], font=font)
    draw.rectangle((left - 4, top - 3, right + 4, bottom + 3), fill=(250, 248, 240))
    draw.text((x, y), source[:14], fill=(10, 10, 10), font=font)
    sink = io.BytesIO()
    image.save(sink, "JPEG", quality=70)
    box = (left / SIZE[0], top / SIZE[1], min(1.0, right / SIZE[0]), bottom / SIZE[1])
    return sink.getvalue(), box


def _mask(
    name: str, k: int, cells: np.ndarray, box: Box, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray | None]:
    """(N,) bool: a caricature of each selector; of one that scores, the (N,) float32 scores whose top K it is."""
    n, scores = len(cells), None
    if name == "grid":
        chosen = np.linspace(0, n - 1, k).round().astype(int)
    elif name in ("evidence_only", "anti_evidence"):
        sign = -1.0 if name == "evidence_only" else 1.0
        chosen = np.argsort(sign * (overlap(cells, box) > 0) + 0.5 * rng.random(n), kind="stable")[:k]
    elif name in ("random", "visionzip", "full"):
        chosen = rng.permutation(n)[:k]
    else:
        centre = np.array([(box[0] + box[2]) / 2, (box[1] + box[3]) / 2])
        if rng.random() < 0.3:
            centre = rng.random(2)
        middle = (cells[:, :2] + cells[:, 2:]) / 2
        scores = (3.0 - np.abs(middle - centre).sum(axis=1) - 0.12 * rng.random(n)).astype("<f4")
        chosen = np.argsort(-scores, kind="stable")[:k]
    kept = np.zeros(n, dtype=bool)
    kept[chosen] = True
    return kept, scores


def edited_mask(kept: np.ndarray, cells: np.ndarray, box: Box, edit: Intervention) -> np.ndarray:
    """(N,) bool: the mask after a deletion or restoration; other edits leave it."""
    if not edit.on_mask:
        return kept
    touching = overlap(cells, box) > 0
    removed, left = np.flatnonzero(kept & touching), kept & ~touching
    share = getattr(edit, "share", None)
    if share is not None and len(removed):
        others = np.flatnonzero(~kept & ~touching)
        back = removed if edit.name == "restore_evidence" else others
        left[back[: max(1, round(share * len(removed)))]] = True
    return left


def make_probes(images: int, rng: np.random.Generator) -> tuple[list[Probe], dict[str, bytes]]:
    """A positive and a near-miss negative per image, one of them with a hostile string, and the JPEG of each image."""
    probes, jpegs = [], {}
    for i in range(images):
        source = HOSTILE if i == 1 else f"{WORDS[i % len(WORDS)]}{i}"
        jpeg, box = draw_image(rng, source)
        jpegs[f"img{i:04d}"] = jpeg
        for label, target in (("yes", source), ("no", source[:-1] + "x")):
            probes.append(
                Probe(
                    id=f"img{i:04d}:{label}", image=f"img{i:04d}.jpg", image_id=f"img{i:04d}",
                    question=f'Does the image contain the exact text "{target}"? Answer yes or no.',
                    label=label,  # type: ignore[arg-type]
                    target_text=target, source_text=source, regions=(box,),
                    kind="small_positive" if label == "yes" else "near_miss_negative",
                )
            )  # fmt: skip
    return probes, jpegs


@cache
def geometry_of(regions: tuple[Box, ...]) -> RegionGeometry:
    """What masks of the raster have of some regions; every arm asks about the same ones."""
    return RegionGeometry(grid_cells(), regions)


def _row(arm: str, probe: Probe, kept: np.ndarray, lineage: np.ndarray | None, margin: float) -> dict[str, Any]:
    plain, _ = split_arm(arm)
    selector, _, budget = plain.partition(":")
    known = SELECTORS.get(selector) if selector in SELECTORS else None
    role = "method" if known is None else known.role
    # A field's default is a class attribute: what a method reads by default is known without making one.
    reads_boxes = known is not None and bool(object.__new__(known).reads_boxes)
    n, k = len(kept), int(kept.sum())
    measured = geometry_of(probe.regions).measure(kept if lineage is None else lineage, kept)
    height = SIZE[1] * (probe.regions[0][3] - probe.regions[0][1]) if probe.regions else 0.0
    geometry = {name: getattr(measured, name) for name in GEOMETRY} | {
        "visible": 1.0,
        "legibility": height * (0.5 * (measured.ecr + measured.anchor_ecr)) ** 0.5,
    }
    predicted = "yes" if margin >= 0 else "no"
    return {
        "arm": arm,
        "plain_arm": plain,
        "selector": selector,
        "role": role,
        "regime": arm_regime(role, reads_boxes, detected=False),
        "arguments": "{}",
        "budget": budget or "1.0",
        "keep_requested": 1.0 if selector == "full" else float(budget.split(",")[0]),
        "keep": k / n,
        "n_tokens": n,
        "k_tokens": k,
        "k_layers": None,
        "keep_layer_mean": k / n,
        "positions": "preserve",
        "box_source": "annotation" if reads_boxes else NO_BOXES,
        "intervention": "none",
        "probe_id": probe.id,
        "image_id": probe.image_id,
        "image_key": f"{probe.image}@orig",
        "view": "orig",
        "label": probe.label,
        "kind": probe.kind,
        "loss_yes": 1.0,
        "loss_no": 1.0 + margin,
        "margin": margin,
        "predicted": predicted,
        "correct": predicted == probe.label,
        "greedy_yes": margin > 0,
        "greedy_no": margin < 0,
        "n_regions": len(probe.regions),
        **(geometry if probe.regions else dict.fromkeys(geometry)),
        "kept_mask": pack_mask(kept),
        "lineage_mask": None if lineage is None else pack_mask(lineage),
        "sequence_full": n + 40,
        "sequence_pruned": k + 40,
        "preprocess_ms": 3.0,
        "vision_ms": 12.0,
        "signal_ms": 0.0,
        "select_ms": 0.0 if selector == "full" else 0.8,
        "materialise_ms": 0.2,
        "language_ms": 4.0 + 20.0 * k / n,
        **MODEL,
        "versions": json.dumps({"sightline": "0.1.0"}),
    }


def begin_run(
    path: Path,
    arms: Sequence[str],
    probes: Iterable[Mapping[str, Any]],
    jpegs: Mapping[str, bytes],
    facts: Mapping[str, Any],
    edit_image: Callable[[dict[str, Any]], None] = lambda record: None,
) -> RunFolder:
    """A run folder with its manifest, probes and image records, one per image and view, and no row yet."""
    folder = RunFolder(path)
    told = {
        **MODEL, "shards": 1, "shard_images": len(jpegs), "positions": "preserve", "box_source": "annotation",
        "versions": {"sightline": "0.1.0", "torch": "2.13.0"}, "created": "2026-07-29T12:00:00Z", "image_options": {},
    }  # fmt: skip
    lines = [json.dumps({"sightline_probes": 1}), *(json.dumps(each, ensure_ascii=False) for each in probes)]
    folder.open({**told, **facts}, list(arms), ("\n".join(lines) + "\n").encode())
    edits = [edit for edit in (split_arm(arm)[1] for arm in arms) if edit is not None]
    records = [
        {
            "image_key": f"{key}.jpg@{view}", "image": f"{key}.jpg", "image_id": key,
            "digest": sha256(jpeg).hexdigest(), "width": SIZE[0], "height": SIZE[1],
            "layout": json.dumps([[ROWS, COLUMNS]]), "cells": grid_cells().tobytes(), "preview": jpeg,
        }
        for view in dict.fromkeys(["orig", *(edit.view for edit in edits)])
        for key, jpeg in jpegs.items()
    ]  # fmt: skip
    for record in records:
        edit_image(record)
    folder.write_images(0, "orig", records)
    return folder


def make_run(
    path: Path,
    *,
    images: int = 20,
    arms: Sequence[str] = ARMS,
    seed: int = 5,
    shift: float = 0.0,
    probe_digest: str = "cd" * 32,
    labels: Sequence[str] = ("yes", "no"),
    regions: bool = True,
    manifest: Mapping[str, Any] = MappingProxyType({}),
    extra: Mapping[str, Any] = MappingProxyType({}),
    edit_row: Edit = lambda row: None,
    edit_image: Callable[[dict[str, Any]], None] = lambda record: None,
    scorer_columns: tuple[Column, ...] = YesNo.columns,
) -> Path:
    """Writes a run folder of ``images`` pairs and returns its path.

    Edited arms are written as on the command line: ``target:0.3+remove_evidence``. ``manifest`` and ``extra`` add to
    run.json and to every probe.

    ``shift`` moves margins, as a new model would; ``labels`` keeps one class alone; ``regions=False`` takes the
    evidence away after the answers are made; ``edit_row`` and ``edit_image`` may break any row and image record before
    it is written;
    ``scorer_columns`` are what rows hold of their answers.
    """
    rng = np.random.default_rng(seed)
    probes, jpegs = make_probes(images, rng)
    probes = [replace(probe, extra=dict(extra)) for probe in probes if probe.label in labels]
    written = probes if regions else [replace(probe, regions=()) for probe in probes]
    facts = {"weight_digest": ("ab" if shift == 0 else "ef") * 32, "probe_digest": probe_digest, "seed": seed}
    folder = begin_run(path, arms, map(asdict, written), jpegs, facts | dict(manifest), edit_image)
    cells = grid_cells()
    base = rng.normal(0.0, 0.7, len(probes))
    for arm in arms:
        plain, edit = split_arm(arm)
        # An edited arm draws what its plain arm drew, so that their rows pair.
        noise = np.random.default_rng((seed, list(arms).index(plain)))
        rows = []
        for probe, bias in zip(probes, base, strict=True):
            name, _, budget = plain.partition(":")
            k = Budget.ratio(float(budget.split(",")[0]) if budget else 1.0).resolve(len(cells))
            kept, scores = _mask(name, k, cells, probe.regions[0], noise)
            kept = kept if edit is None else edited_mask(kept, cells, probe.regions[0], edit)
            lineage = np.ones(len(cells), dtype=bool) if name == "visionzip" else None
            parts = overlap(cells, probe.regions[0])
            covered = float(parts[kept].sum() / parts.sum())
            if edit is not None and edit.name in ("occlude_evidence", "blank"):
                covered = 0.0
            evidence = (1.0 if probe.label == "yes" else -0.8) * (0.35 + 0.75 * covered)
            margin = evidence + bias + shift + (0.0 if name == "full" else float(noise.normal(0, 0.25)))
            asked = probe if regions else replace(probe, regions=())
            row = _row(arm, asked, kept, lineage, margin)
            if edit is None and scores is not None:
                row |= {"scores": scores.tobytes(), "scores_rule": "top"}
            if edit is not None:
                row |= {"intervention": str(edit), "view": edit.view, "image_key": f"{probe.image}@{edit.view}"}
                row["positions"] = edit.positions("preserve")
            edit_row(row)
            rows.append(row)
        folder.write_rows(arm, 0, rows, scorer_columns)
    return path


def says_no(row: dict[str, Any]) -> None:
    """A model that says no to everything, whatever it is shown, with margins that know nothing of the label."""
    margin = -1.0 - sum(map(ord, row["image_id"])) % 7
    row |= {"margin": margin, "loss_no": 1.0, "loss_yes": 1.0 - margin, "predicted": "no"}
    row["correct"] = row["label"] == "no"
