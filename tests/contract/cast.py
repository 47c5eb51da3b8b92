"""Who takes part in the contract: every registered selector, every tiny checkpoint, and what each pair needs said."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from PIL import Image, ImageOps

from sightline.answering.materialise import SelectStep, all_needs
from sightline.arms.arm import Arm, parse_arm
from sightline.backbones import load_backbone
from sightline.backbones.clip import ClipSpace
from sightline.core.prefix import Encoded
from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.selectors import SELECTORS

MODELS: dict[str, dict[str, int]] = {"qwen3vl": {"max_pixels": 50176}, "llava": {}, "internvl": {"max_tiles": 2}}
"""Checkpoints, and image options that keep them quick."""
KEEPS = {"float32": ("1t", "0.1", "0.3", "0.7", "1.0"), "bfloat16": ("1t", "0.3")}
"""Budgets by precision; half of it is about the numbers that methods are handed, not about how many they keep."""
METHODS = tuple(name for name, kind in SELECTORS.items() if not kind.resizes and kind.needs_file != "head")
"""All that look at an image in its usual size; others: tests/integration/test_resize.py, and test_heads.py there."""

WITHOUT = {name for name, kind in SELECTORS.items() if kind.unpublished}
"""Of which no form is published for models that lack what they read: a class token, or CLIP's space."""
REFUSED: dict[str, set[str]] = {
    "llava": set(),
    "qwen3vl": WITHOUT,
    "internvl": WITHOUT - {"autoprune", "globalcom2", "hired", "scope"},
}
"""Methods that an architecture cannot serve. docs/methods.md says why."""

SHALLOW = {
    "flowcut": "last_layer=1",
    "hiprune": "object_layer=1",
    "nuwa": "first_layer=2,last_layer=3",
    "nuwa_both": "first_layer=2,last_layer=3",
    "vscan": "local_layer=1",
    "vscan_both": "local_layer=1",
}
"""The tiny towers have three or four blocks; published layer numbers of a tower with 24 must be replaced."""

IMAGES = ("train/02ac65de9eec83e1.jpg", "train/05093bd5d1fb7bd3.jpg")


def servable(model: str) -> list[str]:
    return [name for name in METHODS if name not in REFUSED[model]]


def arm_of(name: str, keep: str, masks: Path | None = None) -> Arm:
    if name == "full":
        return parse_arm("full")
    if name == "masks":
        return parse_arm(f"masks:file={masks}")
    return parse_arm(f"{name}:{keep}" + (f":{SHALLOW[name]}" if name in SHALLOW else ""))


class Stage:
    """One checkpoint in one dtype with three encoded images: a photograph, its mirror image (same N), another one."""

    def __init__(self, data: Path, model: str, dtype: str) -> None:
        self.model, self.dtype = model, dtype
        self.backbone = load_backbone(
            str(data / "tiny" / model), dtype=dtype, device="cpu", attention="sdpa", options=MODELS[model]
        )
        self.step = SelectStep(self.backbone, ClipSpace(str(data / "tiny" / "clip"), self.backbone.language.device))
        first, other = (Image.open(data / "mini_textocr" / name).convert("RGB") for name in IMAGES)
        needs = all_needs((arm_of(name, "0.3") for name in servable(model) if name != "masks"), self.backbone)
        self.pixels = [self.backbone.preprocess(image) for image in (first, ImageOps.mirror(first), other)]
        self.encoded: list[Encoded] = [self.backbone.encode([item], needs)[0] for item in self.pixels]
        exit_sign, hotel = "Is the word EXIT visible in the image?", "Can you read 'Grand Hotel' anywhere? Yes or no."
        self.probes = [
            probe("one:a", exit_sign, "EXIT", ((0.2, 0.2, 0.4, 0.3), (0.6, 0.5, 0.8, 0.7))),
            probe("two", hotel, "Grand Hotel", ((0.1, 0.6, 0.3, 0.65),)),
            probe("three", exit_sign, "EXIT", ()),
        ]

    def masks(self, folder: Path, keep: str) -> Path:
        """A mask file that keeps every other token of what the budget allows."""
        file = folder / f"masks_{self.model}_{keep}.jsonl"
        lines = []
        for asked, image in zip(self.probes, self.encoded, strict=True):
            k = parse_arm(f"random:{keep}").budget.resolve(image.n)
            step = max(1, image.n // k)
            lines.append({"id": asked.id, "kept_indices": list(range(0, step * k, step))})
        file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return file


def probe(name: str, question: str, target: str, regions: tuple[tuple[float, float, float, float], ...]) -> Probe:
    return Probe(name, f"{name}.jpg", name, question, "yes", target, target, regions)


@lru_cache(maxsize=2)  # tests of one model follow one another
def stage(data: Path, model: str, dtype: str) -> Stage:
    return Stage(data, model, dtype)


def refusal(step: SelectStep, arm: Arm) -> str:
    """The sentence that refuses an arm, or nothing."""
    try:
        step.refuse_unserved([arm])
    except SightlineError as error:
        return str(error)
    return ""
