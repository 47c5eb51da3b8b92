"""Wall time per probe and arm on the tiny checkpoints, beside what the artifact's own code needed for them.

python benchmarks/tiny_audit.py [--data tests/data]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from sightline.auditing.audit import audit
from sightline.auditing.config import AuditConfig

DATA = Path(__file__).parents[1] / "tests" / "data"
ARMS = [
    "full", "target:0.3", "random:0.3", "grid:0.3", "shuffled:0.3", "target_grid:0.3", "protected:0.4",
    "soft_evidence:0.3", "center:0.3", "prompt:0.3",
]  # fmt: skip
CASES = [
    ("llava", {}, "0.14-0.31 (full 0.47)"),
    ("internvl", {}, "0.44-0.54"),
    ("qwen3vl", {"min_pixels": 200704, "max_pixels": 200704}, "0.18-0.20"),
    ("qwen3vl", {"min_pixels": 802816, "max_pixels": 802816}, "2.4-2.9"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with tiny/, mini_textocr/ and golden_e2e/")
    parser.add_argument("--shared", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--images", type=int, default=24)
    options = parser.parse_args()
    if options.shared:
        print("--shared is called --data now", file=sys.stderr)
        options.data = options.shared
    torch.set_num_threads(1)
    table = Table(
        "model", "pixels", "rows", "seconds", "s per probe-arm", "artifact", title="one thread, float32, ten arms"
    )
    for model, limits, artifact in CASES:
        with tempfile.TemporaryDirectory() as folder:
            settings = {
                "model": str(options.data / "tiny" / model),
                "probes": options.data / "golden_e2e" / "inputs" / "probes_dev.jsonl",
                "images": options.data / "mini_textocr",
                "image_prefix": "mini_textocr",
                "out": Path(folder) / "run",
                "device": "cpu",
                "dtype": "float32",
                "matched_controls": False,
                **limits,
            }
            audit(AuditConfig(arms=["full"], limit=1, **{**settings, "out": Path(folder) / "warm"}))
            started = time.perf_counter()
            rows = audit(AuditConfig(arms=ARMS, limit=options.images, **settings)).rows.num_rows
            seconds = time.perf_counter() - started
        pixels = str(limits.get("max_pixels", "-"))
        table.add_row(model, pixels, str(rows), f"{seconds:.1f}", f"{seconds / rows:.4f}", artifact)
    Console().print(table)


if __name__ == "__main__":
    main()
