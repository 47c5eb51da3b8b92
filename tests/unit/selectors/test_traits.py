"""What methods say about themselves, and the artifact's own vectors."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from safetensors import safe_open

from sightline.arms.arm import parse_arm
from sightline.backbones.base import BACKBONES
from sightline.boxes.sources import reads_boxes
from sightline.core.selection import PARITY_WORDS, Parity, Role, TwoStages, of_image
from sightline.cost.selection import Inputs
from sightline.geometry.coverage import RegionGeometry
from sightline.selectors import SELECTORS
from sightline.selectors.scores import Scored, relevance, top, uniqueness
from tests.conftest import DATA
from tests.golden.audit_answers import kept, view_of
from tests.heads import made

# What selectors say about themselves, against what they do.


CHOOSING = [name for name, kind in SELECTORS.items() if kind.role not in ("reference", "replay") and not kind.resizes]
BEFORE = [name for name in CHOOSING if not SELECTORS.get(name).inside]
SCORED = [name for name in BEFORE if issubclass(SELECTORS.get(name), Scored)]
N, K = 64, 20


def chosen(selector: Any, boxes: list[list[float]] | None = None) -> Any:
    inputs = Inputs(N, torch.device("cpu"), seed=0)
    if selector.inside and not isinstance(selector, TwoStages):
        return selector.cut(inputs.state(selector.needs), K)
    view = inputs.view(of_image(selector.needs))
    if boxes is not None:
        view = replace(view, boxes=torch.tensor(boxes, dtype=torch.float64).reshape(-1, 4))
    return selector.select(view, K)


@pytest.mark.parametrize("name", CHOOSING)
def test_a_method_merges_if_it_says_so(name: str) -> None:
    selector = made(name)
    assert (chosen(selector).mix is not None) is selector.merges


@pytest.mark.parametrize("text", [*BEFORE, *(f"{name}:score=overlap" for name in SCORED), "rise:neighbours=evidence"])
def test_other_boxes_change_the_choice_of_those_that_say_so_and_of_no_other(text: str) -> None:
    name, _, arguments = text.partition(":")
    selector: Any = parse_arm(f"{name}:0.3:{arguments}").selector if arguments else made(name)
    here, there = [[0.05, 0.05, 0.3, 0.3], [0.1, 0.6, 0.3, 0.9]], [[0.7, 0.7, 0.95, 0.95], [0.6, 0.1, 0.9, 0.2]]
    same = torch.equal(chosen(selector, here).anchors.sort().values, chosen(selector, there).anchors.sort().values)
    assert same is not selector.reads_boxes
    assert reads_boxes(selector) is selector.reads_boxes


def test_roles_are_few_and_known() -> None:
    of_role: dict[str, set[str]] = {role: set() for role in get_args(Role)}
    for name, kind in SELECTORS.items():
        of_role[kind.role].add(name)
    assert of_role["reference"] == {"full"}
    assert of_role["replay"] == {"masks"}
    assert of_role["control"] == {"random", "grid", "center", "shuffled", "bottom", "resize"}
    assert of_role["oracle"] == {"evidence_only", "anti_evidence"}
    assert {"target", "protected", "scope", "visionzip"} <= of_role["method"]


def test_promises_are_known_and_those_without_parity_data_say_so() -> None:
    assert set(PARITY_WORDS) == set(get_args(Parity))
    without = {name for name, kind in SELECTORS.items() if kind.parity == "paper-algorithm"}
    for name, kind in SELECTORS.items():
        assert kind.parity in PARITY_WORDS
        assert ("no parity data" in (kind.__doc__ or "")) is (name in without), name


def test_the_artifact_only_sets_arguments_that_exist_on_models_that_exist() -> None:
    for name, kind in SELECTORS.items():
        known: Any = kind
        for model_type, arguments in kind.artifact.items():
            assert model_type == "*" or model_type in BACKBONES, name
            assert set(arguments) <= {field.name for field in fields(known)}, name
            known(**arguments)


def test_a_method_batches_if_it_defines_how() -> None:
    batching = {name for name in BEFORE if made(name).batches}
    assert {"target", "scope", "divprune", "tome"} <= batching
    assert not {"random", "grid", "evidence_only"} & batching
    grid: Any = SELECTORS.get("grid")()
    views = [Inputs(N, torch.device("cpu"), seed).view(frozenset()) for seed in (0, 1)]
    assert [s.anchors.tolist() for s in grid.select_many(views, K)] == [chosen(grid).anchors.tolist()] * 2


# The paper's artifact on explicit scores and on real tokens: recorded scores, masks and their geometry.


VECTORS = json.loads((DATA / "protocol" / "golden_json" / "selectors.json").read_text())


@pytest.mark.parametrize(
    "case", VECTORS["cases"], ids=lambda c: f"{c['selector']}-{c['geometry']}-{c['rho']}-{c['evidence']}"
)
def test_artifact_mask_and_geometry(case: dict[str, Any]) -> None:
    rule, where, settings = case["selector"], case["geometry"], VECTORS["settings"]
    cells, regions = VECTORS["boxes"][where], VECTORS["evidence"][case["evidence"]]
    view = view_of(cells, regions, key=settings["salt"].format(rho=case["rho"], selector=rule))
    mask = kept(
        rule,
        VECTORS["scores"][where],
        VECTORS["uniqueness"][where],
        view,
        case["K"],
        seed=settings["seed"],
        hybrid_core_ratio=settings["spatial_aware_core" if rule == "spatial_aware" else "hybrid_core"],
        hybrid_context_ratio=settings["hybrid_context"],
        evidence_boost=0.05 if rule == "soft_evidence_topk" else 0.10,
    )
    assert mask.tolist() == case["indices"]
    found = RegionGeometry(cells, regions).measure(mask)
    assert found.ecr == pytest.approx(case["ecr"], abs=1e-9)
    assert found.center_recall == pytest.approx(case["center"], abs=1e-12)
    assert found.patch_recall == pytest.approx(case["patch"], abs=1e-12)
    if case["lpp"] is not None:
        assert found.lpp == pytest.approx(case["lpp"], abs=1e-9)


@pytest.mark.parametrize("index", range(12))
def test_scores_of_real_tokens(index: int, data: Path) -> None:
    """Projected tokens and target spans of the tiny checkpoints: relevance, uniqueness and the Target mask."""
    folder = data / "golden_e2e"
    sample = json.loads((folder / "samples_shared.json").read_text())[index]
    model, probe = sample["model"], sample["sample_id"]
    arrays = np.load(folder / "samples_shared.npz")
    tokens, score, unlike = (
        torch.from_numpy(arrays[f"{model}/{probe}/{name}"]) for name in ("visual_embeds", "score", "uniqueness")
    )
    ids = [token for token, count in sample["yes_ids_run_length"] for _ in range(count)]
    with safe_open(data / "tiny" / model / "model.safetensors", "pt") as weights:
        table = next(weights.get_tensor(key) for key in weights.keys() if key.endswith("embed_tokens.weight"))  # noqa: SIM118
    query = table[[ids[position] for position in sample["target_positions"]]]
    torch.testing.assert_close(relevance(tokens, query), score, atol=2e-6, rtol=0)
    # The artifact lays all tiles of InternVL side by side; Qwen's images of this set are 12 x 16 or 16 x 12 tokens.
    rows = {"llava": [24], "internvl": [8], "qwen3vl": [12, 16]}[model]
    differences = [float((uniqueness(tokens, ((r, len(tokens) // r),)) - unlike).abs().max()) for r in rows]
    assert min(differences) < 1e-6
    assert top(relevance(tokens, query).double(), len(sample["kept_indices"])).tolist() == sample["kept_indices"]
