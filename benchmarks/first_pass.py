"""The first pass of a compiled audit over pages of mixed sizes: what is compiled, by a cold process and by a warm one.

    python benchmarks/first_pass.py [--model tests/data/tiny/llava] [--sizes 3,12,24] [--batch-images 4]

Every pass is ``sightline run --execution compiled`` in a process of its own. For each number of sizes the first starts
with an empty cache folder, the second finds what the first left there. Printed are graphs, those of them found on disk,
seconds of set-up and of the whole audit, loading left out, and whether the rows are the same to the bit. ``--model``
may name a type too, of which a tiny checkpoint is made. On a GPU kernels are counted as well. Seconds on a CPU say
nothing about a GPU; counts of graphs do.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SCRIPT, PASS = Path(__file__).resolve(), "--one-pass"
ARMS = ["full", "grid:0.3", "divprune:0.3"]


def draw_pages(folder: Path, sizes: int, pages: int) -> None:
    """So many pages of so many sizes, with a question about each."""
    draw, lines = np.random.default_rng(1), []
    folder.mkdir()
    for i in range(pages):
        height, width = 160 + 32 * (i % sizes % 5), 160 + 32 * (i % sizes // 5)
        picture = draw.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(picture).save(folder / f"{i}.png")
        lines.append({
            "id": f"p{i}", "sample_id": f"p{i}", "dataset": "drawn", "image": f"{i}.png", "image_id": f"p{i}",
            "question": 'Does the image contain the exact text "EXIT"? Answer yes or no.', "target_answer": "yes",
            "answer": "yes", "target_text": "EXIT", "binary_polarity": "positive", "has_bbox": True,
            "bbox_source": "drawn", "evidence_regions": [[0.1, 0.1, 0.4, 0.4]],
        })  # fmt: skip
    (folder / "probes.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")


def one_pass(settings: dict[str, Any]) -> None:
    """In a process of its own: the audit, then one line of what it took."""
    from sightline.auditing.audit import audit
    from sightline.auditing.config import AuditConfig
    from sightline.auditing.launchers.here import Inline
    from sightline.backbones.execution import compiled_so_far

    work, seconds = Inline.run, list[float]()

    def timed(*given: Any) -> None:
        started = time.perf_counter()
        work(*given)
        seconds.append(time.perf_counter() - started)

    Inline.run = timed  # type: ignore[method-assign, assignment]
    before = compiled_so_far()
    run = audit(AuditConfig(**settings))
    frame = run.frame()
    print(json.dumps({
        **(compiled_so_far() - before), "setup": run.manifest.get("setup_ms", 0.0) / 1e3, "seconds": seconds[0],
        "rows": len(frame), "margins": frame["margin" if "margin" in frame else "answer_loss"].tolist(),
    }))  # fmt: skip


def measured(settings: dict[str, Any], cache: Path, sources: str | None = None) -> dict[str, Any]:
    """One pass with a cache folder of its own; ``sources`` is where Python finds the package, if not as here."""
    environment = {**os.environ, "SIGHTLINE_CACHE": str(cache)}
    if sources is not None:
        environment["PYTHONPATH"] = os.pathsep.join([sources, *filter(None, [os.environ.get("PYTHONPATH")])])
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, SCRIPT, PASS, json.dumps(settings)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tests/data/tiny/llava", help="a folder, or a type of the zoo")
    parser.add_argument("--sizes", default="3,12,24")
    parser.add_argument("--pages", type=int, default=24)
    parser.add_argument("--batch-images", type=int, default=4)
    options = parser.parse_args()
    print(f"{options.model}, {options.pages} pages, {len(ARMS)} arms, vision batches of {options.batch_images}")
    print(f"{'sizes':>6} {'process':8}{'graphs':>8}{'on disk':>9}{'kernels':>9}{'set-up s':>10}{'all s':>8}  rows")
    with tempfile.TemporaryDirectory() as name:
        place, model = Path(name), options.model
        if not Path(model).is_dir():
            from tests.zoo import build

            model = str(build(model, place / model))
        for sizes in map(int, options.sizes.split(",")):
            pages, margins = place / f"pages{sizes}", list[list[float]]()
            draw_pages(pages, sizes, options.pages)
            for process in ("cold", "warm"):
                settings = {
                    "model": model, "probes": str(pages / "probes.jsonl"), "images": str(pages), "arms": ARMS,
                    "out": str(place / f"{process}{sizes}"), "matched_controls": False, "execution": "compiled",
                    "batch_images": options.batch_images,
                }  # fmt: skip
                found = measured(settings, place / f"cache{sizes}")
                margins.append(found["margins"])
                same = "" if process == "cold" else " the same" if margins[0] == margins[1] else " OTHERS"
                print(
                    f"{sizes:6} {process:8}{found.get('graphs', 0):8}{found.get('disk', 0):9}"
                    f"{found.get('kernels', 0):9}{found['setup']:10.1f}{found['seconds']:8.1f}  {found['rows']}{same}",
                    flush=True,
                )


if __name__ == "__main__":
    if sys.argv[1:2] == [PASS]:
        one_pass(json.loads(sys.argv[2]))
    else:
        main()
