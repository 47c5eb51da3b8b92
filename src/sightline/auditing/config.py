"""Everything a run is determined by. A YAML file first, flags on top; an unknown key is an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sightline.arms.arm import ARTIFACT_SEED
from sightline.errors import SightlineError


def _more_on_a_gpu(cpu: int, gpu: int) -> Callable[[dict[str, Any]], int]:
    """A default that depends on the device: a GPU wants longer stretches of work."""

    def default(options: dict[str, Any]) -> int:
        import torch

        device = options.get("device", "auto")
        return gpu if device.startswith("cuda") or (device == "auto" and torch.cuda.is_available()) else cpu

    return default


class AuditConfig(BaseModel):
    """The arguments of ``sightline run`` and ``sightline.audit``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(description="Checkpoint folder or hub id.")
    probes: Path = Field(description="Probe file (Sightline's layout or the artifact's).")
    images: Path = Field(description="Folder that image names are relative to.")
    out: Path = Field(description="Run folder: created, resumed or amended.")
    arms: list[str] = Field(description="Selector, budget and arguments: full, target:0.3, scope:0.4:alpha=0.")
    profile: Literal["paper", "artifact"] = Field(
        "paper",
        description="paper: as the paper defines it, done correctly; artifact: as its published numbers were made.",
    )
    seed: int = Field(
        default_factory=lambda options: ARTIFACT_SEED if options.get("profile") == "artifact" else 17,
        description="Seed of every drawn selection unless an arm names its own: 17, or the artifact's 13.",
    )
    positions: Literal["auto", "preserve", "compact"] = Field(
        "auto", description="Logical positions of kept tokens; auto is the paper's policy for the architecture."
    )
    box_source: str = Field("annotation", description="Where selector-visible boxes come from.")
    interventions: list[str] = Field(
        default_factory=list, description="deletion, occlusion, blank, positions: edited arms added to those named."
    )
    matched_controls: bool = Field(
        True,
        description="Random and Grid at the budget of every arm that claims coverage, added where they are missing.",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    device: str = "auto"
    attention: Literal["sdpa", "eager"] = "sdpa"
    execution: Literal["eager", "compiled", "graph"] = Field(
        "eager", description="How the language layers run: one kernel at a time, compiled, or replayed as a graph."
    )
    image_prefix: str = Field("", description="Leading part of image names in the probe file to strip.")
    clip: str | None = Field(None, description="CLIP checkpoint for selectors that compare with CLIP embeddings.")
    min_pixels: int | None = None
    max_pixels: int | None = None
    min_tiles: int | None = None
    max_tiles: int | None = None
    shard_images: int = Field(
        default_factory=_more_on_a_gpu(8, 64),
        ge=1,
        description="Images per shard: the unit of writing and resuming.",
    )
    batch_tokens: int = Field(
        default_factory=_more_on_a_gpu(16384, 32768),
        ge=1,
        description="Language-model tokens per forward; halved when memory runs out.",
    )
    batch_images: int = Field(
        1, ge=1, description="Images per vision call; with one, no picture's tokens depend on its neighbours at all."
    )
    limit: int | None = Field(None, ge=1, description="Audit only the first so many images.")


def read_config(path: Path | None, overrides: dict[str, Any]) -> AuditConfig:
    """A YAML file's values, replaced by every override that is not None (or an empty list)."""
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        except OSError as error:
            raise SightlineError(f"cannot read config {path}: {error.strerror}") from None
        except yaml.YAMLError as error:
            raise SightlineError(f"{path} is not valid YAML: {str(error).splitlines()[0]}") from None
        if not isinstance(values, dict):
            raise SightlineError(f"{path} must hold a mapping of options")
    values.update({key: value for key, value in overrides.items() if value is not None and value != []})
    try:
        return AuditConfig(**values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        flag = f"--{where.replace('_', '-')}"
        if first["type"] == "missing":
            raise SightlineError(f"{flag} is needed (or '{where}:' in the config file)") from None
        if first["type"] == "extra_forbidden":
            raise SightlineError(
                f"unknown option '{where}' in {path}; known: {', '.join(AuditConfig.model_fields)}"
            ) from None
        raise SightlineError(f"{flag}: {first['msg']}") from None
