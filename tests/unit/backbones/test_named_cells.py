"""What architectures declare about their tokens is what ramps find, and counts are those of their own processors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sightline.backbones.general import General
from sightline.backbones.idefics3 import Idefics3, scaled
from sightline.backbones.llava_next import StitchedTiles
from sightline.backbones.mistral3 import Mistral3
from sightline.backbones.prompting import Layout
from sightline.core.selection import Budget
from sightline.errors import SightlineError
from sightline.geometry.cells import token_blocks
from tests.unit.backbones.named import TYPES, general
from tests.zoo import NAMED
from tests.zoo.building import write

SIZES = [(200, 150), (57, 40), (120, 600), (620, 110), (900, 701), (56, 56)]
"""Ordinary, tiny, tall, wide, large, exactly one tile."""


@pytest.fixture(scope="module", params=TYPES)
def backbone(request: pytest.FixtureRequest, zoo: Callable[[str], Path]) -> General:
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
    assert layout == (joined(blocks, len(layout)) if isinstance(backbone, StitchedTiles) else blocks)


def joined(blocks: Layout, count: int) -> Layout:
    """Cells do not tell stitched tiles that lie one below the other from separate ones; the model stitches both."""
    base, *tiles = blocks
    if len(blocks) == count:
        return blocks
    assert len({columns for _, columns in tiles}) == 1
    return base, (sum(rows for rows, _ in tiles), tiles[0][1])


@pytest.fixture(scope="module")
def with_margins(tmp_path_factory: pytest.TempPathFactory) -> General:
    """OneVision whose patches do not fill a tile, as in the published one: 4 x 14 of 60 pixels (27 x 14 of 384)."""
    species = NAMED["llava_onevision"]
    pinpoints = [[60 * high, 60 * wide] for high in range(1, 7) for wide in range(1, 7)]
    vision = {**species.config["vision_config"], "image_size": 60}
    changed = replace(
        species,
        config={**species.config, "vision_config": vision, "image_grid_pinpoints": pinpoints},
        image_processor={
            **species.image_processor,
            "image_grid_pinpoints": pinpoints,
            "size": {"height": 60, "width": 60},
        },
    )
    return general(write(changed, tmp_path_factory.mktemp("margins")))


@pytest.mark.parametrize("size", [(200, 150), (620, 110)])
def test_margins_of_tiles_are_in_no_cell(with_margins: General, size: tuple[int, int]) -> None:
    check(with_margins, size)


@settings(max_examples=25, deadline=None)
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
def sized(request: pytest.FixtureRequest, zoo: Callable[[str], Path]) -> General:
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


def test_a_budget_below_one_tile_is_refused(zoo: Callable[[str], Path]) -> None:
    backbone = general(zoo("smolvlm"))
    assert isinstance(backbone, Idefics3)
    with pytest.raises(SightlineError, match="makes 4 visual tokens on SmolVLM when it is a single tile"):
        backbone.fitting((200, 150), 3)


def test_a_single_token_is_refused_where_the_model_cannot_read_one(zoo: Callable[[str], Path]) -> None:
    with pytest.raises(SightlineError, match="as 2 to 3 visual tokens"):
        general(zoo("mistral3")).fitting((200, 200), 3)


def test_pan_and_scan_is_refused(zoo: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = general(zoo("gemma3"))
    asked = {"do_pan_and_scan": True, "pan_and_scan_min_crop_size": 16}
    monkeypatch.setattr(backbone, "processor_arguments", lambda: asked)
    with pytest.raises(SightlineError, match="pans and scans"):
        backbone.plan((400, 100))
