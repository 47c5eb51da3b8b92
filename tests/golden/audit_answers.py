"""How the artifact's own rules, scores, tiles and metrics are answered: its dispatcher on explicit scores, and more."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from sightline import SELECTORS, Budget, Selection, TokenView
from sightline.backbones.towered import sequential_positions
from sightline.core.selection_rules import lineage_mask
from sightline.geometry.cells import tile_arrangement, tile_cells, tiled_canvas
from sightline.geometry.coverage import RegionGeometry
from sightline.selectors.controls import Random
from sightline.selectors.coverage_greedy import coverage_greedy
from sightline.selectors.rise import rise
from sightline.selectors.scores import Scored, focus_terms, uniqueness
from sightline.selectors.target import Target
from tests.golden.harness import Case, answers
from tests.golden_e2e.reference import from_artifact
from tests.unit.selectors.views import view


def view_of(cells: Any, boxes: Any = (), key: str = "") -> TokenView:
    cells, boxes = (torch.as_tensor(np.asarray(each), dtype=torch.float64).reshape(-1, 4) for each in (cells, boxes))
    return replace(view(torch.zeros(len(cells), 1)), cells=cells, boxes=boxes, key=key)


def kept(rule: str, scores: Any, uniqueness: Any, view: TokenView, k: int, **settings: Any) -> Tensor:
    """Ascending indices of the artifact's ``rule`` when the scores are given instead of computed."""
    # An explicit score stands where the target score would.
    name, arguments = from_artifact(f"target_embed_{rule}", **settings)
    selector = cast(Any, SELECTORS.get(name))(**arguments)
    n = view.cells.shape[0]
    if k >= n or not isinstance(selector, Scored):
        return cast(Tensor, selector.select(view, k).anchors)
    scores = torch.as_tensor(np.asarray(scores), dtype=torch.float64)
    if name in ("rise", "coverage_greedy"):
        given = torch.as_tensor(np.asarray(uniqueness), dtype=torch.float64)
        if name == "rise":
            return rise(scores, given, view.cells, k).sort().values
        return coverage_greedy(scores, given, view.cells, view.boxes, k, arguments["boost"]).sort().values
    return selector.choose(scores, view, k).sort().values


@answers(
    "audit_extra_selectors", "center_protected", "grid", "protected", "soft_evidence", "spatial_aware", "target_grid"
)
def audit_rule(case: Case) -> dict[str, Any]:
    inputs, params = case.inputs, case.params
    nothing = np.zeros(len(inputs["token_boxes_f64"]))
    relevance, unique = (inputs.get(f"{name}_f64", nothing) for name in ("relevance", "uniqueness"))
    shown = view_of(inputs["token_boxes_f64"], inputs.get("evidence_f64", ()))
    settings = {name: params[name] for name in ("hybrid_core_ratio", "hybrid_context_ratio", "evidence_boost")}
    return {"kept": kept(params["selector"], relevance, unique, shown, params["K"], **settings)}


@answers("random", "shuffled")
def drawn(case: Case) -> dict[str, Any]:
    params, shown = case.params, view_of(np.zeros((case.params["N"], 4)), key=case.params["salt"])
    if case.file == "random":
        return {"kept": Random(seed=params["seed"]).select(shown, params["K"]).anchors}
    return {"kept": kept("shuffled_topk", case.inputs["scores_f64"], None, shown, params["K"], seed=params["seed"])}


@answers("target")
def target(case: Case) -> dict[str, Any]:
    tokens = case.tensors["visual"]
    rows, columns = case.params["rows"], case.params["cols"]
    shown = replace(view(tokens, query=case.tensors["text"]), layout=((rows, columns),))
    selector = Target(weight=case.params["relevance_weight"], top=case.params["query_topk"])
    chosen = selector.select(shown, case.params["K"]).anchors
    return {"kept": chosen, "score": selector.scores(shown), "uniqueness": uniqueness(tokens, shown.layout)}


@answers("contract")
def contract(case: Case) -> dict[str, Any]:
    if case.name == "keep_count":
        pairs = zip(case.inputs["N"].tolist(), case.inputs["keep_ratio_f64"].tolist(), strict=True)
        return {"K": [Budget.ratio(keep).resolve(n) for n, keep in pairs]}
    if case.name == "position_ids":
        return positions(case)
    if case.name == "focus_terms":
        return {"terms_json": [json.dumps(focus_terms(question)) for question in case.inputs["question"].tolist()]}
    if case.name == "focus_single_word_kept":
        # A word survives iff it is a term of its own beside another one.
        return {"is_kept": [word in focus_terms(f"{word} zebra") for word in case.inputs["word"].tolist()]}
    return tiles(case)


def positions(case: Case) -> dict[str, Any]:
    keep = case.inputs["keep_sequence"]
    anchors = torch.from_numpy(np.flatnonzero(keep))
    return {policy: sequential_positions(len(keep), anchors, 0, policy)[0][0] for policy in ("compact", "preserve")}


def tiles(case: Case) -> dict[str, Any]:
    params = case.params
    tile = (params["tile_size"], params["tile_size"])
    canvas = tiled_canvas((params["width"], params["height"]), tile, params["min_patches"], params["max_patches"])
    count, grid = params["num_image_patches"], (params["patch_grid_h"], params["patch_grid_w"])
    columns, rows, thumbnail = tile_arrangement(canvas, count, strict=False)
    return {
        "token_boxes_f64": tile_cells(canvas, count, *grid, strict=False),
        "tile_cols": [columns],
        "tile_rows": [rows],
        "has_thumbnail": [thumbnail],
    }


@answers("provenance_metrics")
def provenance_metrics(case: Case) -> dict[str, Any]:
    if "anchor" in case.inputs:
        return {"lineage": lineage(case)}
    plane = RegionGeometry(case.inputs["token_boxes_f64"], case.inputs["evidence_f64"], union="sum_above_5000")
    found = plane.measure(case.inputs["kept"])
    measured = {f"{name}_f64": [getattr(found, name)] for name in ("center_recall", "patch_recall", "lpp", "geo_f1")}
    return {**measured, "coverage_f64": [found.ecr], "evidence_area_f64": [plane.area]}


def lineage(case: Case) -> Any:
    """A merge into contextual tokens leaves no source out; without them an output comes from its anchor alone."""
    n = case.params["N"]
    anchors = case.tensors["anchor"]
    anchors = anchors[anchors < n]
    mix = torch.zeros(len(anchors), n)
    mix[torch.arange(len(anchors)), anchors] = 1.0
    if case.params["contextual_tokens"] > 0:
        mix = torch.cat([mix, torch.ones(1, n)])
    return torch.nonzero(lineage_mask(Selection(anchors, mix), n)).squeeze(-1)
