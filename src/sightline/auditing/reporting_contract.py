"""The reporting contract: what a run is determined by, for its manifest and for every row."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

import sightline
from sightline.auditing.config import AuditConfig
from sightline.backbones import Backbone, ImageOptions, options_for
from sightline.backbones.loading import (
    backbone_class,
    choose_device,
    choose_dtype,
    description_digests,
    model_type,
    subfolder_digests,
)


def computed_by(device: torch.device) -> dict[str, Any]:
    """What decides the last bits of rows beside the model and the options: device and versions."""
    import transformers

    on_gpu = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if on_gpu else f"cpu ({platform.machine()})",
        # Of a CPU, which of its instructions PyTorch adds up sums with.
        **({} if on_gpu else {"instructions": torch.backends.cpu.get_cpu_capability()}),
        "versions": {
            "sightline": sightline.__version__,
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
        "image_options": options.as_recorded(recorded.get("image_options", {})),
        "keep_scores": config.keep_scores,
        "seed": config.seed,
        "images": str(config.images),
        "skip_bad_images": config.skip_bad_images,
    }
