"""Images shown smaller to meet a budget, and processors that keep an image's proportions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.backbones import Backbone, load_backbone, options_for
from sightline.backbones.base import BACKBONES, processor_inputs
from sightline.backbones.execution import CapturedVision
from sightline.backbones.loading import Served
from sightline.backbones.qwen2_vl import NativeResolution, most_pixels
from sightline.backbones.qwen3_vl import resized_size
from sightline.core.selection import Budget
from sightline.errors import SightlineError
from sightline.geometry.coverage import RegionGeometry
from sightline.selectors import SELECTORS
from tests.towered import towered

# An image shown smaller: as many tokens as a budget allows, counted and resampled as the processor itself does it.


SIZES = [(640, 448), (448, 448), (200, 900), (61, 47), (900, 33), (33, 30)]
"""(width, height): wide, square, high, small enough to be enlarged, a strip, hardly more than a token."""
KEEPS = [Budget.ratio(keep) for keep in (0.01, 0.1, 0.25, 0.3, 0.5, 0.77, 0.99, 1.0)]


def backbone_of(data: Path, model: str, **options: Any) -> Backbone:
    return load_backbone(str(data / "tiny" / model), dtype="float32", device="cpu", options=options)


@pytest.fixture(scope="module")
def qwen(data: Path) -> Backbone:
    return backbone_of(data, "qwen3vl", max_pixels=100352)


@pytest.fixture(scope="module")
def internvl(data: Path) -> Backbone:
    return backbone_of(data, "internvl")


def drawn(size: tuple[int, int]) -> Image.Image:
    width, height = size
    noise = np.random.default_rng(width).integers(0, 256, (height, width, 3))
    return Image.fromarray(noise.astype(np.uint8))


@pytest.mark.parametrize("model", ["qwen3vl", "llava", "internvl"])
@pytest.mark.parametrize("profile", ["paper", "artifact"])
def test_tokens_are_counted_without_encoding(data: Path, model: str, profile: Any) -> None:
    folder = data / "tiny" / model
    # The artifact's own pixels take minutes in a tiny tower; its way of resizing twice is what matters here.
    fewer = {"min_pixels": 50176, "max_pixels": 50176} if model == "qwen3vl" and profile == "artifact" else {}
    backbone = load_backbone(str(folder), dtype="float32", device="cpu", options=options_for(folder, profile, fewer))
    for size in SIZES[:4]:
        (encoded,) = backbone.encode([backbone.preprocess(drawn(size))])
        assert backbone.token_count(size) == encoded.n == encoded.full_n
        assert encoded.usual_n is None


@pytest.mark.parametrize("size", SIZES)
def test_the_most_tokens_within_the_budget_that_any_number_of_pixels_makes(
    qwen: Backbone, size: tuple[int, int]
) -> None:
    n, factor = qwen.token_count(size), qwen.image_processor.patch_size * qwen.image_processor.merge_size
    fewest = qwen.image_processor.size["shortest_edge"]
    possible = {
        math.prod(resized_size(size[1], size[0], factor, min(fewest, pixels), pixels)) // factor**2
        for pixels in range(1, n * factor**2 + 1, 7)
    }
    for budget in KEEPS:
        k = budget.resolve(n)
        fit = qwen.fit(size, budget)
        made = qwen.under(fit.options).token_count(size)
        assert fit.usual_n == n
        assert made <= k
        assert made >= max(count for count in possible if count <= k)


def test_a_budget_that_the_image_meets_already_changes_nothing(qwen: Backbone) -> None:
    for budget in (Budget.ratio(1.0), Budget.tokens(10_000)):
        assert qwen.fit((640, 448), budget).options is qwen.options


@pytest.mark.parametrize("size", SIZES[:4])
def test_pixels_are_those_of_the_models_own_processor_asked_for_fewer(qwen: Backbone, size: tuple[int, int]) -> None:
    image = drawn(size)
    pixels = qwen.preprocess(image, budget=Budget.ratio(0.3))
    smaller = qwen.under(pixels.options)
    assert smaller.processor_arguments()["max_pixels"] < qwen.processor_arguments()["max_pixels"]
    assert torch.equal(pixels.data, processor_inputs(smaller, image)["pixel_values"])


def test_tiles_are_those_of_the_models_own_processor_asked_for_fewer(internvl: Backbone) -> None:
    image = drawn((900, 600))
    pixels = internvl.preprocess(image, budget=Budget.ratio(0.5))
    smaller = internvl.under(pixels.options)
    assert torch.equal(pixels.data, processor_inputs(smaller, image)["pixel_values"])
    assert pixels.grid[0] < internvl.preprocess(image).grid[0]


@pytest.mark.parametrize("size", SIZES)
def test_cells_of_a_smaller_image_tile_all_of_it(qwen: Backbone, size: tuple[int, int]) -> None:
    (encoded,) = qwen.encode([qwen.preprocess(drawn(size), budget=Budget.ratio(0.3))])
    ((rows, columns),) = encoded.layout
    assert encoded.n == rows * columns == len(encoded.cells)
    assert encoded.usual_n == encoded.full_n == qwen.token_count(size)
    areas = (encoded.cells[:, 2] - encoded.cells[:, 0]) * (encoded.cells[:, 3] - encoded.cells[:, 1])
    assert areas.sum() == pytest.approx(1.0)
    everything = np.ones(encoded.n, dtype=bool)
    region = RegionGeometry(encoded.cells, [(0.013, 0.2, 0.71, 0.93)])
    assert region.measure(everything, everything).ecr == pytest.approx(1.0)


def test_the_run_goes_on_with_its_own_options(qwen: Backbone) -> None:
    image = drawn((640, 448))
    before = qwen.preprocess(image)
    small = qwen.preprocess(image, budget=Budget.ratio(0.25))
    after = qwen.preprocess(image)
    assert before.grid == after.grid != small.grid
    assert torch.equal(before.data, after.data)
    mixed = [qwen.encode([before])[0], qwen.encode([small])[0]]
    together = qwen.encode([before, small])
    for alone, batched in zip(mixed, together, strict=True):
        assert alone.layout == batched.layout
        assert alone.usual_n == batched.usual_n
        torch.testing.assert_close(alone.tokens, batched.tokens, atol=1e-5, rtol=1e-5)


def test_the_artifacts_double_resize_becomes_one(data: Path) -> None:
    folder = data / "tiny" / "qwen3vl"
    options = options_for(folder, "artifact", {"min_pixels": 50176, "max_pixels": 50176})
    backbone = load_backbone(str(folder), dtype="float32", device="cpu", options=options)
    fit = backbone.fit((640, 448), Budget.ratio(0.3))
    kept = {"jpeg_quality": 85, "first_resize_factor": None}
    assert {name: getattr(fit.options, name) for name in kept} == kept
    assert backbone.under(fit.options).token_count((640, 448)) <= Budget.ratio(0.3).resolve(fit.usual_n)


@pytest.mark.parametrize("size", [(900, 600), (600, 900), (1200, 300), (448, 448)])
def test_a_canvas_with_as_many_tiles_as_the_budget_allows(internvl: Backbone, size: tuple[int, int]) -> None:
    tile = math.prod(internvl.tile_grid)  # type: ignore[attr-defined]
    n = internvl.token_count(size)
    counts = {
        most: internvl.under(replace(internvl.options, max_tiles=most)).token_count(size)  # type: ignore[call-arg]
        for most in range(1, int(internvl.image_processor.max_patches) + 1)
    }
    for k in (tile, 2 * tile, 3 * tile, 4 * tile, 6 * tile, 9 * tile):
        made = internvl.under(internvl.fit(size, Budget.tokens(k)).options).token_count(size)
        assert made == max(count for count in counts.values() if count <= min(k, n))
        assert made % tile == 0
    pixels = internvl.preprocess(drawn(size), budget=Budget.tokens(4 * tile))
    (encoded,) = internvl.encode([pixels])
    assert len(encoded.layout) == pixels.grid[0] <= 4
    assert encoded.usual_n == n


def test_a_budget_below_one_tile_is_refused_in_words(internvl: Backbone) -> None:
    tile = math.prod(internvl.tile_grid)  # type: ignore[attr-defined]
    with pytest.raises(SightlineError) as refused:
        internvl.fit((640, 448), Budget.tokens(tile - 1))
    assert f"640 x 448 pixels makes {tile} visual tokens on InternVL with the fewest tiles" in str(refused.value)
    assert f"the budget is {tile - 1}" in str(refused.value)


def test_a_model_that_sees_one_size_says_so(data: Path) -> None:
    assert "576 tokens" in str(BACKBONES.get("llava").fixed_tokens)
    with pytest.raises(SightlineError, match="Llava makes no smaller images: its processor makes a square of one size"):
        backbone_of(data, "llava").fit((640, 448), Budget.ratio(0.3))


def test_what_the_tower_is_shown_is_what_it_was_asked_for(qwen: Backbone, internvl: Backbone) -> None:
    smaller = qwen.under(qwen.fit((640, 448), Budget.ratio(0.3)).options)
    width, height = smaller.shown_size((640, 448))
    assert width * height <= smaller.processor_arguments()["max_pixels"]
    side = int(internvl.image_processor.size["width"])
    tile = math.prod(internvl.tile_grid)  # type: ignore[attr-defined]
    one = internvl.under(internvl.fit((640, 448), Budget.tokens(tile)).options)
    assert one.shown_size((640, 448)) == (side, side)


@pytest.mark.parametrize("model", ["qwen3vl", "internvl"])
def test_bytes_that_a_device_makes_smaller_become_the_hosts_pixels(data: Path, model: str) -> None:
    """On a GPU the host hands over bytes; what of them the device makes depends on the image's own options."""
    backbone, image = backbone_of(data, model), drawn((900, 600))
    prepared = backbone.preprocess(image, budget=Budget.ratio(0.5))
    handed_over = replace(prepared, data=towered(backbone.under(prepared.options)).image_bytes(image))
    assert handed_over.data.dtype == torch.uint8
    assert torch.equal(towered(backbone).tower_inputs([handed_over]), towered(backbone).tower_inputs([prepared]))
    captured = CapturedVision(towered(backbone), handed_over, frozenset())
    assert torch.equal(captured(handed_over).tokens, backbone.encode([prepared])[0].tokens)


def test_a_captured_tower_encodes_smaller_images_of_one_shape(qwen: Backbone) -> None:
    images = [drawn((640, 448)), drawn((640, 448)).transpose(Image.Transpose.FLIP_TOP_BOTTOM)]
    budget = Budget.ratio(0.3)
    captured = CapturedVision(towered(qwen), qwen.preprocess(images[0], budget=budget), frozenset())
    for image in images:
        pixels = qwen.preprocess(image, budget=budget)
        (plain,), replayed = qwen.encode([pixels]), captured(pixels)
        assert torch.equal(plain.tokens, replayed.tokens)
        assert replayed.usual_n == plain.usual_n == qwen.token_count((640, 448))


# Images in their own proportions: bounds on their pixels, and as few tokens as a budget allows.


TYPES = ("qwen2_vl", "qwen2_5_vl", "glm4v", "glm46v", "glm_ocr")
NATIVE_SIZES = [(300, 200), (64, 400), (20, 30), (900, 33), (900, 700)]
"""(width, height): wide, tall, small enough to be enlarged, a strip, shrunken."""


@pytest.fixture(scope="module", params=TYPES)
def backbone(request: pytest.FixtureRequest, zoo: Callable[[str], Path]) -> NativeResolution:
    loaded = load_backbone(str(zoo(request.param)), dtype="float32", device="cpu")
    assert isinstance(loaded, NativeResolution)
    return loaded


def noise(size: tuple[int, int]) -> Image.Image:
    noise = np.random.default_rng(size[0]).integers(0, 256, (size[1], size[0], 3))
    return Image.fromarray(noise.astype(np.uint8))


@pytest.mark.parametrize("size", NATIVE_SIZES)
def test_tokens_are_counted_as_the_processor_makes_them(backbone: NativeResolution, size: tuple[int, int]) -> None:
    _, high, wide = backbone.image_inputs(noise(size))["image_grid_thw"][0].tolist()
    width, height = backbone.shown_size(size)
    assert (width, height) == (wide * 14, high * 14)
    assert backbone.token_grid(size) == (high // 2, wide // 2)
    assert backbone.token_count(size) == high * wide // 4


@pytest.mark.parametrize("size", NATIVE_SIZES[:3])
def test_options_bound_the_pixels_of_the_image_itself(backbone: NativeResolution, size: tuple[int, int]) -> None:
    few, many = (backbone.image_options(**bound) for bound in ({"max_pixels": 9 * 784}, {"min_pixels": 40 * 784}))
    assert backbone.under(few).token_count(size) <= 9
    assert backbone.under(many).token_count(size) >= 40
    for options in (few, many):
        shown = backbone.under(options)
        assert math.prod(shown.image_inputs(noise(size))["image_grid_thw"][0].tolist()) == shown.token_count(size) * 4


def test_options_are_read_by_name_and_refused_when_they_cross(zoo: Callable[[str], Path]) -> None:
    loaded = load_backbone(str(zoo("glm4v")), dtype="float32", device="cpu", options={"max_pixels": 4 * 784})
    assert loaded.token_count((300, 200)) <= 4
    with pytest.raises(SightlineError, match="min_pixels = 20 is above max_pixels = 10"):
        load_backbone(str(zoo("glm4v")), options={"min_pixels": 20, "max_pixels": 10})


@pytest.mark.parametrize("size", NATIVE_SIZES)
def test_the_most_tokens_within_the_budget_that_any_bounds_on_pixels_make(
    backbone: NativeResolution, size: tuple[int, int]
) -> None:
    n, counted = backbone.token_count(size), backbone.counted
    fewest = backbone.bounds()[0]
    possible = {
        math.prod(backbone.resized(size, min(fewest, pixels * counted), pixels * counted)) // 784
        for pixels in range(1, n * 784 + 1, 97)
    }
    for keep in (0.01, 0.1, 0.3, 0.5, 0.77, 1.0):
        budget = Budget.ratio(keep)
        fit = backbone.fit(size, budget)
        made = backbone.under(fit.options).token_count(size)
        assert fit.usual_n == n
        assert max(count for count in possible if count <= budget.resolve(n)) <= made <= budget.resolve(n)


def test_a_smaller_image_is_what_the_processor_makes_when_asked_for_less(backbone: NativeResolution) -> None:
    image = noise((300, 200))
    pixels = backbone.preprocess(image, budget=Budget.ratio(0.3))
    assert torch.equal(pixels.data, backbone.under(pixels.options).image_inputs(image)["pixel_values"])
    usual, small = backbone.encode([backbone.preprocess(image), pixels])
    assert small.n < usual.n == small.usual_n
    areas = (small.cells[:, 2] - small.cells[:, 0]) * (small.cells[:, 3] - small.cells[:, 1])
    assert areas.sum() == pytest.approx(1.0)


def test_an_image_that_is_all_length_is_refused_in_words(backbone: NativeResolution) -> None:
    with pytest.raises(SightlineError, match=f"cannot be resized for {type(backbone).__name__}: absolute aspect ratio"):
        backbone.shown_size((28 * 300, 28))


def test_a_processor_that_does_not_resize_is_noticed(
    backbone: NativeResolution, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backbone.image_processor, "do_resize", False)
    monkeypatch.setattr(backbone, "plans", {})
    with pytest.raises(SightlineError, match="makes 40 x 60 patches of an image of 840 x 560, its settings promise"):
        backbone.plan((840, 560))


def test_methods_are_refused_alike_before_the_model_is_loaded(
    backbone: NativeResolution, zoo: Callable[[str], Path]
) -> None:
    loaded, described = Served.by(backbone), Served.by_description(zoo(backbone.model.config.model_type))
    for name, kind in SELECTORS.items():
        if name != "masks":
            assert refusal(loaded, kind()) == refusal(described, kind())


def refusal(served: Served, method: object) -> str:
    try:
        served.refuse(method, clip=True)  # type: ignore[arg-type]
    except SightlineError as error:
        return str(error)
    return ""


def test_the_largest_bound_is_found_by_halving() -> None:
    for k in (1, 5, 12):
        found = most_pixels(lambda pixels: max(1, pixels // 10), k, 200)
        assert found == 10 * k + 9
    assert most_pixels(lambda pixels: 1, 1, 200) == 200
