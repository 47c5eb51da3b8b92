"""What a benchmark audits: the embedded reader on drawn pages, or a checkpoint and probes of your own."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sightline.checks.demo import asset


def add_options(parser: argparse.ArgumentParser) -> None:
    scenes = asset("scenes", "confirmation")
    parser.add_argument("--model", default=str(asset("reader")), help="checkpoint; the embedded reader if left out")
    parser.add_argument("--probes", type=Path, default=scenes / "probes.jsonl", help="probe file; the drawn pages'")
    parser.add_argument("--images", type=Path, default=scenes / "images", help="folder that its image names are in")
    parser.add_argument("--pages", type=int, default=100, help="audit the first so many images")


def settings(options: argparse.Namespace) -> dict[str, Any]:
    """The keys of a configuration that say what is audited."""
    return {"model": options.model, "probes": options.probes, "images": options.images, "limit": options.pages}


def name_of(options: argparse.Namespace) -> str:
    """For a heading: the checkpoint's folder and the probe file."""
    return f"{Path(options.model).name} on {options.probes.name}"
