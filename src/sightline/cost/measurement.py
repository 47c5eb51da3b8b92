"""What a benchmark hands back: the samples of one arm at one batch size."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Measurement:
    """The samples of one arm at one batch size; a card calls it a point."""

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
