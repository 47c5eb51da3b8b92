"""What a checkpoint has beside its weights: descriptions that no model must be loaded to refuse."""

from __future__ import annotations

import json
import shutil
from random import Random

import transformers

from sightline.backbones.loading import Served, choose_dtype, load_backbone, options_for
from sightline.errors import SightlineError
from sightline.selectors import SELECTORS
from tests.conftest import DATA
from tests.fuzz import mutations
from tests.fuzz.subjects.base import Subject

MODELS = ("llava", "qwen3vl", "internvl")


class Checkpoints(Subject):
    """``config.json`` alone, as ``selectors --model`` and the checks before a run read it."""

    name = "checkpoint configs"
    share = 4
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


class LoadedCheckpoints(Subject):
    """Every other file, and the weights: all of it is really loaded."""

    name = "checkpoint loads"
    share = 0.5

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
