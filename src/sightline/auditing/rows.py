"""One row per probe and arm, one record per picture: plain dictionaries in the shape of ``store.schema``."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from sightline.arms.arm import Arm
from sightline.auditing.shards import Shard, image_key
from sightline.backbones.pixels import Pixels
from sightline.core.prefix import Encoded
from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.geometry.coverage import Geometry, RegionGeometry
from sightline.probes.image_name import resolve_image
from sightline.probes.images import image_digest, open_image
from sightline.store.load import pack_mask

if TYPE_CHECKING:
    from sightline.answering.launching import Scored

PREVIEW_SIDE = 640
PREVIEW_QUALITY = 60


def row_records(
    arm: Arm,
    probes: Sequence[Probe],
    encoded: Sequence[Encoded],
    geometries: Sequence[RegionGeometry | None],
    scored: Sequence[Scored],
    facts: dict[str, Any],
    boxes_ms: Mapping[str, float] | None = None,
) -> list[dict[str, Any]]:
    """The rows of one arm over a shard; ``facts`` is the reporting contract that every row carries.

    ``boxes_ms`` is what a text detector took per image, for an arm whose selector reads its boxes.
    """
    rows = []
    for probe, picture, regions, result in zip(probes, encoded, geometries, scored, strict=True):
        if not (math.isfinite(result.answer.loss_yes) and math.isfinite(result.answer.loss_no)):
            raise SightlineError(
                f"the model gave a loss that is not a number for probe {probe.id}, arm {arm.text}; "
                "try --dtype float32 (finished shards are kept)"
            )
        geometry = regions.measure(result.lineage, result.anchors) if regions is not None else None
        detection = None if boxes_ms is None else boxes_ms.get(probe.image)
        rows.append({**_row(arm, probe, picture, result, geometry, facts), "boxes_ms": detection})
    return rows


def _row(
    arm: Arm, probe: Probe, picture: Encoded, scored: Scored, geometry: Geometry | None, facts: dict[str, Any]
) -> dict[str, Any]:
    answer = scored.answer
    margin = answer.loss_no - answer.loss_yes
    predicted = "yes" if margin >= 0.0 else "no"
    layers = scored.k_layers
    return {
        "arm": arm.text,
        "plain_arm": arm.plain,
        "selector": arm.selector.name,
        "arguments": arm.arguments,
        "budget": str(arm.budget),
        "keep_requested": None if arm.selector.name == "masks" else arm.budget.keep,
        "keep": scored.k / picture.n,
        "n_tokens": picture.n,
        "k_tokens": scored.k,
        "k_layers": layers,
        "keep_layer_mean": float(np.mean(layers)) / picture.n if layers else scored.k / picture.n,
        "intervention": _intervention(arm, probe),
        "probe_id": probe.id,
        "image_id": probe.image_id,
        "image_key": image_key(probe),
        "view": probe.view,
        "label": probe.label,
        "kind": probe.kind,
        "loss_yes": answer.loss_yes,
        "loss_no": answer.loss_no,
        "margin": margin,
        "predicted": predicted,
        "correct": predicted == probe.label,
        "greedy_yes": answer.greedy_yes,
        "greedy_no": answer.greedy_no,
        "n_regions": len(probe.regions),
        **_geometry_fields(geometry),
        "kept_mask": pack_mask(scored.anchors),
        "lineage_mask": pack_mask(scored.lineage) if scored.merges else None,
        "sequence_full": scored.sequence_full,
        "sequence_pruned": scored.sequence_pruned,
        "preprocess_ms": picture.preprocess_ms,
        "vision_ms": picture.vision_ms,
        "signal_ms": scored.signal_ms,
        "select_ms": scored.select_ms,
        "materialise_ms": scored.materialise_ms,
        "language_ms": scored.language_ms,
        **{name: facts[name] for name in ("positions", "box_source", "profile", "model", "model_type")},
        **{name: facts[name] for name in ("weight_digest", "device", "dtype", "attention")},
        "versions": json.dumps(facts["versions"]),
    }


def _intervention(arm: Arm, probe: Probe) -> str:
    """The arm's own; for a probe that is about a control image already, that image's name."""
    if arm.intervention is not None:
        return str(arm.intervention)
    return "none" if probe.view == "orig" else probe.view


def _geometry_fields(geometry: Geometry | None) -> dict[str, Any]:
    """Null, not zero, for a probe without regions: nothing was measured."""
    names = ("ecr", "anchor_ecr", "center_recall", "patch_recall", "lpp", "geo_f1", "worst_region", "all_half")
    return {name: None if geometry is None else getattr(geometry, name) for name in names}


def image_records(
    root: Path, shard: Shard, pictures: Mapping[str, Encoded], pixels: Sequence[Pixels]
) -> list[dict[str, Any]]:
    """One record per distinct picture of a shard."""
    records = []
    for probe, item in zip(shard.pictures, pixels, strict=True):
        encoded = pictures[image_key(probe)]
        records.append(
            {
                "image_key": image_key(probe),
                "image": probe.image,
                "image_id": probe.image_id,
                "digest": image_digest(resolve_image(root, probe.image)),
                "width": item.size[0],
                "height": item.size[1],
                "layout": json.dumps(encoded.layout),
                "cells": encoded.cells.astype("<f4").tobytes(),
                "preview": preview(open_image(root, probe.image, occlude=probe.occlude)),
            }
        )
    return records


def preview(image: Image.Image) -> bytes:
    """A JPEG small enough to inline in a report and large enough to read a word in."""
    image.thumbnail((PREVIEW_SIDE, PREVIEW_SIDE))
    buffer = io.BytesIO()
    image.save(buffer, format="JPEG", quality=PREVIEW_QUALITY, optimize=True)
    return buffer.getvalue()
