"""A clock that stands still unless a test moves it."""

from __future__ import annotations


class Clock:
    """Takes the place of ``time.perf_counter``: what passes on it is what the test says has passed."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
