from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

from sightline.backbones.towered import sequential_positions
from sightline.core.selection import Budget
from sightline.geometry.cells import tile_arrangement, tile_cells, tiled_canvas
from sightline.selectors.scores import focus_terms
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
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
