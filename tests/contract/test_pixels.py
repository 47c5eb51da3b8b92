"""Pixel values are the checkpoint's own image processor's, bit for bit, by Pillow on the host and by tensors alike."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from sightline.answering.arm_pass import _groups
from sightline.backbones import Backbone, load_backbone, options_for
from sightline.backbones.images import Arithmetic, Size, by_tensors, stored_pixels
from sightline.errors import SightlineError
from tests.towered import towered

pytestmark = pytest.mark.xdist_group("contract-pixels")

MODELS = ("qwen3vl", "llava", "internvl")
SIZES = ((640, 480), (480, 640), (500, 1000), (448, 448), (336, 336), (256, 256), (37, 41), (1, 1), (300, 9), (5, 160))
"""(width, height): usual, portrait, untouched by some processor, tiny, and of huge aspect."""
SMALL: dict[str, dict[str, int]] = {"qwen3vl": {"max_pixels": 100352}, "llava": {}, "internvl": {"max_tiles": 3}}
BY_ARTIFACT = options_for("qwen3_vl", "artifact", {"min_pixels": None, "max_pixels": 50176})


def drawn(size: tuple[int, int], mode: str = "RGB") -> Image.Image:
    drawn = np.random.default_rng(size).integers(0, 256, (size[1], size[0], 4), dtype=np.uint8)
    return Image.fromarray(drawn, "RGBA").convert(mode)


def loaded(data: Path, model: str, options: Any = None) -> Backbone:
    return load_backbone(str(data / "tiny" / model), dtype="float32", device="cpu", options=options)


def processed(backbone: Backbone, image: Image.Image) -> dict[str, Tensor]:
    features = backbone.image_processor(images=image, return_tensors="pt", **backbone.processor_arguments())
    return dict(features)


@pytest.fixture(scope="module", params=MODELS)
def backbone(request: pytest.FixtureRequest, data: Path) -> Backbone:
    return loaded(data, request.param, SMALL[request.param])


def resize_by_tensors(backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the way of a GPU on the CPU."""

    def resizer(
        source: Size, target: Size, kind: int, device: torch.device, arithmetic: Arithmetic = "pillow"
    ) -> Callable[[Tensor], Tensor]:
        return by_tensors(source, target, kind, device, arithmetic)

    monkeypatch.setattr(sys.modules[type(backbone).__module__], "resizer", resizer)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_values_are_the_processors(backbone: Backbone, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    image = drawn(size)
    expected = processed(backbone, image)
    pixels = backbone.preprocess(image)
    assert pixels.data.dtype == torch.float32
    assert torch.equal(pixels.data, expected["pixel_values"])
    assert pixels.size == size
    if "image_grid_thw" in expected:
        assert expected["image_grid_thw"].tolist() == [list(pixels.grid)]
    else:
        assert len(expected["pixel_values"]) == pixels.grid[0]
    raw = towered(backbone).image_bytes(image)
    assert raw.dtype == torch.uint8
    assert tuple(raw.shape) == (size[1], size[0], 3)
    assert torch.equal(towered(backbone).pixel_values(raw), pixels.data)
    resize_by_tensors(backbone, monkeypatch)
    assert torch.equal(towered(backbone).pixel_values(raw), expected["pixel_values"])
    stored = torch.from_numpy(np.array(stored_pixels(image)))  # as it travels to a GPU
    assert torch.equal(towered(backbone).pixel_values(stored), expected["pixel_values"])


@pytest.mark.parametrize(("size", "channels"), [((37, 41), 4), ((6000, 4000), 3)], ids=["shared", "copied"])
def test_images_are_read_where_pillow_stores_them_if_it_can_share(size: tuple[int, int], channels: int) -> None:
    image = drawn(size)
    stored = stored_pixels(image)
    assert stored.shape[:2] == (size[1], size[0])
    assert stored.shape[2] == (channels if hasattr(image, "__arrow_c_array__") else 3)
    assert np.array_equal(stored[..., :3], np.asarray(image))


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "CMYK", "1"])
def test_any_mode_is_converted_as_pillow_does(backbone: Backbone, mode: str) -> None:
    """Before the processor: its releases differ in what they do with transparency, and a row must not."""
    image = drawn((120, 90), mode)
    expected = processed(backbone, image.convert("RGB"))["pixel_values"]
    assert torch.equal(backbone.preprocess(image).data, expected)


@pytest.mark.parametrize("model", MODELS)
def test_values_are_the_processors_under_its_own_limits(
    data: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = loaded(data, model)
    image = drawn((800, 600))
    expected = processed(backbone, image)["pixel_values"]
    assert torch.equal(backbone.preprocess(image).data, expected)
    resize_by_tensors(backbone, monkeypatch)
    assert torch.equal(backbone.preprocess(image).data, expected)


@pytest.mark.parametrize("crop", [(300, 300), (351, 340), (400, 336)], ids=str)
def test_a_crop_may_be_odd_or_larger_than_the_image(data: Path, crop: tuple[int, int]) -> None:
    backbone = loaded(data, "llava")
    backbone.image_processor.crop_size = {"height": crop[0], "width": crop[1]}
    for size in ((640, 480), (337, 479)):
        image = drawn(size)
        assert torch.equal(backbone.preprocess(image).data, processed(backbone, image)["pixel_values"])


@pytest.mark.parametrize("size", [(640, 480), (37, 41), (300, 9)], ids=str)
def test_tiles_resized_as_tensors_keep_their_own_arithmetic(
    data: Path, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = loaded(data, "internvl", {"max_tiles": 3, "tensor_resize": True})
    processor, image = backbone.image_processor, drawn(size)
    high, wide = processor.size["height"], processor.size["width"]
    tiles, (columns, rows) = backbone.patch_grid(*size[::-1])[0], backbone._canvas(size)  # type: ignore[attr-defined]

    planes = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None]
    whole, small = (
        torch.nn.functional.interpolate(planes, size=target, mode="bicubic", antialias=True)[0]
        for target in ((rows * high, columns * wide), (high, wide))
    )
    cut = [whole[:, r * high :, c * wide :][:, :high, :wide] for r in range(rows) for c in range(columns)]
    mean, spread = (torch.tensor(v)[:, None, None] for v in (processor.image_mean, processor.image_std))
    expected = (torch.stack([*cut, small][:tiles]) * processor.rescale_factor - mean) / spread

    assert torch.equal(backbone.preprocess(image).data, expected)
    resize_by_tensors(backbone, monkeypatch)
    assert torch.equal(backbone.preprocess(image).data, expected)


def test_edits_of_the_artifact_come_before_the_processors_steps(data: Path) -> None:
    backbone = loaded(data, "qwen3vl", BY_ARTIFACT)
    altered = towered(backbone).altered(drawn((640, 480)))
    assert altered.size[0] % 28 == altered.size[1] % 28 == 0
    assert torch.equal(backbone.preprocess(drawn((640, 480))).data, processed(backbone, altered)["pixel_values"])


@pytest.mark.parametrize("options", [SMALL["qwen3vl"], BY_ARTIFACT], ids=["plain", "artifact"])
def test_a_image_too_thin_for_qwen_is_refused_in_one_line(data: Path, options: Any) -> None:
    with pytest.raises(SightlineError, match=r"the image cannot be resized for Qwen3-VL: .*ratio must be smaller"):
        loaded(data, "qwen3vl", options).preprocess(drawn((1, 201)))


def test_a_processor_that_leaves_a_step_out_is_declined(data: Path) -> None:
    backbone = loaded(data, "llava")
    config = backbone.model.config.to_dict()
    assert type(backbone).declines(config, {}) is None
    assert (
        type(backbone).declines(config, {"do_center_crop": False}) == "its image processor has do_center_crop = false"
    )


def test_bytes_and_values_give_the_same_tokens_and_groups(backbone: Backbone) -> None:
    """A batch may hold either kind; images share a batch if the tower sees the same shape."""
    images = [drawn(size) for size in ((320, 240), (240, 320), (321, 241))]
    ready = [backbone.preprocess(image) for image in images]
    raw = [replace(item, data=towered(backbone).image_bytes(image)) for item, image in zip(ready, images, strict=True)]
    for ours, expected in zip(backbone.encode(raw), backbone.encode(ready), strict=True):
        assert torch.equal(ours.tokens, expected.tokens)
    shapes = [item.data.shape for item in ready]
    together = {frozenset(group) for group in _groups(raw, 3)}
    assert together == {frozenset(group) for group in _groups(ready, 3)}
    assert all(shapes[i] == shapes[group[0]] for group in _groups(raw, 3) for i in group)
