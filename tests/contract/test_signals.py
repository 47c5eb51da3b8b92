"""Signals are what their names say, on every tiny checkpoint that has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from sightline.arms.arm import Arm
from sightline.backbones.cuts import causal_attention
from sightline.backbones.signals import rotate
from sightline.core.selection import Budget, LayerSelector, LayerState, Selection
from tests.answers import score_arm
from tests.contract.cast import MODELS, stage


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


@pytest.mark.parametrize("model", MODELS)
def test_language_signals_fit_together(data: Path, model: str) -> None:
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
        last = causal_attention(query, key, query.shape[-1] ** -0.5, last_only=True)
        assert torch.equal(last, signals["lm.attention_last"])
        assert bool((cos[state.image] != cos[state.image[:1]]).any()), "positions of the image differ"


def test_values_are_those_that_the_tower_attends_with(data: Path) -> None:
    here = stage(data, "llava", "float32")
    backbone: Any = here.backbone
    heard: list[Tensor] = []
    projection = backbone.vision_blocks[1].self_attn.v_proj
    handle = projection.register_forward_hook(lambda module, given, made: heard.append(made))
    try:
        (encoded,) = backbone.encode(here.pixels[:1], {"vision.value@1", "vision.cls_value@1"})
    finally:
        handle.remove()
    with torch.inference_mode():
        values, own = (backbone.vision_signal(f"vision.{name}@1", encoded) for name in ("value", "cls_value"))
    heads = values.shape[0]
    expected = heard[0][0].view(len(heard[0][0]), heads, -1).transpose(0, 1)
    torch.testing.assert_close(values, expected[:, 1:])
    torch.testing.assert_close(own, expected[:, 0])


@pytest.mark.parametrize("model", MODELS)
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
