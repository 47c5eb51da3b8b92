"""What a user's first audit takes: mixed pages, set-up included, then the next process; beside stock transformers.

    python benchmarks/mixed_pages.py [--cases yes-no,general,inside,open] [--pages 176] [--old ../before] [--tiny]

Pages are the scenes of the package with white margins of random width, about 748 tokens each on Qwen3-VL-8B and 979 on
Qwen2.5-VL-7B, whose published shapes have random weights. Every line is a ``sightline run`` in a process of its own,
loading left out: the first with an empty cache folder, the second with what the first left there. ``--old`` runs the
sources of another checkout in the same call, line for line. ``--tiny`` runs all of it on a CPU in minutes, where rates
say nothing about a GPU.

yes-no: nine arms before the language model, compiled. general: the same of a type on the general route, eager and
compiled. inside: seven of them and two that prune inside the language model. open: answers of up to 32 tokens.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from benchmarks.first_pass import measured
from benchmarks.large_audit import SCENES, write_checkpoint
from PIL import Image, ImageOps

from sightline.backbones.from_transformers import processor_of
from sightline.probes.images import open_image
from sightline.probes.probe_file import read_probes, write_probes

ROOT = Path(__file__).resolve().parents[1]
BEFORE = [
    "full", "target:0.3", "random:0.3", "grid:0.3", "divprune:0.3", "tome:0.3", "prompt:0.3", "apet:0.3", "target:0.1",
]  # fmt: skip
INSIDE = [*BEFORE[:7], "fastv:0.3", "pyramiddrop:0.3"]
SHAPES = {
    "qwen2_5_vl": {
        "text_config": {
            "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
            "intermediate_size": 18944, "vocab_size": 152064,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
        },
        "vision_config": {
            "depth": 32, "hidden_size": 1280, "num_heads": 16, "intermediate_size": 3420, "out_hidden_size": 3584,
            "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31],
        },
    },
}  # fmt: skip
"""Published sizes of types that tests make tiny checkpoints of."""


@dataclass(frozen=True)
class Case:
    kind: str
    tokens: int
    """Visual tokens of a page, about."""
    arms: Sequence[str]
    settings: dict[str, Any] = field(default_factory=dict)
    stock_batch: int = 0
    """Questions of Full that transformers is handed at a time for comparison; 0: none."""


CASES = {
    "yes-no": [Case("qwen3_vl", 748, BEFORE, {"execution": "compiled"}, 16)],
    "general": [
        Case("qwen2_5_vl", 979, BEFORE, {"execution": "eager"}, 16),
        Case("qwen2_5_vl", 979, BEFORE, {"execution": "compiled"}),
    ],
    "inside": [
        Case("qwen2_5_vl", 979, INSIDE, {"execution": "eager"}),
        Case("qwen2_5_vl", 979, INSIDE, {"execution": "compiled"}),
    ],
    "open": [Case("qwen3_vl", 748, BEFORE[:5], {"execution": "compiled", "scorer": "open"})],
}
EDGE = {"qwen3_vl": 32, "qwen2_5_vl": 28}
"""Pixels along the edge of a token."""


def checkpoint(kind: str, folder: Path, device: str, tiny: bool) -> Path:
    """Random weights of the published shape, in bfloat16; a tiny one of the same type where that is asked for."""
    if kind == "qwen3_vl":
        write_checkpoint("tiny-qwen3-vl" if tiny else "qwen3-vl-8b", folder, device)
        return folder
    from tests.zoo import build

    small = build(kind, folder.with_name(f"tiny-{kind}"))
    if tiny:
        return small
    config = transformers.AutoConfig.from_pretrained(small)
    for part, sizes in SHAPES[kind].items():
        for name, value in sizes.items():
            setattr(getattr(config, part), name, value)
    config.text_config.layer_types = ["full_attention"] * config.text_config.num_hidden_layers
    torch.manual_seed(0)
    with torch.device(device):
        model = getattr(transformers, config.architectures[0])._from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder, max_shard_size="3GB")
    for file in small.iterdir():
        if not (folder / file.name).exists() and file.suffix != ".safetensors":
            shutil.copy(file, folder / file.name)
    return folder


def pages(folder: Path, count: int, area: int, *, in_words: bool) -> Path:
    """Probes about so many scenes of about this many pixels, with margins of random width; regions move along."""
    draw, wanted, probes = np.random.default_rng(3), dict[str, tuple[str, Any]](), []
    kept = read_probes(SCENES / ("open_probes.jsonl" if in_words else "probes.jsonl")).probes
    folder.mkdir()
    for probe in kept:
        if probe.image not in wanted:
            if len(wanted) == count:
                break
            image = open_image(SCENES / ("open_images" if in_words else "images"), probe.image)
            left, upper, right, lower = (draw.uniform(0, 0.25, 4) * (image.size * 2)).astype(int).tolist()
            page = ImageOps.expand(image, (left, upper, right, lower), "white")
            wanted[probe.image] = (
                f"{len(wanted)}.jpg",
                tuple(np.array(side * 2) for side in ((left, upper), image.size, page.size)),
            )
            scale = (area / (page.width * page.height)) ** 0.5
            page = page.resize((round(page.width * scale), round(page.height * scale)), Image.Resampling.BICUBIC)
            page.save(folder / wanted[probe.image][0], quality=90)
        name, (offset, inner, outer) = wanted[probe.image]
        boxes: Any = [tuple(((np.array(box) * inner + offset) / outer).tolist()) for box in probe.regions]
        probes.append(replace(probe, image=name, image_id=name, regions=tuple(boxes)))
    write_probes(folder / "probes.jsonl", probes)
    return folder


@torch.inference_mode()
def stock(model_folder: Path, folder: Path, batch: int, most: int = 64) -> float:
    """Rows a second of Full by transformers itself: processor, padded batch, one forward, the last row of logits."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = transformers.AutoModelForImageTextToText.from_pretrained(model_folder, dtype="auto").to(device).eval()
    processor = processor_of(model_folder, model.config)
    processor.tokenizer.padding_side = "left"
    probes = read_probes(folder / "probes.jsonl").probes[:most]

    def answer(some: Sequence[Any]) -> None:
        images = [open_image(folder, probe.image) for probe in some]
        turns = [[{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": p.question}]}] for p in some]
        texts = [processor.apply_chat_template(turn, add_generation_prompt=True, tokenize=False) for turn in turns]
        inputs = processor(text=texts, images=images, padding=True, return_tensors="pt").to(device, model.dtype)
        model(**inputs, logits_to_keep=1).logits[:, -1].argmax(-1).tolist()

    answer(probes[:batch])
    started = time.perf_counter()
    for first in range(0, len(probes), batch):
        answer(probes[first : first + batch])
    return len(probes) / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--pages", type=int, default=176)
    parser.add_argument("--batch-images", type=int, default=16)
    parser.add_argument("--old", type=Path, help="Another checkout, whose sources run beside these.")
    parser.add_argument("--tiny", action="store_true", help="Tiny checkpoints and small pages, for a CPU.")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sources = {"now": ROOT} | ({"old": options.old.resolve()} if options.old else {})
    print(f"{options.pages} pages on {device}; rows/s with set-up, without, set-up s, graphs (on disk)")
    with tempfile.TemporaryDirectory() as name:
        place, folders = Path(name), dict[str, Path]()
        for called in options.cases.split(","):
            for number, case in enumerate(CASES[called]):
                if case.kind not in folders:
                    folders[case.kind] = checkpoint(case.kind, place / case.kind, device, options.tiny)
                tokens = 60 if options.tiny else case.tokens
                in_words = case.settings.get("scorer") == "open"
                shown = place / f"pages-{case.kind}-{in_words}"
                if not shown.exists():
                    pages(shown, options.pages, tokens * EDGE[case.kind] ** 2, in_words=in_words)
                run = {
                    "model": str(folders[case.kind]), "probes": str(shown / "probes.jsonl"), "images": str(shown),
                    "arms": list(case.arms), "matched_controls": False, "batch_images": options.batch_images,
                    "device": device, **case.settings,
                }  # fmt: skip
                label = f"{called} {case.settings['execution']}"
                for source, root in sources.items():
                    path = os.pathsep.join(str(root / part) for part in ("src", "packages", "."))
                    for process in ("first", "second"):
                        out = place / f"{called}{number}{source}{process}"
                        found = measured({**run, "out": str(out)}, place / f"cache-{source}-{called}{number}", path)
                        rows, seconds, setup = found["rows"], found["seconds"], found["setup"]
                        print(
                            f"{label:18} {source:4} {process:7}{rows / seconds:8.1f}"
                            f"{rows / max(seconds - setup, 1e-9):8.1f}{setup:7.1f}"
                            f"{found.get('graphs', 0):5} ({found.get('disk', 0)})",
                            flush=True,
                        )
                if case.stock_batch:
                    rate = stock(folders[case.kind], shown, case.stock_batch)
                    print(f"{label:18} stock, Full, batches of {case.stock_batch}: {rate:.1f}", flush=True)


if __name__ == "__main__":
    main()
