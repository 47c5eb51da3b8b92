"""Signals of vision towers that the model's own code runs."""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from sightline.backbones import Backbone, load_backbone
from sightline.backbones.base import processor_inputs
from sightline.core.selection import hidden_indices
from sightline.errors import SightlineError

TYPES = ("qwen2_vl", "qwen2_5_vl", "glm4v", "glm46v", "glm_ocr", "internvl")
"""Compared with their towers here; test_named.py compares the others."""
STITCHED = ("llava_next", "granite_vision")
EVERY = (*TYPES, *STITCHED, "llava_onevision", "idefics3", "smolvlm", "gemma3", "paligemma", "mistral3")
DEPTH = 4
SIZE = (200, 130)
KINDS = [f"{kind}@{block}" for kind in ("vision.received", "vision.key", "vision.value") for block in range(DEPTH)]
HIDDEN = [f"vision.hidden@{state}" for state in range(DEPTH + 1)]
CLASS = [f"vision.cls_attention@{block}" for block in range(DEPTH)]


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("vision.hidden@0", {0}),
        ("vision.hidden@-1", {DEPTH}),
        ("vision.cls@-2", {DEPTH - 1}),
        ("vision.hidden_mean@-3:-1", {DEPTH - 2, DEPTH - 1, DEPTH}),
        ("vision.hidden_mean@-2:4", {DEPTH - 1, DEPTH}),
        ("vision.key@0", {0}),
        ("vision.received@-1", {DEPTH - 1}),
        ("clip.image", {DEPTH - 1}),
        ("image.pixels", set()),
    ],
)
def test_hidden_states_count_from_the_embeddings_and_attention_reads_what_goes_into_a_block(
    name: str, kept: set[int]
) -> None:
    assert hidden_indices([name], DEPTH) == kept


class Own:
    """One image through the model's own tower: attention per block and sequence, hidden states, all row by row."""

    def __init__(self, backbone: Backbone, image: Image.Image, monkeypatch: pytest.MonkeyPatch) -> None:
        tower = backbone.model.get_encoder("image")
        code: Any = importlib.import_module(type(tower).__module__)
        eager = code.eager_attention_forward
        self.weights: dict[int, list[Tensor]] = defaultdict(list)
        """By block (H, S, S) of every sequence: of a window, of a tile, or of the image."""
        self.keys: dict[int, list[Tensor]] = defaultdict(list)
        self.values: dict[int, list[Tensor]] = defaultdict(list)
        blocks = [[id(part) for part in block.modules()] for block in backbone.vision_blocks]

        def aloud(module: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **how: Any) -> Any:
            output, weights = eager(module, query, key, value, *rest, **how)
            block = next(index for index, parts in enumerate(blocks) if id(module) in parts)
            self.weights[block] += list(weights)
            self.keys[block] += list(key)
            self.values[block] += list(value)
            return output, weights

        monkeypatch.setattr(code, "eager_attention_forward", aloud)
        inputs = processor_inputs(backbone, image)
        grids = {"grid_thw": inputs["image_grid_thw"]} if "image_grid_thw" in inputs else {}
        last: list[Tensor] = []
        hook = backbone.vision_blocks[-1].register_forward_hook(lambda *call: last.append(call[-1]))
        states = tower(inputs["pixel_values"], **grids, output_hidden_states=True).hidden_states
        hook.remove()
        # The last one that transformers returns may be what a norm or the merging convolution makes of it.
        self.hidden = [state.flatten(0, -2) for state in (*states[:DEPTH], *last)]
        self.rows = self._rows(backbone, code, inputs)

    def _rows(self, backbone: Backbone, code: Any, inputs: dict[str, Tensor]) -> Tensor:
        """(N, 4) by the model's own code: its window index, its pixel shuffle of counted patches."""
        if hasattr(code, "get_vision_window_index"):
            config = backbone.model.config.vision_config
            order, _ = code.get_vision_window_index(
                inputs["image_grid_thw"],
                spatial_merge_size=config.spatial_merge_size,
                window_size=config.window_size,
                patch_size=config.patch_size,
            )
            return torch.arange(len(self.hidden[0])).view(-1, 4)[torch.argsort(order)]
        if "image_grid_thw" in inputs:
            return torch.arange(len(self.hidden[0])).view(-1, 4)
        tiles = len(inputs["pixel_values"])
        patches = torch.arange(len(self.hidden[0])).view(tiles, -1)[:, 1:]
        side = int(patches.shape[1] ** 0.5)
        shuffled = backbone.model.model.pixel_shuffle(patches.reshape(tiles, side, side, 1), scale_factor=0.5)
        rows: Tensor = shuffled.reshape(-1, 4)
        return rows

    def __call__(self, name: str) -> Tensor:
        kind, _, layer = name.partition("@")
        if kind == "vision.hidden":
            return self.hidden[int(layer)][self.rows].mean(dim=1)
        weights = self.weights[int(layer)]
        if kind in ("vision.key", "vision.value"):
            taken = self.keys if kind == "vision.key" else self.values
            return torch.cat(taken[int(layer)], dim=1)[:, self.rows].mean(dim=2)
        if kind == "vision.cls_attention":
            return torch.cat([sequence[:, 0] for sequence in weights], dim=1)[:, self.rows].mean(dim=2)
        return torch.cat([sequence.mean(dim=(0, 1)) for sequence in weights])[self.rows].mean(dim=1)


def image() -> Image.Image:
    noise = np.random.default_rng(3).integers(0, 256, (SIZE[1], SIZE[0], 3))
    return Image.fromarray(noise.astype(np.uint8))


def needs_of(backbone: Backbone) -> list[str]:
    return [name for name in (*KINDS, *HIDDEN, *CLASS, "image.pixels") if backbone.serves(name) is None]


@pytest.mark.parametrize("model_type", TYPES)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@torch.no_grad()
def test_signals_are_the_towers_own(
    zoo: Callable[[str], Path], model_type: str, attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(zoo(model_type))
    backbone = load_backbone(folder, dtype="float32", device="cpu", attention=attention)
    needs = [name for name in needs_of(backbone) if name != "image.pixels"]
    (encoded,) = backbone.encode([backbone.preprocess(image())], needs)
    own = Own(load_backbone(folder, dtype="float32", device="cpu", attention="eager"), image(), monkeypatch)
    assert len(own.rows) == encoded.n
    for name in needs:
        found, expected = backbone.vision_signal(name, encoded), own(name)
        assert found.shape == expected.shape, name
        assert (found - expected).abs().max() <= 1e-5 * max(1.0, float(expected.abs().max())), name
        assert found.std() > 0, f"{name} does not tell tokens apart"
    mean = (own("vision.hidden@1") + own("vision.hidden@2")) / 2
    torch.testing.assert_close(backbone.vision_signal("vision.hidden_mean@1:2", encoded), mean, atol=1e-5, rtol=1e-5)


def test_windows_of_qwen2_5_vl_receive_their_own_attention_alone(zoo: Callable[[str], Path]) -> None:
    """Blocks 1 and 3 attend to the whole image; in 0 and 2 what a window's patches receive adds up to 1."""
    backbone = load_backbone(str(zoo("qwen2_5_vl")), dtype="float32", device="cpu")
    (encoded,) = backbone.encode([backbone.preprocess(image())], KINDS)
    ((_, columns),) = encoded.layout
    row, column = np.divmod(np.arange(encoded.n), columns)
    window = row // 2 * columns + column // 2
    assert len(set(window)) > 4
    for block in range(DEPTH):
        received = backbone.vision_signal(f"vision.received@{block}", encoded).numpy() * 4
        sums = np.array([received[window == each].sum() for each in sorted(set(window))])
        if block in (1, 3):
            assert sums.sum() == pytest.approx(1.0, abs=1e-5)
        else:
            assert sums == pytest.approx(np.ones(len(sums)), abs=1e-5)


@torch.no_grad()
def test_tiles_of_internvl_have_a_class_token_each(zoo: Callable[[str], Path]) -> None:
    backbone = load_backbone(str(zoo("internvl")), dtype="float32", device="cpu")
    (encoded,) = backbone.encode([backbone.preprocess(image())], CLASS)
    attention = backbone.vision_signal("vision.cls_attention@1", encoded)
    sizes = [rows * columns for rows, columns in encoded.layout]
    assert len(sizes) > 2
    for tile in torch.split(attention, sizes, dim=1):
        assert ((tile.sum(dim=1) * 4 < 1.0) & (tile.sum(dim=1) > 0.0)).all(), "the rest goes to the class token itself"


@pytest.mark.parametrize("model_type", EVERY)
def test_what_the_tower_does_not_have_is_refused_in_words(zoo: Callable[[str], Path], model_type: str) -> None:
    backbone = load_backbone(str(zoo(model_type)), dtype="float32", device="cpu")
    if model_type in TYPES:
        for name in ("vision.cls@-1", "vision.cls_key@-1", "vision.cls_query@-1", "vision.cls_value@-1"):
            assert "class token" in str(backbone.serves(name))
        assert "CLIP" in str(backbone.serves("clip.image"))
    if model_type not in STITCHED:
        (encoded,) = backbone.encode([backbone.preprocess(image())], ["vision.hidden@-2"])
        with pytest.raises(SightlineError, match="cannot merge vision states before projection"):
            backbone.merge_sources(encoded)
        with pytest.raises(SightlineError, match="cannot project single vision states"):
            backbone.project(torch.zeros(1, 32))


@pytest.mark.parametrize("model_type", EVERY)
@torch.no_grad()
def test_images_encoded_together_keep_their_own_signals(zoo: Callable[[str], Path], model_type: str) -> None:
    """4 x 9 and 6 x 6 tokens: as many patches, other windows. The last two are alike and go side by side."""
    backbone = load_backbone(str(zoo(model_type)), dtype="float32", device="cpu")
    pictures = [image().resize(size) for size in ((252, 112), (168, 168), (168, 168))]
    pictures[2] = pictures[2].transpose(Image.Transpose.ROTATE_90)
    needs = needs_of(backbone)
    far, share = (1e-4, 0.0) if model_type in TYPES else (1e-5, 1e-4)
    for group in ([0, 1, 2], [1, 2]):
        together = backbone.encode([backbone.preprocess(pictures[i]) for i in group], needs)
        for i, found in zip(group, together, strict=True):
            (alone,) = backbone.encode([backbone.preprocess(pictures[i])], needs)
            assert (found.tokens - alone.tokens).abs().max() <= 1e-4
            for name in needs:
                ours, expected = (backbone.vision_signal(name, each) for each in (found, alone))
                torch.testing.assert_close(ours, expected, atol=far, rtol=share)


@pytest.mark.parametrize("model_type", TYPES)
@torch.no_grad()
def test_pixels_of_a_token_are_those_of_its_cell(zoo: Callable[[str], Path], model_type: str) -> None:
    """One token's cell is white in a black image of the size that the tower is shown."""
    backbone = load_backbone(str(zoo(model_type)), dtype="float32", device="cpu")
    size = backbone.shown_size((140, 112))
    (plain,) = backbone.encode([backbone.preprocess(Image.new("RGB", size))])
    for token in (0, 7):
        x1, y1, x2, y2 = (round(edge) for edge in plain.cells[token] * np.array([*size, *size]))
        lit = Image.new("RGB", size)
        lit.paste((255, 255, 255), (x1, y1, x2, y2))
        (encoded,) = backbone.encode([backbone.preprocess(lit)], ["image.pixels"])
        assert int(backbone.vision_signal("image.pixels", encoded).mean(dim=1).argmax()) == token


@pytest.mark.parametrize("model_type", EVERY)
def test_a_signal_that_is_asked_for_changes_no_token(zoo: Callable[[str], Path], model_type: str) -> None:
    backbone = load_backbone(str(zoo(model_type)), dtype="float32", device="cpu")
    pixels = backbone.preprocess(image())
    (plain,), (asked,) = backbone.encode([pixels]), backbone.encode([pixels], needs_of(backbone))
    assert torch.equal(plain.tokens, asked.tokens)
    assert not plain.captured
    assert asked.captured
