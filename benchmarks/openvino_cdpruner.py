"""OpenVINO's CDPruner against ours, token by token, on the features that the engine itself prunes; and where they part.

    python benchmarks/openvino_cdpruner.py DIR [--images 20] [--ratio 30 50 70]

DIR is an exported Qwen3-VL with its traced copy (``sightline engines export``, ``sightline engines trace``); the pages
are the shipped scenes of 448 x 448 pixels, which the shipped reader takes without resizing. What the engine kept is
traced. What goes into its pruner is computed here from the same exported files: the visual tokens behind the merger and
the mean embedding of the prompt's text. From that, selections are made on a ladder from our ``cdpruner`` to the
engine's way, one difference a step; each line says how many of the engine's tokens a step keeps too. The last step of a
variant is the engine's algorithm, written anew: it must keep the same tokens. For that the engine is told to prepare
images in plain code instead of a graph of the device's, whose roundings are not repeated here; variables that are set
already stay (``VISION_PREPROCESS= VISION_POS_EMBEDS=``: the graph).
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pandas as pd
import torch
from openvino import opset13 as op
from PIL import Image

import sightline
from sightline.engines.base import Question
from sightline.engines.openvino import OpenVINO
from sightline.progress import SafeConsole
from sightline.selectors.cdpruner import cdpruner_order, conditional_relevance
from sightline.selectors.greedy import text_dissimilarity

SCENES = Path(sightline.__file__).parent / "assets" / "scenes" / "confirmation"
SYSTEM = "You are a helpful OCR assistant. Answer with the shortest correct text only."
INSTRUCTION = "\nAnswer the question using a single word or phrase."
EPSILON = 1e-6
WEIGHT = 0.5
"""The engine's relevance_weight."""
HALVES = "+ either half of the image by itself"
IN_PLAIN_CODE = {"VISION_PREPROCESS": "CPP", "VISION_POS_EMBEDS": "CPP"}
"""Environment that the engine reads when it loads."""
Array = np.ndarray[Any, np.dtype[np.float32]]
Selecting = Callable[[Array, int], list[int]]
"""Visual tokens (N, D) and k -> picks."""


class Features:
    """What the engine gives its pruner, from the exported files, in one precision of arithmetic."""

    def __init__(self, engine: OpenVINO, precision: str) -> None:
        core, folder = ov.Core(), engine.export.folder
        options = {"INFERENCE_PRECISION_HINT": precision}
        self.engine = engine
        self.patches, self.places, self.merger, self.words = (
            core.compile_model(folder / f"openvino_{name}_model.xml", engine.device, options)
            for name in ("vision_embeddings", "vision_embeddings_pos", "vision_embeddings_merger", "text_embeddings")
        )

    def visual(self, image: Image.Image) -> Array:
        """(N, D), row by row of the grid; the image must have the size that the model looks at."""
        export = self.engine.export
        said, vision = export.images, export.config["vision_config"]
        edge, merge = int(said["patch_size"]), int(said["merge_size"])
        grid = export.grid(image.size)
        assert grid is not None
        if image.size != (grid.columns * edge * merge, grid.rows * edge * merge):
            raise SystemExit(f"an image of {image.size} would be resized; its features are not known here")
        rows, columns = grid.rows * merge, grid.columns * merge
        mean, std = (np.array(said[name], np.float32) for name in ("image_mean", "image_std"))
        pixels = (np.asarray(image.convert("RGB"), np.float32) / 255 - mean) / std
        # Patches that merge lie together; within one: channel, frame (twice the same), row, column.
        cut = pixels.reshape(grid.rows, merge, edge, grid.columns, merge, edge, 3).transpose(0, 3, 1, 4, 6, 2, 5)
        flat = np.repeat(cut.reshape(rows * columns, 3, 1, edge, edge), 2, axis=2).reshape(rows * columns, -1)
        hidden = self.patches([flat])[0]

        def merged(values: Any) -> Any:
            """(rows, columns, ...) in the order of the patches."""
            parts = values.reshape(grid.rows, merge, grid.columns, merge, *values.shape[2:])
            return parts.swapaxes(1, 2).reshape(rows * columns, *values.shape[2:])

        side = round(float(vision["num_position_embeddings"]) ** 0.5)
        at = [np.arange(count, dtype=np.float32) * np.float32((side - 1) / (count - 1)) for count in (rows, columns)]
        low = [a.astype(np.int64) for a in at]
        part = [(a - b).astype(np.float32) for a, b in zip(at, low, strict=True)]
        corners, weights = [], []
        for down in (0, 1):
            for right in (0, 1):
                y, x = np.minimum(low[0] + down, side - 1), np.minimum(low[1] + right, side - 1)
                corners.append((y[:, None] * side + x).reshape(-1))
                fy, fx = part[0] if down else 1 - part[0], part[1] if right else 1 - part[1]
                weights.append((fy[:, None] * fx).reshape(-1))
        places = self.places([np.stack(corners)])[0]
        placed = sum(place * weight[:, None] for place, weight in zip(places, weights, strict=True))
        hidden = hidden + merged(np.asarray(placed).reshape(rows, columns, -1))

        width = int(self.merger.input("rotary_pos_emb").get_partial_shape()[1].get_length())
        turns = 1.0 / 10000.0 ** (np.arange(0, width, 2, dtype=np.float32) / width)
        ys, xs = (merged(np.broadcast_to(a, (rows, columns))) for a in (np.arange(rows)[:, None], np.arange(columns)))
        angles = np.concatenate([ys[:, None] * turns, xs[:, None] * turns], axis=1).astype(np.float32)
        mask = np.zeros((1, rows * columns, rows * columns), np.float32)
        given = {"hidden_states": hidden.astype(np.float32), "attention_mask": mask, "rotary_pos_emb": angles}
        return np.asarray(self.merger(given)["last_hidden_state"], np.float32)

    def text(self, question: Question) -> Array:
        """(1, D): the mean over all tokens of the prompt, template included, that belong to no image."""
        prompt = self.engine.prompt(Question(question.text, system=question.system))
        ids = np.array(self.engine.tokenizer(prompt, add_special_tokens=False)["input_ids"], np.int64)[None]
        words: Array = np.asarray(self.words([ids])[0][0], np.float32)
        mean: Array = words.sum(axis=0, keepdims=True) / np.float32(len(words))
        return mean


class Kernel:
    """The engine's matrix: (1 - w) S + w r S r, S cosines of visual tokens, r how like the text each is, from 0 to 1.

    The engine compiles it without a wish about precision, so that the device chooses: bfloat16 where it has that.
    """

    def __init__(self, device: str, precision: str | None) -> None:
        visual, text = op.parameter([1, -1, -1], ov.Type.f32), op.parameter([-1, -1], ov.Type.f32)
        one, two = (op.constant(np.array([axis], np.int64)) for axis in (1, 2))
        tokens = op.normalize_l2(visual, two, EPSILON, "add")
        words = op.normalize_l2(text, one, EPSILON, "add")
        like = op.reduce_mean(op.matmul(tokens, words, False, True), two, False)
        low, high = op.reduce_min(like, one, True), op.reduce_max(like, one, True)
        span = op.add(op.subtract(high, low), op.constant(np.float32(EPSILON)))
        relevance = op.divide(op.subtract(like, low), span)
        cosines = op.matmul(tokens, tokens, False, True)
        weighed = op.multiply(op.multiply(op.unsqueeze(relevance, two), cosines), op.unsqueeze(relevance, one))
        plain = op.multiply(cosines, op.constant(np.float32(1 - WEIGHT)))
        blend = op.add(plain, op.multiply(weighed, op.constant(np.float32(WEIGHT))))
        options = {} if precision is None else {"INFERENCE_PRECISION_HINT": precision}
        self.compiled = ov.Core().compile_model(ov.Model([blend], [visual, text], "kernel"), device, options)

    def __call__(self, visual: Array, text: Array) -> Array:
        return np.array(self.compiled([visual[None], text])[0][0], np.float32)


def greedy(kernel: Array, k: int, gains: list[float] | None = None) -> list[int]:
    """The engine's greedy inference, in float32 and with its small numbers.

    Beyond the rank that the kernel's precision leaves it, a residual below zero makes all further gains equal, and the
    first tokens that are left are taken, from the top of the page. ``gains`` are noted where they are wanted.
    """
    n = len(kernel)
    gain, rows = kernel.diagonal().copy(), np.zeros((k, n), np.float32)
    picks: list[int] = []
    for step in range(k):
        best = int(gain.argmax())
        noted = gain[best]
        row = kernel[best].copy()
        for past in rows[:step]:
            if abs(past[best]) >= np.float32(EPSILON):
                row -= past[best] * past
        with np.errstate(invalid="ignore"):
            rows[step] = row * (np.float32(1) / np.sqrt(gain[best] + np.float32(EPSILON)))
        gain -= rows[step] * rows[step]
        gain[np.isnan(gain)] = -np.finfo(np.float32).max
        picks.append(best)
        if gains is not None:
            gains.append(float(noted))
        gain[picks] = -np.inf
    return picks


def kept_count(n: int, ratio: int) -> int:
    return int(np.floor(n * (1.0 - ratio / 100.0) + 0.5))


def in_halves(select: Selecting, visual: Array, k: int) -> list[int]:
    """Half of the tokens from either half of the image, each as if it were the whole."""
    half = len(visual) // 2
    return [*select(visual[:half], k // 2), *(half + pick for pick in select(visual[half:], k - k // 2))]


def ladder(kernels: dict[str, Kernel], text: Array, gains: list[float] | None = None) -> dict[str, Selecting]:
    """Step -> (visual tokens, k) -> picks, from ours to the engine's; ``gains`` are those of the last."""
    words = torch.from_numpy(text)

    def ours(sign: int) -> Selecting:
        def select(visual: Array, k: int) -> list[int]:
            tokens = torch.from_numpy(visual.copy())[None]
            relevance = conditional_relevance(sign * text_dissimilarity(tokens, words[None]))
            return [int(pick) for pick in cdpruner_order(tokens, relevance, k)[0]]

        return select

    def theirs(precision: str) -> Selecting:
        noted = gains if precision == "device" else None
        return lambda visual, k: greedy(kernels[precision](visual, text), k, noted)

    return {
        "ours, with these features for CLIP's": ours(1),
        "+ tokens like the text count, not unlike ones": ours(-1),
        "+ kernel (1 - w) S + w r S r instead of r S r": theirs("f32"),
        "+ kernel in the precision of the device": theirs("device"),
    }


def compared(engine: OpenVINO, images: int, ratios: list[int], precision: str | None) -> Iterator[tuple[Any, ...]]:
    """Variant, ratio, step, tokens kept by both, by the engine alone, by the step alone, picks without gain."""
    features = Features(engine, precision or engine.facts()["inference_precision"])
    kernels = {"device": Kernel(engine.device, None), "f32": Kernel(engine.device, "f32")}
    lines = (SCENES / "open_probes.jsonl").read_text(encoding="utf-8").splitlines()[1:]
    for probe in list({probe["image"]: probe for probe in map(json.loads, lines)}.values())[:images]:
        image = Image.open(SCENES / "open_images" / probe["image"])
        asked = Question(probe["question"] + INSTRUCTION, image, SYSTEM, longest=1)
        visual, gains = features.visual(image), list[float]()
        steps = ladder(kernels, features.text(asked), gains)
        *_, last = steps.values()
        for variant, ratio in product(("paper", "split"), ratios):
            switches = {"pruning_ratio": str(ratio), "variant": variant}
            switches |= {"inference_precision": precision} if precision else {}
            kept = set(engine.ask(replace(asked, switches=switches)).cells or ())
            halves: dict[str, Selecting] = {HALVES: partial(in_halves, last)} if variant == "split" else {}
            for step, select in {**steps, **halves}.items():
                gains.clear()
                picks = set(select(visual, kept_count(len(visual), ratio)))
                both = len(kept & picks)
                yield variant, ratio, step, both, len(kept) - both, len(picks) - both, sum(gain <= 0 for gain in gains)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="exported model with its traced copy")
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--ratio", type=int, nargs="+", default=[30, 50, 70])
    parser.add_argument("--precision", choices=("f32", "bf16"), help="of the engine's arithmetic; its own if left out")
    options = parser.parse_args()
    os.environ |= IN_PLAIN_CODE | os.environ
    engine = OpenVINO(options.folder)
    if not engine.traces:
        raise SystemExit(f"no traced copy: sightline engines trace {options.folder}")
    engine.load()
    names = ["variant", "ratio", "selection", "by both", "only engine", "only this", "without gain"]
    found = pd.DataFrame(compared(engine, options.images, options.ratio, options.precision), columns=names)
    groups = found.groupby(names[:3], sort=False)
    table = groups.sum().assign(same=groups["only engine"].agg(lambda apart: f"{(apart == 0).sum()} of {len(apart)}"))
    lines = table.sort_index(level=[0, 1], sort_remaining=False).reset_index().to_string(index=False)
    SafeConsole(highlight=False).print(lines, soft_wrap=True)


if __name__ == "__main__":
    main()
