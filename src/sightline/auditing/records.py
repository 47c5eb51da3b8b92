"""What is written of a probe under an arm: a row, with the contract that says how it was made."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sightline.answering.answerer import Answered
from sightline.arms.arm import Arm
from sightline.auditing.config import AuditConfig
from sightline.auditing.loop import ShardWork
from sightline.auditing.shards import image_key
from sightline.backbones import Backbone, ImageOptions, options_for
from sightline.backbones.base import description_digests, subfolder_digests
from sightline.backbones.loading import backbone_class, choose_device, choose_dtype, model_type
from sightline.core.prefix import Encoded
from sightline.core.probe import ORIGINAL, Probe
from sightline.core.selection import NO_BOXES, arm_regime
from sightline.geometry.coverage import Geometry
from sightline.store.marks import pack_mask
from sightline.version import __version__

# One row per probe and arm, one record per image: plain dictionaries in the shape of ``sightline.core.row``.

GEOMETRY = (
    "visible", "ecr", "anchor_ecr", "center_recall", "patch_recall", "lpp", "geo_f1", "anchor_lpp", "anchor_geo_f1",
    "worst_region", "all_half", "legibility",
)  # fmt: skip
NO_POLICY = "none"
"""The policy of an arm whose budget is the same for all samples."""
CONTRACT = (
    "positions",
    "profile",
    "model",
    "model_type",
    "weight_digest",
    "device",
    "dtype",
    "attention",
)
"""What every row repeats of how the run was made."""


def row_records(
    arm: Arm,
    work: ShardWork,
    answers: Sequence[Answered],
    contract: Mapping[str, Any],
    boxes_ms: Mapping[str, float] | None,
) -> list[dict[str, Any]]:
    """The rows of one arm over a shard.

    ``boxes_ms`` is what a text detector took per image, for an arm whose selector reads its boxes.
    """
    rows = []
    each = zip(work.shard.probes, work.encoded, work.geometries, answers, strict=True)
    for probe, image, regions, answered in each:
        trace = answered.trace
        geometry = regions.measure(trace.lineage, trace.anchors, trace.shares) if regions is not None else None
        detection = None if boxes_ms is None else boxes_ms.get(probe.image)
        row = _row(arm, probe, image, answered, geometry, contract)
        rows.append({**row, **boxes_read(arm, contract, detected=boxes_ms is not None), "boxes_ms": detection})
    return rows


def _row(
    arm: Arm,
    probe: Probe,
    image: Encoded,
    answered: Answered,
    geometry: Geometry | None,
    contract: Mapping[str, Any],
) -> dict[str, Any]:
    trace = answered.trace
    layers = trace.k_layers
    halved = answered.halved or image.halved
    return {
        "arm": arm.text,
        "plain_arm": arm.plain,
        "selector": arm.selector.name,
        "role": arm.selector.role,
        "arguments": arm.arguments,
        **_budget(arm, image, answered),
        "keep": trace.k / image.full_n,
        "n_tokens": image.full_n,
        "k_tokens": trace.k,
        "k_layers": layers,
        "keep_layer_mean": float(np.mean(layers)) / image.full_n if layers else trace.k / image.full_n,
        "intervention": _intervention(arm, probe),
        "probe_id": probe.id,
        "image_id": probe.image_id,
        "image_key": image_key(probe, arm.image_budget),
        "view": probe.view,
        "label": probe.label,
        "kind": probe.kind,
        **answered.values,
        "query_found": answered.query_found,
        "n_regions": len(probe.regions),
        # Null, not zero, for a probe without regions: nothing was measured.
        **{name: None if geometry is None else getattr(geometry, name) for name in GEOMETRY},
        "kept_mask": pack_mask(trace.anchors),
        "lineage_mask": pack_mask(trace.lineage) if trace.merges else None,
        **_scores(arm, trace.scores),
        "sequence_full": trace.sequence_full,
        "sequence_pruned": trace.sequence_pruned,
        "preprocess_ms": image.preprocess_ms,
        "vision_ms": image.vision_ms,
        "signal_ms": trace.signal_ms,
        "select_ms": trace.select_ms,
        "materialise_ms": trace.materialise_ms,
        "language_ms": answered.language_ms,
        **{name: contract[name] for name in CONTRACT},
        "positions": arm.positions(contract["positions"]),
        "versions": json.dumps(contract["versions"]),
        "conditions": json.dumps({**contract["conditions"], **({"halved": True} if halved else {})}),
    }


def _scores(arm: Arm, scores: np.ndarray | None) -> dict[str, Any]:
    """As few bytes as hold every score exactly: a replay at another budget must not meet new ties."""
    if scores is None:
        return {"scores": None, "scores_rule": None}
    short = scores.astype("<f4")
    exact = bool((short == scores).all())
    rule = "top" if getattr(arm.selector, "plain_top", False) else "other"
    return {"scores": (short if exact else scores.astype("<f8")).tobytes(), "scores_rule": rule}


def _budget(arm: Arm, image: Encoded, answered: Answered) -> dict[str, Any]:
    """What was asked for, and what was spent: of a policy all of its passes, else the one."""
    k, spent = answered.trace.k, answered.spent
    replayed = arm.selector.role == "replay"
    budget = repr(k / image.n) if replayed else arm.requested
    final = arm.budget if spent is None else spent.levels[-1]
    return {
        "budget": budget,
        "keep_requested": None if replayed else final.keep,
        "policy": NO_POLICY if arm.policy is None else arm.policy.name,
        "levels": budget if spent is None else "/".join(map(str, spent.levels)),
        "keep_spent": (k if spent is None else sum(spent.kept)) / image.full_n,
        "decided_on": None if spent is None else spent.decided_on,
    }


def boxes_read(arm: Arm, contract: Mapping[str, Any], detected: bool) -> dict[str, str]:
    """What the arm was shown, and which regime that makes it."""
    selector = arm.selector
    source = NO_BOXES if selector.reads_boxes is False else contract["box_source"]
    return {"box_source": source, "regime": arm_regime(selector.role, selector.reads_boxes, detected)}


def _intervention(arm: Arm, probe: Probe) -> str:
    """The arm's own; for a probe that is about a control image already, that image's name."""
    if arm.intervention is not None:
        return str(arm.intervention)
    return "none" if probe.view == ORIGINAL else probe.view


def image_records(work: ShardWork) -> list[dict[str, Any]]:
    """One record per distinct image of a shard."""
    prepared, records = work.prepared, []
    for probe, pixels, seen in zip(prepared.shard.images, prepared.pixels, prepared.seen or (), strict=True):
        encoded = work.images[image_key(probe)]
        records.append(
            {
                "image_key": image_key(probe, prepared.shard.image_budget),
                "image": probe.image,
                "image_id": probe.image_id,
                "digest": seen.digest,
                "pixels": seen.pixels,
                "width": pixels.size[0],
                "height": pixels.size[1],
                "layout": json.dumps(encoded.layout),
                "cells": encoded.cells.astype("<f4").tobytes(),
                "preview": seen.preview,
                "details": [detail.jpeg for detail in seen.details],
                "detail_boxes": [list(detail.box) for detail in seen.details],
            }
        )
    return records


# The reporting contract: what a run is determined by, for its manifest and for every row.


def computed_by(device: torch.device) -> dict[str, Any]:
    """What decides the last bits of rows beside the model and the options: device and versions."""
    import transformers

    on_gpu = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if on_gpu else f"cpu ({platform.machine()})",
        # Of a CPU, which of its instructions PyTorch adds up sums with.
        **({} if on_gpu else {"instructions": torch.backends.cpu.get_cpu_capability()}),
        "versions": {
            "sightline": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
    }


def conditions(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What of a run's settings decides the last bits of a row and has no column of its own."""
    found = {name: settings.get(name) for name in ("batch_tokens", "batch_images", "threads", "instructions")}
    files = {**settings["checkpoint_files"], **settings["checkpoint_subfolders"]}
    found["checkpoint"] = sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:8]
    return {name: value for name, value in found.items() if value is not None}


def reporting_contract(config: AuditConfig, backbone: Backbone, digest: str) -> dict[str, Any]:
    """What every row carries about how it was made."""
    return {
        "model": model_name(config),
        "model_type": str(backbone.model.config.model_type),
        "weight_digest": digest,
        "scorer": config.scorer,
        "positions": backbone.paper_positions if config.positions == "auto" else config.positions,
        "box_source": config.box_source,
        "profile": config.profile,
        "dtype": str(backbone.language.dtype).removeprefix("torch."),
        "attention": config.attention,
        **computed_by(backbone.language.device),
    }


def model_name(config: AuditConfig) -> str:
    """Folder name or hub id, never a local path; a hub's revision is recorded beside it."""
    name = config.model if Path(config.model).is_dir() else config.model.partition("@")[0]
    return name.rstrip("/").split("/")[-1] if "/" in name else name


def settings_before_loading(config: AuditConfig, source: Path, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """What a run folder has to agree with, as far as it can be told before any weights are read."""
    kind = model_type(source)
    contract: dict[str, Any] = {
        "model": model_name(config),
        "model_type": kind,
        "scorer": config.scorer,
        "positions": backbone_class(kind).paper_positions if config.positions == "auto" else config.positions,
        "box_source": config.box_source,
        "profile": config.profile,
        "dtype": str(choose_dtype(config.dtype, source)).removeprefix("torch."),
        "attention": config.attention,
        "checkpoint_files": description_digests(source),
        "checkpoint_subfolders": subfolder_digests(source),
    }
    if config.launcher != "ray":  # whose workers run on machines of which this process knows nothing
        contract |= computed_by(choose_device(config.device))
    if config.threads is not None and choose_device(config.device).type == "cpu":
        contract["threads"] = config.threads
    options = options_for(source, config.profile, config.image_options)
    return manifest_settings(config, contract, options, recorded)


def manifest_settings(
    config: AuditConfig, contract: Mapping[str, Any], options: ImageOptions, recorded: Mapping[str, Any]
) -> dict[str, Any]:
    """The contract with the settings that rows do not repeat; what an earlier manifest says in other words stays."""
    return {
        **contract,
        "shard_images": config.shard_images,
        "shard_probes": config.shard_probes,
        "limit": config.limit,
        "execution": config.execution,
        "batch_images": config.batch_images,
        "batch_tokens": config.batch_tokens,
        "longest_answer": config.longest_answer,
        "image_options": options.as_dict(),
        "keep_scores": config.keep_scores,
        "seed": config.seed,
        "images": str(config.images),
        "skip_bad_images": config.skip_bad_images,
    }
