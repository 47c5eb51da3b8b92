"""Seconds for the whole report of a generated run: 20 arms, 1000 probes, 10,000 draws.

python -m benchmarks.report
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from sightline.report.build import build_report
from tests.runs.yes_no import make_run

ARMS = [
    "full",
    *(f"{s}:{b}" for s in ("target", "random", "grid") for b in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)),
    "visionzip:0.3",
]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder) / "run", images=500, arms=ARMS)
        started = time.perf_counter()
        page = build_report([run], Path(folder) / "report")
        seconds = time.perf_counter() - started
        print(f"{len(ARMS)} arms x 1000 probes: {seconds:.1f} s, {page.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
