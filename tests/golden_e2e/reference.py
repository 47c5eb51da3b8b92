"""The artifact's recorded runs, its names of selectors, and how each maps onto an arm under the artifact profile."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from sightline import SELECTORS, Budget, Probe, load_backbone, read_probes
from sightline.answering.materialise import SelectStep, all_needs
from sightline.arms import Arm, parse_arm
from sightline.backbones import ImageOptions, options_for
from sightline.backbones.clip import ClipSpace
from sightline.core.prefix import Encoded
from sightline.probes.images import open_image
from tests.conftest import DATA

PREFIX = "mini_textocr"


@dataclass(frozen=True, eq=False)
class Run:
    """One entry of the manifest with its per-probe records."""

    folder: Path
    entry: dict[str, Any]
    records: tuple[dict[str, Any], ...]

    @property
    def name(self) -> str:
        return str(self.entry["run"])

    @property
    def group(self) -> str:
        """Runs that can share encoded images: same model, preprocessing and probe file."""
        entry = self.entry
        return "-".join(str(entry.get(key, "")) for key in ("model", "image_processor", "min_pixels", "probes"))

    @property
    def method(self) -> str:
        name = str(self.entry["selector"])
        return f"{self.entry['model']} {'full' if name.startswith('none') else name}"


def find(folder: Path, name: str) -> Path:
    """A file of a golden folder, plain or gzipped; of the repository's own where that folder holds only records."""
    places = [root / f"{name}{ending}" for root in (folder, DATA / "golden_e2e") for ending in ("", ".gz")]
    return next((place for place in places if place.is_file()), places[0])


def read_runs(folder: Path) -> list[Run]:
    manifest = json.loads(find(folder, "manifest.json").read_text(encoding="utf-8"))
    records: dict[str, list[dict[str, Any]]] = {}
    for model in sorted({entry["model"] for entry in manifest["runs"]}):
        with gzip.open(folder / "runs" / f"{model}.jsonl.gz", "rt", encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                records.setdefault(record["run"], []).append(record)
    return [Run(folder, entry, tuple(records.get(entry["run"], ()))) for entry in manifest["runs"]]


SCORE_PREFIXES = (("target_embed_", "target"), ("embed_", "prompt"), ("", "overlap"))


def from_artifact(
    name: str,
    *,
    seed: int = 13,
    hybrid_core_ratio: float = 0.5,
    hybrid_context_ratio: float = 0.25,
    evidence_boost: float = 0.1,
    embedding_relevance_weight: float = 0.85,
    embedding_query_topk: int = 2,
    backbone: str = "",
) -> tuple[str, dict[str, Any]]:
    """The registered name and the arguments for one of the artifact's ``[target_]embed_X`` or bare ``X`` names.

    The keywords are the artifact's run settings under their own names and defaults. The prefix is the score source; a
    bare name scores by box overlap. ``backbone`` matters to ``rise`` and ``coverage_greedy`` with a bare name alone.
    """
    prefix, score = next((prefix, score) for prefix, score in SCORE_PREFIXES if name.startswith(prefix))
    rule = name.removeprefix(prefix)
    scored = {"score": score, "weight": embedding_relevance_weight, "top": int(embedding_query_topk)}
    mixture = {**scored, "core": hybrid_core_ratio, "context": hybrid_context_ratio}
    # Beside the overlap score only Qwen had a uniqueness; beside embedding scores all tiles were taken for one raster.
    beside_overlap = "evidence" if backbone.startswith("qwen") else "none"
    neighbours = {"neighbours": beside_overlap if score == "overlap" else "one_raster"}
    table: dict[str, tuple[str, dict[str, Any]]] = {
        "random": ("random", {"seed": seed, "salt": name}),
        "grid": ("grid", {"cells": "truncated"}),
        "center": ("center", {}),
        "topk": ("prompt" if score == "prompt" else "target", scored),
        "bottomk": ("bottom", scored),
        "shuffled_topk": ("shuffled", {**scored, "seed": seed}),
        "grid_topk": ("target_grid", {**scored, "reserve": hybrid_core_ratio, "cells": "truncated"}),
        "protected_topk": ("protected", {**scored, "reserve": hybrid_core_ratio}),
        "protected_center_topk": ("center_protected", scored),
        "soft_evidence_topk": ("soft_evidence", {**scored, "beta": evidence_boost}),
        "spatial_aware": ("spatial_aware", {**mixture, "rest": "farthest", "cells": "truncated"}),
        "hybrid": ("hybrid", mixture),
        "rel_hybrid": ("rel_hybrid", mixture),
        "soft_relboost": ("soft_relboost", mixture),
        "protected_rel_hybrid": ("protected_rel_hybrid", mixture),
        "rise": ("rise", {**scored, **neighbours}),
        "coverage_greedy": ("coverage_greedy", {**scored, **neighbours, "boost": max(0.5, evidence_boost)}),
    }
    if score == "overlap":
        table["topk"] = ("evidence_only", {"padding": "raster"})
        table["bottomk"] = ("anti_evidence", {"padding": "raster"})
    return table[rule]


def arm_of(run: Run, masks: Path) -> Arm:
    """The arm that reproduces a recorded run; a replayed run reads its masks from a file written to ``masks``."""
    entry = run.entry
    budget = Budget.ratio(entry["keep_ratio"])
    name = str(entry["selector"])
    if "replayed_masks" in entry:
        file = masks / f"{re.sub(r'[^a-z0-9]+', '_', run.name)}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in replayed(run)), encoding="utf-8")
        return parse_arm(f"masks:file={file}")
    if name.startswith("none") or entry["keep_ratio"] == 1.0:
        return parse_arm("full")
    if name in ("coin", "fastv"):
        return parse_arm(f"{name}:{budget}", profile="artifact")
    if name == "visionzip":
        return parse_arm(f"{'visionzip_qwen' if entry['model'] == 'qwen3vl' else name}:{budget}", profile="artifact")
    if name == "scope":
        return parse_arm(f"scope:{budget}:alpha={entry.get('scope_alpha', 1.0)}")
    if name == "anchorprune":
        smallest = f",k_min={int(entry['anchorprune_k_min'])}" if "anchorprune_k_min" in entry else ""
        return parse_arm(f"anchorprune:{budget}:tau={entry['anchorprune_tau']}{smallest}")
    settings = ("evidence_boost", "hybrid_core_ratio", "embedding_relevance_weight", "embedding_query_topk")
    given = {name: entry[name] for name in settings if name in entry}
    ours, arguments = from_artifact(name, seed=entry["seed"], backbone=entry["model"], **given)
    kind: Any = SELECTORS.get(ours)
    return Arm(kind(**arguments), budget, f"{ours}:{budget}")


def replayed(run: Run) -> list[dict[str, Any]]:
    """The masks that a replay was given: the intervention's own file where there is one, else the recorded indices.

    Like records, and unlike other inputs, masks cover only the images of their folder: none are borrowed from another.
    """
    variant = re.search(r"(qwen|internvl)\w*_indices/(\w+)\.jsonl$", run.entry["replayed_masks"])
    file = run.folder / "inputs" / f"deletion_restoration_{variant[1] if variant else ''}.jsonl.gz"
    if variant is None or not file.is_file():
        return [{"sample_id": record["sample_id"], "kept_indices": record["kept"]} for record in run.records]
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [row for row in rows if row["variant"] == variant[2]]


@cache
def options_of(data: Path, run: Run) -> ImageOptions:
    """The profile's, with the limits of the recorded run in place of the published ones."""
    entry = run.entry
    limits: dict[str, dict[str, Any]] = {
        "qwen3vl": {"min_pixels": entry.get("min_pixels"), "max_pixels": entry.get("max_pixels")},
        "llava": {},
        "internvl": {
            "min_tiles": entry.get("min_patches"),
            "max_tiles": entry.get("max_patches"),
            "tensor_resize": str(entry.get("image_processor", "")).startswith("torchvision"),
        },
    }
    return options_for(data / "tiny" / entry["model"], "artifact", limits[entry["model"]])


@cache
def step_of(data: Path, model: str, options: ImageOptions) -> SelectStep:
    place = str(data / "tiny" / model)
    backbone = load_backbone(place, dtype="float32", device="cpu", attention="eager", options=options)
    return SelectStep(backbone, ClipSpace(str(data / "tiny" / "clip"), backbone.language.device))


@cache
def probes_for(folder: Path, name: str) -> dict[tuple[str, str], Probe]:
    probes = read_probes(find(folder, f"inputs/{name}"), image_prefix=PREFIX).probes
    return {(probe.id, probe.view): probe for probe in probes}


class Encoder:
    """Encodes each image of a group of runs once, whichever runs ask for it; of the group before nothing is kept."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self._group = ""
        self._encoded: dict[tuple[ImageOptions, str, Any, tuple[str, ...]], Encoded] = {}

    def step(self, run: Run) -> SelectStep:
        return step_of(self.data, run.entry["model"], options_of(self.data, run))

    def encode(self, run: Run, arm: Arm, probe: Probe) -> Encoded:
        if run.group != self._group:
            self._group, self._encoded = run.group, {}
        backbone = self.step(run).backbone
        needs = tuple(sorted(all_needs([arm], backbone)))
        key = (options_of(self.data, run), probe.image, probe.occlude, needs)
        if key not in self._encoded:
            image = open_image(self.data / PREFIX, probe.image, occlude=probe.occlude)
            self._encoded[key] = backbone.encode([backbone.preprocess(image)], needs)[0]
        return self._encoded[key]
