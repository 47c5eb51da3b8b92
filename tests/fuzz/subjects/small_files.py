"""Files of one kind each: masks, configurations, cost cards, policies, detections, images, what a checkpoint has."""

import gzip
import io
import json
import shutil
import zlib
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import transformers
import yaml
from PIL import Image

from sightline import SELECTORS, SightlineError, load_backbone
from sightline.arms import parse_arm
from sightline.auditing.config import read_config
from sightline.backbones import options_for
from sightline.backbones.loading import Served, choose_dtype
from sightline.boxes import detection
from sightline.boxes.detectors import FoundText
from sightline.policies.learned_risk import GROUPS
from sightline.policies.risk_adaptive import ranked_risks
from sightline.probes.images import image_size, open_image
from sightline.report.build import build_report
from sightline.selectors.masks import read_masks
from tests.conftest import DATA, REPOSITORY
from tests.fuzz import mutations
from tests.fuzz.subjects.base import GOOD, FileSubject, Subject
from tests.unit.probes.formats.pages import png_of


class MaskFiles(FileSubject, name="masks", share=8):
    @property
    def file(self) -> Path:
        return self.folder / ("masks.jsonl.gz" if self.packed else "masks.jsonl")

    def content(self, random: Random) -> bytes:
        self.packed = random.random() < 0.3
        data = mutations.lines_bytes(GOOD["masks"], random)
        if not self.packed:
            return data
        return mutations.bytes_like(gzip.compress(data), random) if random.random() < 0.5 else gzip.compress(data)

    def read(self, given: bytes) -> None:
        read_masks.cache_clear()
        masks = read_masks(str(self.file), "kept_indices", "", 0)
        for name, mask in masks.items():
            mask.refuse_other(16, [(4, 4)], name)


class Configs(FileSubject, name="configs", share=14, file_name="config.yaml"):
    """YAML of ``run --config``; nothing that a tag names may be executed."""

    good = GOOD["config"]

    def content(self, random: Random) -> bytes:
        if random.random() < 0.4:
            return mutations.text_like(yaml.safe_dump(self.good), random).encode(errors="surrogatepass")
        if random.random() < 0.1:
            return mutations.bytes_like(yaml.safe_dump(self.good).encode(), random)
        return super().content(random)

    def read(self, given: bytes) -> None:
        read_config(self.file, {})


class CostCards(FileSubject, name="cost cards", share=2, file_name="card.json"):
    """Cards, read and shown on a page."""

    def prepare(self) -> None:
        cards = [json.loads(file.read_text()) for file in sorted((REPOSITORY / "benchmarks/cards").rglob("*.json"))]
        self.good = [_shorter(card) for card in cards if "results" in card]
        assert self.good

    def content(self, random: Random) -> bytes:
        return mutations.json_bytes(random.choice(self.good), random)

    def read(self, given: bytes) -> None:
        page = self.folder / "report" / "report.html"
        page.unlink(missing_ok=True)
        build_report([], page.parent, costs=[self.file])

    def left_behind(self) -> list[str]:
        return ["report.html"] if (self.folder / "report" / "report.html").exists() else []


def _shorter(card: Any) -> Any:
    """The first result alone, with a few samples of each point: what the reader looks at is all there."""

    def cut(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: cut(part) for key, part in value.items()}
        return [cut(part) for part in value[:4]] if isinstance(value, list) else value

    return {**card, "results": [cut(card["results"][0])]}


class RiskFiles(FileSubject, name="policy files", share=5):
    """What policies read: risks by sample, and what was fitted."""

    def content(self, random: Random) -> bytes:
        self.policy = random.choice(("risk_bucket", "learned_risk", "conformal"))
        if self.policy == "risk_bucket":
            table = "probe_id,risk\na,0.1\nb,0.7\nc,1\n"
            return mutations.text_like(table, random).encode(errors="surrogatepass")
        group, names = next(iter(GROUPS.items()))
        ones = [1.0] * len(names)
        fitted = {
            "policy": self.policy, "levels": "0.3/0.7", "group": group, "features": list(names), "thresholds": [0.5],
            "logistic": {"means": ones, "scales": ones, "weights": ones, "bias": 0.1}, "confidences": [2.0, 1.0],
            "bounds": [0.01, 0.2],
        }  # fmt: skip
        return mutations.json_bytes(fitted, random)

    def read(self, given: bytes) -> None:
        ranked_risks.cache_clear()
        arm = parse_arm(f"policy:{self.policy}:target:0.3/0.7:file={self.file}")
        assert arm.policy is not None
        arm.input_digest()
        arm.policy.check_levels(arm.levels)


class Detections(FileSubject, name="detections", share=6, forgives=True):
    """A detector's outlines, its worker's answers and remembered ones; the last count as never written if damaged."""

    good = GOOD["detection"]

    def make(self, random: Random) -> Any:
        values = (1, 30.5, -4, 0, 1e308, -1e308, float("nan"), float("inf"), 99, 10**30)
        outline = tuple((random.choice(values), random.choice(values)) for _ in range(random.randint(0, 5)))
        return super().make(random), outline

    def read(self, given: Any) -> None:
        _, outline = given
        found = detection._read(self.file)
        if found is not None:
            assert all(0 <= value <= 1 for box in found.boxes for value in box), found
        boxes, _ = detection.boxes_of([FoundText(outline, 0.9)], 100, 50)
        assert all(0 <= value <= 1 for box in boxes for value in box), boxes


MODES = {
    "PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"),
    "JPEG": ("L", "RGB", "CMYK"),
    "TIFF": ("1", "L", "P", "RGB", "RGBA", "CMYK", "I;16", "I", "F"),
    "GIF": ("L", "P"),
    "BMP": ("1", "L", "RGB"),
    "WEBP": ("RGB", "RGBA"),
    "PPM": ("1", "L", "RGB"),
}
SUFFIXES = ("png", "jpg", "tif", "gif", "bmp", "webp", "eps", "txt", "")


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that says it is this large."""
    return png_of(width, height, 8, zlib.compress(b"\0" * min(width * 3 + 1, 10_000)))


class Pictures(FileSubject, name="images", share=20):
    def prepare(self) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, (12, 17, 3), dtype=np.uint8)
        self.good: list[bytes] = []
        for kind, modes in MODES.items():
            for mode in modes:
                sink = io.BytesIO()
                if mode == "I;16":
                    image = Image.fromarray(pixels[..., 0].astype(np.uint16) * 257)
                else:
                    image = Image.fromarray(pixels).convert("L" if mode in ("LA", "I", "F") else mode).convert(mode)
                image.save(sink, kind)
                self.good.append(sink.getvalue())

    def content(self, random: Random) -> bytes:
        self.file_name = f"given.{random.choice(SUFFIXES)}"
        if random.random() < 0.1:
            sides = (0, 1, 9_999, 20_000, 65_535, 2**31 - 1)
            return bomb(random.choice(sides), random.choice(sides))
        data = random.choice(self.good)
        return data if random.random() < 0.1 else mutations.bytes_like(data, random)

    def read(self, given: bytes) -> None:
        image_size(self.file)
        image = open_image(self.folder, self.file.name, occlude=[(0.1, 0.1, 0.5, 0.5)])
        assert image.mode == "RGB"


MODELS = ("llava", "qwen3vl", "internvl")


class Checkpoints(Subject, name="checkpoint configs", share=4):
    """``config.json`` alone, as ``selectors --model`` and the checks before a run read it."""

    file = "config.json"

    def prepare(self) -> None:
        self.good = {}
        for model in MODELS:
            shutil.copytree(DATA / "tiny" / model, self.folder / model)
            self.good[model] = json.loads((self.folder / model / self.file).read_text(encoding="utf-8"))

    def make(self, random: Random) -> tuple[str, bytes]:
        model = random.choice(MODELS)
        data = mutations.json_bytes(self.good[model], random)
        (self.folder / model / self.file).write_bytes(data)
        return model, data

    def read(self, given: tuple[str, bytes]) -> None:
        folder = self.folder / given[0]
        served = Served.by_description(folder)
        options_for(folder)
        choose_dtype("auto", folder)
        for name in ("full", "target", "visionzip", "fastv"):
            try:
                served.refuse(SELECTORS.get(name)(), clip=False)
            except SightlineError:
                continue


class LoadedCheckpoints(Subject, name="checkpoint loads", share=0.5):
    """Every other file, and the weights: all of it is really loaded."""

    def prepare(self) -> None:
        transformers.logging.set_verbosity_error()
        self.good = {
            (model, file): (DATA / "tiny" / model / file).read_bytes()
            for model in MODELS
            for file in ("preprocessor_config.json", "tokenizer_config.json", "tokenizer.json", "model.safetensors")
        }
        for model in MODELS:
            shutil.copytree(DATA / "tiny" / model, self.folder / model)

    def make(self, random: Random) -> tuple[str, str, bytes]:
        for (model, file), data in self.good.items():
            (self.folder / model / file).write_bytes(data)
        model, file = random.choice(list(self.good))
        good = self.good[model, file]
        spoiled = random.random() < 0.3 or not file.endswith("_config.json")
        data = mutations.bytes_like(good, random) if spoiled else mutations.json_bytes(json.loads(good), random)
        (self.folder / model / file).write_bytes(data)
        return model, file, data

    def read(self, given: tuple[str, str, bytes]) -> None:
        load_backbone(str(self.folder / given[0]), device="cpu")
