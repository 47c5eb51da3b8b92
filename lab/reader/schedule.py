"""When training does what: the learning rate over 0..1, and a clock that spreads this over the time there is."""

from __future__ import annotations

import math
import time

VISION_SHARE = 0.3
"""Part of the schedule spent on the vision tower alone."""
HOLD_SHARE = 0.25
"""Part of the joint stage at the full learning rate, before the cosine."""
OPEN_HOLD_SHARE = 0.35
"""The same for a leg on open questions, which has no vision stage before it."""
WARM_UP = 200
REWARM = 50


def learning_rate(
    progress: float, stage_step: int, peak: float, vision: float = VISION_SHARE, hold: float = HOLD_SHARE
) -> float:
    """Warm-up over ``WARM_UP`` steps of each stage; constant; then cosine to one hundredth over the joint stage."""
    joint = max(0.0, (progress - vision) / (1 - vision))
    falling = max(0.0, (joint - hold) / (1 - hold))
    shape = 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, falling)))
    return peak * shape * min(1.0, (stage_step + 1) / WARM_UP)


class Clock:
    """Spreads the schedule over the time that is left. Time that ``pause`` marks (compilation) does not count."""

    def __init__(self, start: float, end: float, deadline: float) -> None:
        self.progress, self.end, self.deadline = start, end, deadline
        self.last = time.monotonic()

    def tick(self, *, pause: bool = False) -> None:
        now = time.monotonic()
        spent, left = now - self.last, max(1e-3, self.deadline - self.last)
        if not pause:
            self.progress += (self.end - self.progress) * min(1.0, spent / left)
        self.last = now

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.deadline
