"""What to measure, as plain data that travels to the measuring process."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from sightline.errors import SightlineError

Kind = Literal["prefill", "ttft", "sweep"]

SWEEP_ARMS = (
    "full:1.0",
    "target:0.1",
    "target:0.2",
    "target:0.3",
    "target:0.4",
    "target:0.5",
    "grid:0.2",
    "grid:0.3",
    "grid:0.4",
    "random:0.2",
    "random:0.3",
    "random:0.4",
)


@dataclass(frozen=True)
class Request:
    """One measurement, made in a process of its own."""

    kind: Kind
    config: str = ""
    """Name of a shape with random weights; empty when ``checkpoint`` is given."""
    checkpoint: str = ""
    device: str = "auto"
    dtype: str = "auto"
    attention: str = "sdpa"
    execution: str = "eager"
    arms: tuple[str, ...] = ("full:1.0",)
    """Arms measured one after the other in this process; one unless a process is shared to save time."""
    batch: int = 1
    grow: bool = False
    """Doubles the batch from ``batch`` until memory runs out."""
    largest: int = 4096
    """Where growing stops even if memory does not run out."""
    positions: str = "auto"
    box_source: str = "annotation"
    picture: tuple[int, int] | None = None
    text_tokens: int = 45
    repeats: int = 10
    warm_up: int = 3
    decode: tuple[int, ...] = ()
    images: int = 100
    probes: int = 2
    batch_tokens: int = 32768
    batch_images: int = 16
    """Sweep: images per call of the vision tower."""
    shard_images: int = 64
    """Sweep: images whose probes are scored together, arm by arm."""
    one_sample_rows: int = 12
    """Rows of the sweep that the one-sample procedure is timed on; its rate does not depend on how many."""
    clip: str = ""
    profile: bool = False
    """Prefill and ttft: one more pass under the profiler, after the samples."""

    def __post_init__(self) -> None:
        if bool(self.config) == bool(self.checkpoint):
            raise SightlineError("name what to measure: either a config with random weights or a checkpoint")
        if self.batch_images < 1 or self.shard_images < 1:
            raise SightlineError("images per vision batch and per shard must be at least 1")
        if self.repeats < 1 or self.warm_up < 0 or self.batch < 1 or self.images < 1 or self.probes < 1:
            raise SightlineError("repeats, batch, images and probes must be at least 1, warm-up at least 0")

    def as_dict(self) -> dict[str, Any]:
        """As JSON would give it back."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Request:
        known = {f.name for f in fields(Request)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise SightlineError(f"unknown field {unknown[0]} in a measurement request")
        frozen: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        return Request(**frozen)


@dataclass
class Point:
    """The samples of one arm at one batch size."""

    arm: str
    batch: int
    visual_tokens: int
    kept_tokens: int
    length: int
    """Positions per sequence that the language layers read."""
    samples_ms: dict[str, list[float]]
    """Every sample of every stage, in the order taken."""
    flops: dict[str, float] = field(default_factory=dict)
    """Estimated, per batch, for stages that can be counted."""
    memory: dict[str, int] | None = None
    setup_ms: list[float] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
