"""Pixels and signals of every architecture: equal to its own image processor's, and to its own tower's."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from sightline.arms.arm import Arm
from sightline.auditing.loop import _alike
from sightline.backbones import Backbone, images, load_backbone, options_for
from sightline.backbones.images import Arithmetic, Size, by_tensors, stored_pixels
from sightline.core.selection import Budget, LayerSelector, LayerState, Selection
from sightline.errors import SightlineError
from sightline.selectors.heads import rotate
from tests.answers import score_arm
from tests.contract.cast import MODELS, stage
from tests.towered import towered

# Pixel values are the checkpoint's own image processor's, bit for bit, by Pillow on the host and by tensors alike.

pytestmark = pytest.mark.xdist_group("contract-pixels")

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
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def backbone(model: str, data: Path) -> Backbone:
    return loaded(data, model, SMALL[model])


def resize_by_tensors(backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the way of a GPU on the CPU."""

    def resizer(
        source: Size, target: Size, kind: int, device: torch.device, arithmetic: Arithmetic = "pillow"
    ) -> Callable[[Tensor], Tensor]:
        return by_tensors(source, target, kind, device, arithmetic)

    for module in (images, sys.modules[type(backbone).__module__]):
        monkeypatch.setattr(module, "resizer", resizer, raising=False)


def test_values_are_the_processors(backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [(drawn(size), processed(backbone, drawn(size))) for size in SIZES]
    for image, features in cases:
        size, expected, pixels = image.size, features["pixel_values"], backbone.preprocess(image)
        assert pixels.data.dtype == torch.float32
        assert torch.equal(pixels.data, expected), size
        assert pixels.size == size
        if "image_grid_thw" in features:
            assert features["image_grid_thw"].tolist() == [list(pixels.grid)]
        else:
            assert len(expected) == pixels.grid[0]
        raw = towered(backbone).image_bytes(image)
        assert raw.dtype == torch.uint8
        assert tuple(raw.shape) == (size[1], size[0], 3)
        assert torch.equal(towered(backbone).pixel_values(raw), pixels.data), size
    resize_by_tensors(backbone, monkeypatch)
    for image, features in cases:
        stored = torch.from_numpy(np.array(stored_pixels(image)))  # as it travels to a GPU
        for raw in (towered(backbone).image_bytes(image), stored):
            assert torch.equal(towered(backbone).pixel_values(raw), features["pixel_values"]), image.size


def test_any_mode_is_converted_as_pillow_does(backbone: Backbone) -> None:
    """Before the processor: its releases differ in what they do with transparency, and a row must not."""
    for mode in ("L", "LA", "RGBA", "CMYK", "1"):
        image = drawn((120, 90), mode)
        expected = processed(backbone, image.convert("RGB"))["pixel_values"]
        assert torch.equal(backbone.preprocess(image).data, expected), mode


def test_values_are_the_processors_under_its_own_limits(
    data: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone, image = loaded(data, model), drawn((800, 600))
    expected = processed(backbone, image)["pixel_values"]
    assert torch.equal(backbone.preprocess(image).data, expected)
    resize_by_tensors(backbone, monkeypatch)
    assert torch.equal(backbone.preprocess(image).data, expected)


def test_images_are_read_where_pillow_stores_them_if_it_can_share() -> None:
    for size, channels in (((37, 41), 4), ((6000, 4000), 3)):  # shared, copied
        image = drawn(size)
        stored = stored_pixels(image)
        assert stored.shape[:2] == (size[1], size[0])
        assert stored.shape[2] == (channels if hasattr(image, "__arrow_c_array__") else 3)
        assert np.array_equal(stored[..., :3], np.asarray(image))


def test_a_crop_may_be_odd_or_larger_than_the_image(data: Path) -> None:
    backbone = loaded(data, "llava")
    for high, wide in ((300, 300), (351, 340), (400, 336)):
        backbone.image_processor.crop_size = {"height": high, "width": wide}
        for size in ((640, 480), (337, 479)):
            image = drawn(size)
            assert torch.equal(backbone.preprocess(image).data, processed(backbone, image)["pixel_values"])


def test_a_processor_that_leaves_a_step_out_is_declined(data: Path) -> None:
    backbone = loaded(data, "llava")
    config, declines = backbone.model.config.to_dict(), type(backbone).declines
    assert declines(config, {}) is None
    assert declines(config, {"do_center_crop": False}) == "its image processor has do_center_crop = false"


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
def test_an_image_too_thin_for_qwen_is_refused_in_one_line(data: Path, options: Any) -> None:
    with pytest.raises(SightlineError, match=r"the image cannot be resized for Qwen3-VL: .*ratio must be smaller"):
        loaded(data, "qwen3vl", options).preprocess(drawn((1, 201)))


def test_bytes_and_values_give_the_same_tokens_and_groups(backbone: Backbone) -> None:
    """A batch may hold either kind; images share a batch if the tower sees the same shape."""
    images = [drawn(size) for size in ((320, 240), (240, 320), (321, 241))]
    ready = [backbone.preprocess(image) for image in images]
    raw = [replace(item, data=towered(backbone).image_bytes(image)) for item, image in zip(ready, images, strict=True)]
    for ours, expected in zip(backbone.encode(raw), backbone.encode(ready), strict=True):
        assert torch.equal(ours.tokens, expected.tokens)
    shapes = [item.data.shape for item in ready]
    groups = _alike([item.grid for item in raw], 3)
    assert groups == _alike([item.grid for item in ready], 3)
    assert all(shapes[i] == shapes[group[0]] for group in groups for i in group)


# Signals are what their names say, on every tiny checkpoint that has them.


@dataclass(frozen=True)
class Spy(LayerSelector):
    """Keeps the first tokens after the first layer, and what it was shown."""

    seen: list[LayerState] = field(default_factory=list)

    name: ClassVar[str] = "spy"
    needs: ClassVar[frozenset[str]] = frozenset(
        {"lm.input", "lm.embeds", "lm.bare_query", "lm.bare_key", "lm.key", "lm.rotary", "lm.attention_last"}
    )

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {0: k}

    def cut(self, state: LayerState, k: int) -> Selection:
        self.seen.append(state)
        return Selection(torch.arange(k))


def test_signals_of_layers_fit_together(data: Path, model: str) -> None:
    here, spy = stage(data, model, "float32"), Spy()
    arm = Arm(spy, Budget.ratio(0.5), "spy:0.5")
    with torch.inference_mode():
        score_arm(here.step, arm, here.probes[:1], here.encoded[:1], "preserve", 4096)
        (state,) = spy.seen
        signals = state.signals
        assert torch.equal(signals["lm.input"], signals["lm.embeds"]), "the first layer is given the embeddings"
        assert not torch.allclose(signals["lm.input"], state.hidden)
        cos, sin = signals["lm.rotary"]
        query, key = (rotate(signals[f"lm.bare_{name}"], cos, sin) for name in ("query", "key"))
        assert torch.equal(key, signals["lm.key"])
        key = key.repeat_interleave(len(query) // len(key), dim=0)
        last = torch.softmax(query[:, -1:] @ key.transpose(-1, -2) * query.shape[-1] ** -0.5, dim=-1)[:, 0]
        assert torch.equal(last, signals["lm.attention_last"])
        assert bool((cos[state.image] != cos[state.image[:1]]).any()), "positions of the image differ"


def test_pixels_of_a_token_are_those_of_its_cell(data: Path, model: str) -> None:
    """White paper with a black box: tokens whose cells lie inside are black throughout, those outside are white."""
    backbone = stage(data, model, "float32").backbone
    left, upper, right, lower = 0.3, 0.25, 0.8, 0.7
    paper = np.full((300, 400, 3), 255, dtype=np.uint8)
    paper[int(upper * 300) : int(lower * 300), int(left * 400) : int(right * 400)] = 0
    (encoded,) = backbone.encode([backbone.preprocess(Image.fromarray(paper))], {"image.pixels"})
    with torch.inference_mode():
        pixels = backbone.vision_signal("image.pixels", encoded).numpy()
    assert len(pixels) == encoded.n
    x0, y0, x1, y1 = encoded.cells.T
    blur = 0.06  # what resampling smears over an edge
    inside = (x0 > left + blur) & (x1 < right - blur) & (y0 > upper + blur) & (y1 < lower - blur)
    outside = (x1 < left - blur) | (x0 > right + blur) | (y1 < upper - blur) | (y0 > lower + blur)
    assert inside.sum() > 0
    assert outside.sum() > 0
    assert pixels[inside].max() < pixels[outside].min()
    assert np.ptp(pixels[inside], axis=0).max() == 0, "black tokens are all alike"
    assert np.ptp(pixels[outside], axis=0).max() == 0, "white tokens are all alike"


def test_values_are_those_that_the_tower_attends_with(data: Path) -> None:
    here = stage(data, "llava", "float32")
    backbone: Any = here.backbone
    heard: list[Tensor] = []
    projection = backbone.vision_blocks[1].self_attn.v_proj
    handle = projection.register_forward_hook(lambda module, given, made: heard.append(made))
    (encoded,) = backbone.encode(here.pixels[:1], {"vision.value@1", "vision.cls_value@1"})
    handle.remove()
    with torch.inference_mode():
        values, own = (backbone.vision_signal(f"vision.{name}@1", encoded) for name in ("value", "cls_value"))
    heads = values.shape[0]
    expected = heard[0][0].view(len(heard[0][0]), heads, -1).transpose(0, 1)
    torch.testing.assert_close(values, expected[:, 1:])
    torch.testing.assert_close(own, expected[:, 0])
