"""Images in their own proportions: bounds on their pixels, and as few tokens as a budget allows."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.backbones import load_backbone
from sightline.backbones.loading import Served
from sightline.backbones.qwen2_vl import NativeResolution, most_pixels
from sightline.core.selection import Budget
from sightline.errors import SightlineError
from sightline.selectors import SELECTORS

TYPES = ("qwen2_vl", "qwen2_5_vl", "glm4v", "glm46v", "glm_ocr")
SIZES = [(300, 200), (64, 400), (20, 30), (900, 33), (900, 700)]
"""(width, height): wide, tall, small enough to be enlarged, a strip, shrunken."""


@pytest.fixture(scope="module", params=TYPES)
def backbone(request: pytest.FixtureRequest, zoo: Callable[[str], Path]) -> NativeResolution:
    loaded = load_backbone(str(zoo(request.param)), dtype="float32", device="cpu")
    assert isinstance(loaded, NativeResolution)
    return loaded


def drawn(size: tuple[int, int]) -> Image.Image:
    noise = np.random.default_rng(size[0]).integers(0, 256, (size[1], size[0], 3))
    return Image.fromarray(noise.astype(np.uint8))


@pytest.mark.parametrize("size", SIZES)
def test_tokens_are_counted_as_the_processor_makes_them(backbone: NativeResolution, size: tuple[int, int]) -> None:
    _, high, wide = backbone.image_inputs(drawn(size))["image_grid_thw"][0].tolist()
    width, height = backbone.shown_size(size)
    assert (width, height) == (wide * 14, high * 14)
    assert backbone.token_grid(size) == (high // 2, wide // 2)
    assert backbone.token_count(size) == high * wide // 4


@pytest.mark.parametrize("size", SIZES[:3])
def test_options_bound_the_pixels_of_the_image_itself(backbone: NativeResolution, size: tuple[int, int]) -> None:
    few, many = (backbone.image_options(**bound) for bound in ({"max_pixels": 9 * 784}, {"min_pixels": 40 * 784}))
    assert backbone.under(few).token_count(size) <= 9
    assert backbone.under(many).token_count(size) >= 40
    for options in (few, many):
        shown = backbone.under(options)
        assert math.prod(shown.image_inputs(drawn(size))["image_grid_thw"][0].tolist()) == shown.token_count(size) * 4


def test_options_are_read_by_name_and_refused_when_they_cross(zoo: Callable[[str], Path]) -> None:
    loaded = load_backbone(str(zoo("glm4v")), dtype="float32", device="cpu", options={"max_pixels": 4 * 784})
    assert loaded.token_count((300, 200)) <= 4
    with pytest.raises(SightlineError, match="min_pixels = 20 is above max_pixels = 10"):
        load_backbone(str(zoo("glm4v")), options={"min_pixels": 20, "max_pixels": 10})


@pytest.mark.parametrize("size", SIZES)
def test_the_most_tokens_within_the_budget_that_any_number_of_pixels_makes(
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
    image = drawn((300, 200))
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
