"""A clock that stands still unless a test moves it."""

from __future__ import annotations

import threading


class Clock(threading.local):
    """Takes the place of ``time.perf_counter``: what passes on it is what the test says has passed.

    Every thread has its own: what a test lets pass on one does not end up in what another happens to be timing.
    """

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds
