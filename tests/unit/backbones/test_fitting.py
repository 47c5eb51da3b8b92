"""Images made smaller, for as many tokens as a budget allows; bounds on the pixels of images in their proportions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.backbones import BACKBONES, Backbone, images, load_backbone, options_for
from sightline.backbones.base import processor_inputs
from sightline.backbones.execution import CapturedVision
from sightline.backbones.general import General
from sightline.backbones.internvl import InternVL
from sightline.backbones.loading import Served
from sightline.backbones.processors import SpanPlanning
from sightline.backbones.qwen2_vl import NativeResolution
from sightline.backbones.qwen3_vl import resized_size
from sightline.core.selection import Budget
from sightline.errors import SightlineError
from sightline.geometry.coverage import RegionGeometry
from sightline.selectors import SELECTORS
from tests.refusals import Refused
from tests.towered import towered
from tests.unit.backbones.named import Zoo, architecture, photograph

TYPES = ("qwen2_vl", "qwen2_5_vl", "glm4v", "glm46v", "glm_ocr")
SIZES = [(640, 448), (448, 448), (200, 900), (61, 47), (900, 33), (33, 30)]
"""(width, height): wide, square, high, small enough to be enlarged, a strip, hardly more than a token."""
KEEPS = [Budget.ratio(keep) for keep in (0.01, 0.1, 0.25, 0.3, 0.5, 0.77, 0.99, 1.0)]


def backbone_of(data: Path, model: str, **options: Any) -> Backbone:
    return load_backbone(str(data / "tiny" / model), dtype="float32", device="cpu", options=options)


@pytest.fixture(scope="module")
def qwen(data: Path) -> Backbone:
    return backbone_of(data, "qwen3vl", max_pixels=100352)


@pytest.fixture(scope="module")
def internvl(data: Path) -> InternVL:
    loaded = backbone_of(data, "internvl")
    assert isinstance(loaded, InternVL)
    return loaded


@pytest.fixture(scope="module")
def loaded(zoo: Zoo) -> Callable[[str], Backbone]:
    return cache(lambda name: architecture(name, zoo))


@pytest.fixture(scope="module", params=["shipped-qwen3vl", *TYPES])
def backbone(request: pytest.FixtureRequest, loaded: Callable[[str], Backbone]) -> Backbone:
    """One that shows images in their own proportions."""
    return loaded(request.param)


@pytest.fixture(scope="module", params=TYPES)
def native(request: pytest.FixtureRequest, loaded: Callable[[str], Backbone]) -> NativeResolution:
    found = loaded(request.param)
    assert isinstance(found, NativeResolution)
    return found


@pytest.mark.parametrize("model", ["qwen3vl", "llava", "internvl"])
@pytest.mark.parametrize("profile", ["paper", "artifact"])
def test_tokens_are_counted_without_encoding(data: Path, model: str, profile: Any) -> None:
    folder = data / "tiny" / model
    # The artifact's own pixels take minutes in a tiny tower; its way of resizing twice is what matters here.
    fewer = {"min_pixels": 50176, "max_pixels": 50176} if model == "qwen3vl" and profile == "artifact" else {}
    backbone = load_backbone(str(folder), dtype="float32", device="cpu", options=options_for(folder, profile, fewer))
    for size in SIZES[:4]:
        (encoded,) = backbone.encode([backbone.preprocess(photograph(*size))])
        assert backbone.token_count(size) == encoded.n == encoded.full_n
        assert encoded.usual_n is None


def possible_counts(backbone: Backbone, size: tuple[int, int]) -> set[int]:
    """Tokens that an image of this size makes under any bound on its pixels."""
    area = int(backbone.image_processor.patch_size * backbone.image_processor.merge_size) ** 2
    most = backbone.token_count(size) * area
    if isinstance(backbone, NativeResolution):
        counted, fewest = backbone.counted, backbone.bounds()[0]
        bounds = ((min(fewest, pixels * counted), pixels * counted) for pixels in range(1, most + 1, 97))
        asked = [backbone.resized(size, *bound) for bound in bounds]
    else:
        fewest, factor = backbone.image_processor.size["shortest_edge"], math.isqrt(area)
        pixels = range(1, most + 1, 7)
        asked = [resized_size(size[1], size[0], factor, min(fewest, each), each) for each in pixels]
    return {math.prod(shown) // area for shown in asked}


@pytest.mark.parametrize("size", SIZES)
def test_the_most_tokens_within_the_budget_that_any_number_of_pixels_makes(
    backbone: Backbone, size: tuple[int, int]
) -> None:
    n, possible = backbone.token_count(size), possible_counts(backbone, size)
    for budget in KEEPS:
        k, fit = budget.resolve(n), backbone.fit(size, budget)
        made = backbone.under(fit.options).token_count(size)
        assert fit.usual_n == n
        assert max(count for count in possible if count <= k) <= made <= k
    for budget in (Budget.ratio(1.0), Budget.tokens(10_000)):
        assert backbone.fit(size, budget).options is backbone.options, "met already"


@pytest.mark.parametrize("size", SIZES[:4])
def test_a_smaller_image_is_what_the_processor_makes_when_asked_for_less(
    backbone: Backbone, size: tuple[int, int]
) -> None:
    image = photograph(*size)
    pixels = backbone.preprocess(image, budget=Budget.ratio(0.3))
    smaller = backbone.under(pixels.options)
    assert math.prod(smaller.shown_size(size)) < math.prod(backbone.shown_size(size))
    assert torch.equal(pixels.data, processor_inputs(smaller, image)["pixel_values"])
    usual, small = backbone.encode([backbone.preprocess(image), pixels])
    ((rows, columns),) = small.layout
    assert small.n == rows * columns == len(small.cells) < usual.n
    assert small.usual_n == small.full_n == usual.n == backbone.token_count(size)
    areas = (small.cells[:, 2] - small.cells[:, 0]) * (small.cells[:, 3] - small.cells[:, 1])
    assert areas.sum() == pytest.approx(1.0), "cells tile all of it"
    everything = np.ones(small.n, dtype=bool)
    region = RegionGeometry(small.cells, [(0.013, 0.2, 0.71, 0.93)])
    assert region.measure(everything, everything).ecr == pytest.approx(1.0)


def test_the_run_goes_on_with_its_own_options(qwen: Backbone) -> None:
    image, budget = photograph(640, 448), Budget.ratio(0.3)
    before, small, after = (qwen.preprocess(image, budget=each) for each in (None, budget, None))
    assert before.grid == after.grid != small.grid
    assert torch.equal(before.data, after.data)
    mixed = [qwen.encode([before])[0], qwen.encode([small])[0]]
    for alone, batched in zip(mixed, qwen.encode([before, small]), strict=True):
        assert (alone.layout, alone.usual_n) == (batched.layout, batched.usual_n)
        torch.testing.assert_close(alone.tokens, batched.tokens, atol=1e-5, rtol=1e-5)


def test_a_captured_tower_encodes_smaller_images_of_one_shape(qwen: Backbone) -> None:
    image, budget = photograph(640, 448), Budget.ratio(0.3)
    captured = CapturedVision(towered(qwen), qwen.preprocess(image, budget=budget), frozenset())
    for shown in (image, image.transpose(Image.Transpose.FLIP_TOP_BOTTOM)):
        pixels = qwen.preprocess(shown, budget=budget)
        (plain,), replayed = qwen.encode([pixels]), captured(pixels)
        assert torch.equal(plain.tokens, replayed.tokens)
        assert replayed.usual_n == plain.usual_n == qwen.token_count((640, 448))


def test_the_artifacts_double_resize_becomes_one(data: Path) -> None:
    folder = data / "tiny" / "qwen3vl"
    options = options_for(folder, "artifact", {"min_pixels": 50176, "max_pixels": 50176})
    backbone = load_backbone(str(folder), dtype="float32", device="cpu", options=options)
    fit = backbone.fit((640, 448), Budget.ratio(0.3))
    kept = {"jpeg_quality": 85, "first_resize_factor": None}
    assert {name: getattr(fit.options, name) for name in kept} == kept
    assert backbone.under(fit.options).token_count((640, 448)) <= Budget.ratio(0.3).resolve(fit.usual_n)


@pytest.mark.parametrize("size", [(900, 600), (600, 900), (1200, 300), (448, 448)])
def test_a_canvas_with_as_many_tiles_as_the_budget_allows(internvl: InternVL, size: tuple[int, int]) -> None:
    tile = math.prod(internvl.tile_grid)
    n = internvl.token_count(size)
    counts = {
        most: internvl.under(replace(internvl.options, max_tiles=most)).token_count(size)
        for most in range(1, int(internvl.image_processor.max_patches) + 1)
    }
    for k in (tile, 2 * tile, 3 * tile, 4 * tile, 6 * tile, 9 * tile):
        made = internvl.under(internvl.fit(size, Budget.tokens(k)).options).token_count(size)
        assert made == max(count for count in counts.values() if count <= min(k, n))
        assert made % tile == 0
    image = photograph(*size)
    pixels = internvl.preprocess(image, budget=Budget.tokens(4 * tile))
    assert torch.equal(pixels.data, processor_inputs(internvl.under(pixels.options), image)["pixel_values"])
    (encoded,) = internvl.encode([pixels])
    assert len(encoded.layout) == pixels.grid[0] <= 4
    assert encoded.usual_n == n


def test_a_budget_that_no_image_meets_is_refused_in_words(internvl: InternVL, data: Path, refused: Refused) -> None:
    tile = math.prod(internvl.tile_grid)
    refused(f"the budget is {tile - 1}", internvl.fit, (640, 448), Budget.tokens(tile - 1))
    side = int(internvl.image_processor.size["width"])
    one = internvl.under(internvl.fit((640, 448), Budget.tokens(tile)).options)
    assert one.shown_size((640, 448)) == (side, side)
    assert "576 tokens" in str(BACKBONES.get("llava").fixed_tokens)
    refused("Llava makes no smaller images", backbone_of(data, "llava").fit, (640, 448), Budget.ratio(0.3))


@pytest.mark.parametrize("model", ["qwen3vl", "internvl"])
def test_bytes_that_a_device_makes_smaller_become_the_hosts_pixels(data: Path, model: str) -> None:
    """On a GPU the host hands over bytes; what of them the device makes depends on the image's own options."""
    backbone, image = towered(backbone_of(data, model)), photograph(900, 600)
    prepared = backbone.preprocess(image, budget=Budget.ratio(0.5))
    to_device = replace(prepared, data=towered(backbone.under(prepared.options)).image_bytes(image))
    assert to_device.data.dtype == torch.uint8
    assert torch.equal(backbone.tower_inputs([to_device]), backbone.tower_inputs([prepared]))
    captured = CapturedVision(backbone, to_device, frozenset())
    assert torch.equal(captured(to_device).tokens, backbone.encode([prepared])[0].tokens)


# Bounds on the pixels of the image itself. Types whose processor is known cut patches themselves.


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_tokens_patches_and_ids_are_those_of_the_checkpoints_processor(
    native: NativeResolution, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = photograph(*size)
    _, high, wide = native.image_inputs(picture)["image_grid_thw"][0].tolist()
    assert native.shown_size(size) == (wide * 14, high * 14)
    assert native.token_grid(size) == (high // 2, wide // 2)
    assert native.token_count(size) == high * wide // 4
    for bound, least, most in (({"max_pixels": 9 * 784}, 0, 9), ({"min_pixels": 40 * 784}, 40, math.inf)):
        shown = native.under(native.image_options(**bound))
        grid = shown.image_inputs(picture)["image_grid_thw"][0].tolist()
        assert math.prod(grid) == shown.token_count(size) * 4
        assert least <= shown.token_count(size) <= most or size == (900, 33), "a strip is never so small"
    assert native.knows_processor
    ours, (data, _, inputs) = native.preprocess(picture), General.prepared(native, picture, None)
    theirs = replace(ours, data=data, inputs=inputs)
    assert torch.equal(ours.data, data)
    assert ours.inputs["image_grid_thw"].tolist() == inputs["image_grid_thw"].tolist() == [list(ours.grid)]
    assert native.written_for(size)[0] == SpanPlanning.written_for(native, size)[0]

    def by_tensors(source: images.Size, target: images.Size, kind: int, device: torch.device) -> images.Resize:
        return images.by_tensors(source, target, kind, device, "pillow")

    monkeypatch.setattr(images, "resizer", by_tensors)
    raw = replace(ours, data=images.image_bytes(picture, torch.device("cpu")))
    assert torch.equal(native.encode([raw])[0].tokens, native.encode([theirs])[0].tokens)


def refusal(served: Served, method: Any) -> str:
    try:
        served.refuse(method, clip=True)
    except SightlineError as error:
        return str(error)
    return ""


def test_methods_are_refused_alike_before_the_model_is_loaded(native: NativeResolution, zoo: Zoo) -> None:
    loaded, described = Served.by(native), Served.by_description(zoo(native.model.config.model_type))
    for _, kind in SELECTORS.items():
        if not kind.needs_file:
            assert refusal(loaded, kind()) == refusal(described, kind())


def test_an_image_that_is_all_length_is_refused_in_words(native: NativeResolution) -> None:
    with pytest.raises(SightlineError, match=f"cannot be resized for {type(native).__name__}: absolute aspect ratio"):
        native.shown_size((28 * 300, 28))


def test_a_processor_that_does_not_resize_is_noticed(
    native: NativeResolution, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    assert native.knows_processor
    monkeypatch.delitem(vars(native), "knows_processor")  # it is tried anew
    monkeypatch.setattr(native.image_processor, "do_resize", False)
    monkeypatch.setattr(native, "plans", {})
    refused(f"{type(native).__name__}: the processor makes 40 x 60 patches", native.plan, (840, 560))


def test_bounds_are_read_by_name_and_refused_when_they_cross(zoo: Zoo, refused: Refused) -> None:
    bounded = load_backbone(str(zoo("glm4v")), dtype="float32", device="cpu", options={"max_pixels": 4 * 784})
    assert bounded.token_count((300, 200)) <= 4
    crossed = {"min_pixels": 20, "max_pixels": 10}
    refused("min_pixels = 20 is above max_pixels = 10", load_backbone, str(zoo("glm4v")), options=crossed)


def test_a_processor_that_does_something_else_does_it_itself(zoo: Zoo) -> None:
    other = load_backbone(str(zoo("qwen2_5_vl")), dtype="float32", device="cpu")
    assert isinstance(other, NativeResolution)
    other.image_processor.do_normalize = False
    assert not other.knows_processor
    pixels = other.preprocess(photograph(300, 200))
    expected = other.image_processor(images=photograph(300, 200), return_tensors="pt")["pixel_values"]
    assert torch.equal(pixels.data, expected)
    assert pixels.data.min() == 0.0


def test_the_largest_bound_is_found_by_halving() -> None:
    for k in (1, 5, 12):
        assert images.largest_within(lambda pixels: max(1, pixels // 10), k, 1, 201) == 10 * k + 9
    assert images.largest_within(lambda pixels: 1, 1, 1, 201) == 200
