"""Architectures that declare for the general route what it would find: cells, and signals of their towers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sightline.backbones import load_backbone
from sightline.backbones.general import General
from sightline.backbones.idefics3 import Idefics3, scaled
from sightline.backbones.llava_next import StitchedTiles
from sightline.backbones.loading import Served, methods_that_run
from sightline.backbones.mistral3 import Mistral3
from sightline.checks.doctor import examined
from sightline.core.selection import Budget
from sightline.errors import SightlineError
from sightline.geometry.cells import grid_cells, token_blocks
from tests.refusals import Refused
from tests.unit.backbones.named import TYPES, Zoo, general, photograph
from tests.zoo import NAMED
from tests.zoo.building import write

# What architectures declare about their tokens is what ramps find, and counts are those of their own processors.


SIZES = [(200, 150), (57, 40), (120, 600), (620, 110), (900, 701), (56, 56)]
"""Ordinary, tiny, tall, wide, large, exactly one tile."""


@pytest.fixture(scope="module", params=TYPES)
def backbone(request: pytest.FixtureRequest, zoo: Zoo) -> General:
    return general(zoo(request.param))


@pytest.mark.parametrize("size", SIZES)
def test_declared_cells_are_the_found_ones(backbone: General, size: tuple[int, int]) -> None:
    check(backbone, size)


def check(backbone: General, size: tuple[int, int]) -> None:
    found = backbone.found_cells(size)
    cells, sourced, layout = backbone.cells(size, backbone.image_inputs(Image.new("RGB", size)))
    np.testing.assert_array_equal(sourced, found.sourced)
    assert cells.shape == (int(sourced.sum()), 4)
    difference = np.abs(np.clip(cells, 0, 1) - found.cells[found.sourced]) * np.tile(size, 2)
    assert difference.max() < 1, "in source pixels"
    blocks = token_blocks(found.cells[found.sourced], found.tiles[found.sourced])
    if isinstance(backbone, StitchedTiles) and len(blocks) > len(layout):
        # Cells do not tell stitched tiles that lie one below the other from separate ones; the model stitches both.
        base, *tiles = blocks
        (columns,) = {columns for _, columns in tiles}
        blocks = base, (sum(rows for rows, _ in tiles), columns)
    assert layout == blocks


def test_margins_of_tiles_are_in_no_cell(tmp_path: Path) -> None:
    """OneVision whose patches do not fill a tile, as in the published one: 4 x 14 of 60 pixels (27 x 14 of 384)."""
    species = NAMED["llava_onevision"]
    pinpoints = {"image_grid_pinpoints": [[60 * high, 60 * wide] for high in range(1, 7) for wide in range(1, 7)]}
    vision = {**species.config["vision_config"], "image_size": 60}
    changed = replace(
        species,
        config={**species.config, "vision_config": vision, **pinpoints},
        image_processor={**species.image_processor, **pinpoints, "size": {"height": 60, "width": 60}},
    )
    with_margins = general(write(changed, tmp_path / "margins"))
    for size in ((200, 150), (620, 110)):
        check(with_margins, size)


@settings(max_examples=25)
@given(size=st.tuples(st.integers(8, 700), st.integers(8, 700)))
def test_there_are_as_many_cells_as_placeholders_whatever_the_size(backbone: General, size: tuple[int, int]) -> None:
    """Working out the plan compares the two."""
    if isinstance(backbone, Mistral3) and np.prod(backbone.grid(size)) == 1:
        with pytest.raises(SightlineError, match="a single visual token"):
            backbone.plan(size)
        return
    plan = backbone.plan(size)
    assert plan.n == len(plan.cells) == sum(rows * columns for rows, columns in plan.layout)
    assert len(backbone.token_rows(size)) == plan.n


# ---------------------------------------------------------------------- the image shown smaller


@pytest.fixture(params=[name for name in TYPES if name in ("idefics3", "smolvlm", "mistral3")])
def sized(request: pytest.FixtureRequest, zoo: Zoo) -> General:
    return general(zoo(request.param))


@pytest.mark.parametrize("size", SIZES[:4])
@pytest.mark.parametrize("share", [0.8, 0.5, 0.35])
def test_a_smaller_image_makes_at_most_the_budget(sized: General, size: tuple[int, int], share: float) -> None:
    budget = Budget.ratio(share)
    fit = sized.fit(size, budget)
    fewer = sized.under(fit.options)
    assert fewer.token_count(size) <= budget.resolve(fit.usual_n) < fit.usual_n
    assert fit.usual_slots == len(sized.span_ids(size)) > fit.usual_n
    assert np.prod(fewer.shown_size(size)) < np.prod(sized.shown_size(size))
    found = fewer.found_cells(size)
    difference = np.abs(found.cells[found.sourced] - fewer.plan(size).cells) * np.tile(size, 2)
    # Idefics3 resizes twice. Near the border a ramp bends by less than a pixel of the smaller picture in between.
    between = fewer.shown_size(size)
    if isinstance(fewer, Idefics3):
        assert fewer.options.longest_edge is not None
        between = scaled(size, fewer.options.longest_edge)
    assert (difference < np.tile(np.maximum(1, np.divide(size, between)), 2)).all()


def test_a_budget_below_what_a_model_can_read_is_refused(zoo: Zoo, refused: Refused) -> None:
    refused("4 visual tokens on SmolVLM when it is a single tile", general(zoo("smolvlm")).fitting, (200, 150), 3)
    refused("as 2 to 3 visual tokens", general(zoo("mistral3")).fitting, (200, 200), 3)


@pytest.mark.parametrize(("size", "crops"), [
    ((900, 300), [(0, 0, 1 / 3, 1), (1 / 3, 0, 2 / 3, 1), (2 / 3, 0, 1, 1)]),
    ((300, 600), [(0, 0, 1, 0.5), (0, 0.5, 1, 1)]),
    ((300, 300), []),
])  # fmt: skip
def test_crops_of_pan_and_scan_are_tiles_in_their_places(
    zoo: Zoo, size: tuple[int, int], crops: list[tuple[float, ...]]
) -> None:
    """The sentences that announce them are the processor's, and what stands before the first picture stays."""
    backbone = load_backbone(str(zoo("gemma3")), dtype="float32", device="cpu", options={"pan_and_scan": True})
    assert isinstance(backbone, General)
    backbone.identity = {}
    plan = backbone.plan(size)
    assert plan.layout == ((4, 4),) * (1 + len(crops))
    for tile, (left, top, right, bottom) in zip(plan.cells.reshape(-1, 16, 4), [(0, 0, 1, 1), *crops], strict=True):
        expected = grid_cells(4, 4) * ([right - left, bottom - top] * 2) + ([left, top] * 2)
        assert np.abs((tile - expected) * np.tile(size, 2)).max() < 1
    before = plan.between < plan.features[0]
    assert (plan.owners[before] == torch.tensor([0, plan.n])).all()
    found = examined(backbone, photograph(*size), "gemma3", methods=False)
    assert [check.words for check in found if not check.passed] == []


# Methods that a tower serves.


def test_a_tower_without_class_token_behind_llava_next_serves_no_method_that_reads_one(
    zoo: Zoo,
) -> None:
    methods = methods_that_run(Served.by(general(zoo("granite_vision"))))
    for name in ("scope", "hired", "prumerge"):
        assert "its vision tower has no class token" in methods[name], name
        assert "no form of it is published" in methods[name], name
    assert {methods[name] for name in ("fastervlm", "vispruner", "holov", "visionzip")} == {"yes, in another form"}
    assert methods["visionzip_qwen"] == methods["tome"] == "yes", "they read keys and attention of the patches"
    assert methods == methods_that_run(Served.by_description(zoo("granite_vision"))), "told before anything is loaded"
    assert general(zoo("llava_next")).class_token


@pytest.mark.parametrize(("layers", "said"), [([-2, -3], "hidden states -2, -3"), (-1, "hidden state -1")])
def test_states_are_merged_only_where_the_projector_reads_those_that_methods_merge(
    layers: Any, said: str, zoo: Zoo, data: Path, tmp_path: Path
) -> None:
    species = NAMED["llava_next"]
    folder = write(replace(species, config={**species.config, "vision_feature_layer": layers}), tmp_path / "next")
    llava = tmp_path / "llava"
    llava.mkdir()
    config = json.loads((data / "tiny" / "llava" / "config.json").read_text())
    (llava / "config.json").write_text(json.dumps({**config, "vision_feature_layer": layers}))
    for served in (Served.by(general(folder)), Served.by_description(folder), Served.by_description(llava)):
        methods = methods_that_run(served)
        for name in ("visionzip", "prumerge_plus"):
            assert methods[name] == "yes, in another form", "which merges tokens"
        assert f"no: it merges states -2 of the vision tower, and the projector reads {said}" in methods["prumerge"]
        assert methods["fastervlm"] == "yes"
