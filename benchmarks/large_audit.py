"""Rows per second of ``sightline run`` at published shapes: a checkpoint with random weights, real images, twice.

    python benchmarks/large_audit.py [--config qwen3-vl-8b] [--images 100] [--execution compiled]

The checkpoint (17.5 GB for 8B shapes) is written to a temporary folder with the embedded reader's tokenizer; images
are the reader's confirmation scenes. The second pass meets no shape that the first has not seen. ``--config
tiny-qwen3-vl`` runs the same on a CPU in seconds and says nothing about a GPU.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers

import sightline
from sightline.auditing.audit import audit
from sightline.auditing.config import AuditConfig
from sightline.auditing.launchers.here import Inline
from sightline.cost.benchmarks.sweep import Sweep
from sightline.cost.shapes import shape_named

ASSETS = Path(sightline.__file__).parent / "assets"
SCENES = ASSETS / "scenes" / "confirmation"


def sized_config(name: str, layers: int | None = None) -> Any:
    """The shape's sizes with the reader's vocabulary ids; ``layers`` of the language model, if not all."""
    shape = shape_named(name).config
    config: dict[str, Any] = json.loads((ASSETS / "reader" / "config.json").read_text())
    vocabulary = config["text_config"]["vocab_size"]
    for part in ("text_config", "vision_config"):
        config[part] |= shape[part]
    config["text_config"]["vocab_size"] = max(vocabulary, shape["text_config"]["vocab_size"])
    for derived in ("rope_parameters", "layer_types"):
        config["text_config"].pop(derived, None)
    config["text_config"] |= {"num_hidden_layers": layers} if layers else {}
    kind = config.pop("model_type")
    config.pop("architectures")
    return transformers.AutoConfig.for_model(kind, **config)


def write_checkpoint(name: str, folder: Path, device: str) -> None:
    """A model of these sizes, with the reader's chat template and image processor."""
    reader = ASSETS / "reader"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    torch.manual_seed(0)
    with torch.device(device):
        model = transformers.Qwen3VLForConditionalGeneration._from_config(sized_config(name), dtype=dtype)
    model.save_pretrained(folder, max_shard_size="3GB")
    for file in reader.glob("*.json*"):
        if not (folder / file.name).exists():
            shutil.copy(file, folder / file.name)
    shutil.copy(reader / "chat_template.jinja", folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="qwen3-vl-8b", help="qwen3-vl-8b or tiny-qwen3-vl")
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--execution", default="compiled")
    parser.add_argument("--batch-images", type=int, default=16)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shape = shape_named(options.config)
    width, height = shape.image
    fixed_area = {"min_pixels": width * height, "max_pixels": width * height} if shape.kind == "qwen3_vl" else {}
    seconds: list[float] = []
    work = Inline.run

    def timed(*given: Any) -> None:
        """Start-up is no part of the rate."""
        started = time.perf_counter()
        work(*given)
        seconds.append(time.perf_counter() - started)

    Inline.run = timed  # type: ignore[method-assign, assignment]
    with tempfile.TemporaryDirectory() as place:
        write_checkpoint(options.config, Path(place) / "checkpoint", device)
        for number in ("first", "second"):
            run = audit(
                AuditConfig(
                    model=str(Path(place) / "checkpoint"),
                    probes=SCENES / "probes.jsonl",
                    images=SCENES / "images",
                    out=Path(place) / number,
                    arms=list(Sweep.arms),
                    matched_controls=False,
                    limit=options.images,
                    image_options=fixed_area,
                    execution=options.execution,
                    batch_images=options.batch_images,
                )
            )
            set_up, rows = run.manifest.get("setup_ms", 0.0) / 1e3, len(run.frame())
            print(f"{number} pass: {rows} rows, {rows / (seconds[-1] - set_up):.1f} a second, set-up {set_up:.1f} s")


if __name__ == "__main__":
    main()
