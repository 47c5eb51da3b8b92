"""A folder with a model in OpenVINO's format, as it describes itself: nothing is loaded."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import Any

from sightline.engines.base import TokenGrid
from sightline.errors import SightlineError

LANGUAGE = "openvino_language_model"
"""Name of the language model's two files."""


class Export:
    """What its files say; refused where they describe no model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / f"{LANGUAGE}.xml").is_file():
            raise SightlineError(
                f"{folder} is no exported model: it has no {LANGUAGE}.xml; "
                f"`sightline engines export CHECKPOINT {folder}` says how to make one"
            )
        self.config = self._read("config.json")
        self.text: dict[str, Any] = self.config.get("text_config") or self.config
        self.images = self._read("preprocessor_config.json")

    def _read(self, name: str) -> dict[str, Any]:
        try:
            read = json.loads((self.folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise SightlineError(f"{self.folder / name} cannot be read: {error}") from None
        if not isinstance(read, dict):
            raise SightlineError(f"{self.folder / name} does not describe a model: it is no JSON object")
        return read

    @property
    def vocabulary(self) -> int:
        return int(self.text["vocab_size"])

    @property
    def longest(self) -> int:
        """Positions that the model knows."""
        return int(self.text.get("max_position_embeddings") or 2**18)

    @cached_property
    def stops(self) -> list[int]:
        """Token ids that end an answer."""
        said = self._read("generation_config.json") if (self.folder / "generation_config.json").is_file() else {}
        for place in (said, self.text, self.config):
            if place.get("eos_token_id") is not None:
                ids = place["eos_token_id"]
                return [int(token) for token in (ids if isinstance(ids, list) else [ids])]
        raise SightlineError(f"{self.folder} does not say which token ends an answer: no eos_token_id")

    @property
    def qwen(self) -> bool:
        """Whether images are divided as Qwen's models do."""
        return str(self.images.get("image_processor_type", "")).startswith("Qwen2VL")

    @property
    def edge(self) -> int:
        """Pixels along the side of a token's cell in the resized image."""
        return int(self.images["patch_size"]) * int(self.images["merge_size"])

    def grid(self, size: tuple[int, int]) -> TokenGrid | None:
        if not self.qwen:
            return None
        size_of = self.images.get("size") or {}
        fewest = self.images.get("min_pixels") or size_of["shortest_edge"]
        most = self.images.get("max_pixels") or size_of["longest_edge"]
        width, height = size
        rows, columns = (cells(side, self.edge) for side in (height, width))
        if rows * columns * self.edge**2 > most:
            shrunk = math.sqrt(height * width / most) * self.edge
            rows, columns = math.floor(height / shrunk), math.floor(width / shrunk)
        elif rows * columns * self.edge**2 < fewest:
            grown = math.sqrt(fewest / (height * width)) / self.edge
            rows, columns = math.ceil(height * grown), math.ceil(width * grown)
        if not rows * columns:
            raise SightlineError(
                f"OpenVINO makes an image of no height or width out of one of {width} x {height} pixels"
            )
        return TokenGrid(rows, columns, self.edge**2)

    @cached_property
    def digest(self) -> str:
        """SHA-256 over names and contents of all of the model's files, tokenizer included, in OpenVINO's format."""
        digest = hashlib.sha256()
        for file in sorted((*self.folder.glob("openvino_*.xml"), *self.folder.glob("openvino_*.bin"))):
            digest.update(file.name.encode())
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        return f"sha256:{digest.hexdigest()}"

    @property
    def description(self) -> str:
        """The same of what describes it: configuration, chat template, image processor."""
        digest = hashlib.sha256()
        for file in sorted((*self.folder.glob("*.json"), *self.folder.glob("*.jinja"))):
            digest.update(file.name.encode() + hashlib.sha256(file.read_bytes()).digest())
        return f"sha256:{digest.hexdigest()}"

    @cached_property
    def _language(self) -> str:
        return (self.folder / f"{LANGUAGE}.xml").read_text(encoding="utf-8")

    def option(self, name: str) -> str | None:
        """What the export itself asks of the engine; it goes before the device's own choice."""
        found = re.search(rf'<{name} value="(\w+)"', self._language.rpartition("<runtime_options>")[2])
        return found[1] if found else None

    @property
    def dtype(self) -> str:
        """Of most of the language model's weights, by bytes."""
        constant = re.compile(r'<layer [^>]*type="Const"[^>]*>\s*<data element_type="(\w+)"[^>]*size="(\d+)"')
        sizes: Counter[str] = Counter()
        for kind, size in constant.findall(self._language):
            sizes[kind] += int(size)
        return max(sizes, key=sizes.__getitem__, default="unknown")


def cells(side: int, edge: int) -> int:
    """Rounded as the engine does it: a half goes up, where ``round`` and transformers go to the even number."""
    return math.floor(side / edge + 0.5)


# From a checkpoint to such a folder: the commands, and an environment of its own to run them in.
#
# The exporter needs another version of transformers than Sightline does, so it gets its own environment. It also asks
# for torchvision without needing it for an export, and the published one may not fit the installed torch: all that it
# really needs is installed first, then the exporter alone.

EXPORTER = "optimum-intel==2.2.0"
PACKAGES = (
    "huggingface-hub==1.21.0", "nncf==3.4.0", "openvino==2026.4.1", "openvino-tokenizers==2026.4.1.0",
    "optimum==2.3.0", "pillow", "requests", "setuptools", "torch==2.13.0", "transformers==5.0.0",
)  # fmt: skip
"""Versions that were seen to export Qwen3-VL together; transformers 5.1 and later are refused for it."""


def steps(checkpoint: str, folder: Path, environment: Path, weights: str | None = None) -> list[list[str]]:
    """Commands in order; those that make the environment only where there is none with an exporter."""
    scripts = environment / ("Scripts" if os.name == "nt" else "bin")
    exporter = scripts / "optimum-cli"
    install = [str(scripts / "python"), "-m", "pip", "install"]
    made = [[sys.executable, "-m", "venv", str(environment)], [*install, *PACKAGES], [*install, "--no-deps", EXPORTER]]
    export = [str(exporter), "export", "openvino", "--model", checkpoint, "--task", "image-text-to-text"]
    if weights is not None:
        export += ["--weight-format", weights]
    return [*([] if exporter.with_suffix(".exe").exists() or exporter.exists() else made), [*export, str(folder)]]


def export(checkpoint: str, folder: Path, environment: Path, weights: str | None = None) -> None:
    """Runs them, their output shown as it comes; the folder must not exist or be empty."""
    if folder.is_dir() and any(folder.iterdir()):
        raise SightlineError(f"{folder} is not empty; name a new folder for the export")
    for step in steps(checkpoint, folder, environment, weights):
        try:
            done = subprocess.run(step, check=False)
        except OSError as error:
            raise SightlineError(f"cannot run {shlex.join(step)}: {error.strerror or error}") from None
        if done.returncode:
            raise SightlineError(f"this command failed with exit code {done.returncode}: {shlex.join(step)}")
