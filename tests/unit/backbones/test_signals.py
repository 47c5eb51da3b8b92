"""Signals of vision towers that the model's own code runs, against what it hands from part to part."""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate
from transformers.models.llava_next.modeling_llava_next import unpad_image

from sightline.backbones import Backbone
from sightline.backbones.base import processor_inputs
from sightline.core.selection import PIXELS, TOKEN_AXIS, hidden_indices, split_name
from tests.refusals import Refused
from tests.unit.backbones.named import Zoo, architecture, photograph, plainly

MERGED = ("qwen2_vl", "qwen2_5_vl", "glm4v", "glm46v", "glm_ocr", "internvl")
"""Four patches become a token."""
STITCHED = ("llava_next", "granite_vision", "llava_onevision")
POOLED = ("idefics3", "smolvlm", "gemma3", "paligemma", "mistral3")
EVERY = (*MERGED, *STITCHED, *POOLED)
FOUND = ("aya_vision", "gemma4", "lighton_ocr", "qianfan_ocr", "qwen3_5")
"""Of those that nothing is declared of, by the general route."""
DEPTH = 4
SIZE = (200, 130)
SHRUNKEN = (520, 490)
"""So many tiles of OneVision that their grid is interpolated."""
BY_BLOCK = ("received", "query", "key", "value", "cls_attention", "cls_query", "cls_key", "cls_value")


def test_hidden_states_count_from_the_embeddings_and_attention_reads_what_goes_into_a_block() -> None:
    for name, kept in [
        ("vision.hidden@0", {0}),
        ("vision.hidden@-1", {DEPTH}),
        ("vision.cls@-2", {DEPTH - 1}),
        ("vision.hidden_mean@-3:-1", {DEPTH - 2, DEPTH - 1, DEPTH}),
        ("vision.hidden_mean@-2:4", {DEPTH - 1, DEPTH}),
        ("vision.key@0", {0}),
        ("vision.received@-1", {DEPTH - 1}),
        ("clip.image", {DEPTH - 1}),
        ("image.pixels", set()),
    ]:
        assert hidden_indices([name], DEPTH) == kept, name


Get = Callable[..., Backbone]


@pytest.fixture(scope="module")
def loaded(zoo: Zoo) -> Get:
    """A backbone of a type, with an attention."""
    return cache(lambda name, attention="sdpa": architecture(name, zoo, attention))


def served(backbone: Backbone) -> list[str]:
    depth = len(backbone.vision_blocks)
    names = [f"vision.{kind}@{block}" for kind in BY_BLOCK for block in range(depth)]
    names += [f"vision.{kind}@{state}" for kind in ("hidden", "cls") for state in range(depth + 1)]
    return [name for name in (*names, PIXELS) if backbone.serves(name) is None]


class Own:
    """One image through the model's own tower: what attention is handed and gives, and hidden states, row by row."""

    def __init__(self, backbone: Backbone, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
        self.backbone, self.size = backbone, size
        self.code: Any = importlib.import_module(type(backbone.vision_blocks[0]).__module__)
        self.attended: dict[tuple[str, int], list[Tensor]] = defaultdict(list)
        """By kind and block (H, S, ...) of every sequence: of a window, of a tile, or of the image."""
        self.hidden: list[Tensor] = []
        eager = self.code.eager_attention_forward
        blocks = [{id(part) for part in block.modules()} for block in backbone.vision_blocks]

        def aloud(module: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **how: Any) -> Any:
            output, weights = eager(module, query, key, value, *rest, **how)
            block = next(index for index, parts in enumerate(blocks) if id(module) in parts)
            for kind, states in (("query", query), ("key", key), ("value", value), ("weights", weights)):
                self.attended[kind, block] += list(states)
            return output, weights

        def going_in(block: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            self.hidden.append(given[0] if given else named["hidden_states"])

        def coming_out(block: Any, given: Any, made: Any) -> None:
            self.hidden.append(made if isinstance(made, Tensor) else made[0])

        hooks = [block.register_forward_pre_hook(going_in, with_kwargs=True) for block in backbone.vision_blocks]
        hooks.append(backbone.vision_blocks[-1].register_forward_hook(coming_out))
        self.inputs = processor_inputs(backbone, photograph(*size))
        taken = getattr(backbone, "_feature_arguments", ("pixel_values",))
        with monkeypatch.context() as patch, torch.inference_mode():
            patch.setattr(self.code, "eager_attention_forward", aloud)
            seeing = getattr(backbone, "body", backbone.model)
            seeing.get_image_features(**{name: each for name, each in self.inputs.items() if name in taken})
        for hook in hooks:
            hook.remove()

    def __call__(self, name: str) -> Tensor:
        """(R, C) of a signal, all rows of the tower one behind the other; of a class token (C,)."""
        kind, _, layer = name.removeprefix("vision.").partition("@")
        place, part = int(layer), kind.removeprefix("cls_")
        if kind == "hidden":
            return self.hidden[place].flatten(0, -2)
        if kind == "cls":
            return self.hidden[place][0, 0]
        if kind == "received":  # padding neither gives nor receives
            seen = [looked.mean(dim=0)[looked.amax(dim=(0, 1)) > 0] for looked in self.attended["weights", place]]
            return torch.cat([looked.mean(dim=0) for looked in seen])[:, None]
        if kind == "cls_attention":
            return torch.cat([looked[:, 0] for looked in self.attended["weights", place]], dim=1).T
        states = self.attended[part, place]
        return states[0][:, 0].flatten() if part != kind else torch.cat(states, dim=1).transpose(0, 1).flatten(1)

    def laid(self, rows: Tensor) -> Tensor:
        """(R, C) of the tower's rows -> (N, C) of the tokens, by tensor operations as the model's."""
        kind = self.backbone.model.config.model_type
        if kind in MERGED:
            return rows[self.groups(len(rows))].mean(dim=1)
        return self.pooled(rows) if kind in POOLED or kind == "idefics3" else self.stitched(rows)

    def groups(self, count: int) -> Tensor:
        """(N, 4) by the model's own code: its window index, its pixel shuffle of counted patches."""
        if hasattr(self.code, "get_vision_window_index"):
            config = self.backbone.model.config.vision_config
            sizes = {name: getattr(config, name) for name in ("spatial_merge_size", "window_size", "patch_size")}
            order, _ = self.code.get_vision_window_index(self.inputs["image_grid_thw"], **sizes)
            return torch.arange(count).view(-1, 4)[torch.argsort(order)]
        if "image_grid_thw" in self.inputs:
            return torch.arange(count).view(-1, 4)
        patches = torch.arange(count).view(len(self.inputs["pixel_values"]), -1)[:, 1:]
        side = int(patches.shape[1] ** 0.5)
        shuffle = self.backbone.model.model.pixel_shuffle
        found: Tensor = shuffle(patches.reshape(len(patches), side, side, 1), scale_factor=0.5).reshape(-1, 4)
        return found

    def stitched(self, rows: Tensor) -> Tensor:
        config, lead = self.backbone.model.config, int(self.backbone.class_token)  # type: ignore[attr-defined]
        side = config.vision_config.image_size // config.vision_config.patch_size
        width, height = self.backbone.canvas(self.size).tiles  # type: ignore[attr-defined]
        tiles = rows.view(1 + width * height, lead + side**2, -1)[:, lead:]
        maps = tiles[1:].view(height, width, side, side, -1)
        grid = unpad_image(maps.permute(4, 0, 2, 1, 3).flatten(1, 2).flatten(2, 3), self.size[::-1])
        ratio = (grid.shape[1] * grid.shape[2] / (9 * side**2)) ** 0.5
        if hasattr(config, "vision_aspect_ratio") and ratio > 1.1:
            shape = [int(grid.shape[1] // ratio), int(grid.shape[2] // ratio)]
            grid = interpolate(grid[None], shape, mode="bilinear")[0]
        return torch.cat([tiles[0], grid.flatten(1).T])

    def pooled(self, rows: Tensor) -> Tensor:
        """Squares of patches, tile by tile, averaged."""
        layout = self.backbone.plan(self.size).layout  # type: ignore[attr-defined]
        tiles, (high, wide) = rows.view(len(layout), -1, rows.shape[-1]), layout[0]
        merge = round((tiles.shape[1] / (high * wide)) ** 0.5)
        maps = tiles.transpose(1, 2).unflatten(2, (high * merge, wide * merge))
        return avg_pool2d(maps, merge).flatten(2).transpose(1, 2).flatten(0, 1)


CASES = [(name, "eager", size) for name in EVERY for size in (SIZE, (90, 300))]
CASES += [*((name, "sdpa", SIZE) for name in EVERY), ("llava_onevision", "eager", SHRUNKEN)]


@pytest.mark.parametrize(("name", "attention", "size"), CASES)
@torch.no_grad()
def test_signals_are_the_towers_own(
    loaded: Get, name: str, attention: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = loaded(name, attention)
    needs = [signal for signal in served(backbone) if signal != PIXELS]
    (encoded,) = backbone.encode([backbone.preprocess(photograph(*size))], [*needs, "vision.hidden_mean@1:2"])
    own = Own(loaded(name, "eager"), size, monkeypatch)
    for signal in needs:
        found, expected = backbone.vision_signal(signal, encoded), own(signal)
        kind, axis = split_name(signal)[0], TOKEN_AXIS.get(split_name(signal)[0])
        if axis is not None:
            expected = own.laid(expected)
            found = found.movedim(axis, 0).reshape(encoded.n, -1)
        assert found.numel() == expected.numel(), signal
        distance = (found.flatten() - expected.flatten()).abs().max()
        assert distance <= 1e-5 * max(1.0, float(expected.abs().max())), signal
        assert found.std() > 0, f"{kind} does not tell tokens apart"
    mean = own.laid((own("vision.hidden@1") + own("vision.hidden@2")) / 2)
    torch.testing.assert_close(backbone.vision_signal("vision.hidden_mean@1:2", encoded), mean, atol=1e-5, rtol=1e-5)


def test_merging_before_projection_is_projecting_what_was_merged(loaded: Get, monkeypatch: pytest.MonkeyPatch) -> None:
    """One token alone, merged with nobody, is the token that the model makes of it."""
    backbone = loaded("llava_next", "eager")
    (encoded,) = backbone.encode([backbone.preprocess(photograph())], ["vision.hidden@-2"])
    with torch.inference_mode():
        sources = backbone.merge_sources(encoded)
        assert len(sources) == encoded.n + 1
        torch.testing.assert_close(backbone.project(sources[:-1]), encoded.tokens, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(sources[-1], Own(backbone, SIZE, monkeypatch)("vision.cls@3"))


@pytest.mark.parametrize("name", [*EVERY, *FOUND])
@torch.no_grad()
def test_images_keep_their_own_signals_beside_others_and_their_tokens(loaded: Get, zoo: Zoo, name: str) -> None:
    """4 x 9 and 6 x 6 tokens: as many patches, other windows. The last two are alike and go side by side."""
    backbone = plainly(zoo(name)) if name in FOUND else loaded(name)
    needs = served(backbone)
    pixels = [backbone.preprocess(photograph(*size, seed)) for seed, size in enumerate([(252, 112), *[(168, 168)] * 2])]
    alone = [backbone.encode([item], needs)[0] for item in pixels]
    for item, asked in zip(pixels, alone, strict=True):
        (plain,) = backbone.encode([item])
        assert torch.equal(plain.tokens, asked.tokens)
        assert asked.captured
        assert not plain.captured
    far, share = (1e-4, 0.0) if name in MERGED else (1e-4, 1e-4) if name in FOUND else (1e-5, 1e-4)
    for group in ([0, 1, 2], [1, 2]):
        for i, found in zip(group, backbone.encode([pixels[i] for i in group], needs), strict=True):
            assert (found.tokens - alone[i].tokens).abs().max() <= 1e-4
            for signal in needs:
                ours, expected = (backbone.vision_signal(signal, each) for each in (found, alone[i]))
                axis = TOKEN_AXIS.get(split_name(signal)[0])
                assert axis is None or ours.shape[axis] == found.n
                torch.testing.assert_close(ours, expected, atol=far, rtol=share)


@pytest.mark.parametrize("name", [*MERGED, *POOLED, "llava_onevision"])
@torch.no_grad()
def test_what_the_tower_does_not_have_is_refused_in_words(loaded: Get, name: str, refused: Refused) -> None:
    backbone = loaded(name)
    if name in MERGED:
        for signal in ("vision.cls@-1", "vision.cls_key@-1", "vision.cls_query@-1", "vision.cls_value@-1"):
            assert "class token" in str(backbone.serves(signal))
        assert "CLIP" in str(backbone.serves("clip.image"))
    (encoded,) = backbone.encode([backbone.preprocess(photograph())], ["vision.hidden@-2"])
    kind = type(backbone).__name__
    refused(f"{kind} cannot merge vision states before projection", backbone.merge_sources, encoded)
    refused(f"{kind} cannot project single vision states", backbone.project, torch.zeros(1, 32))


@pytest.mark.parametrize("name", MERGED)
@torch.no_grad()
def test_pixels_of_a_token_are_those_of_its_cell(loaded: Get, name: str) -> None:
    """One token's cell is white in a black image of the size that the tower is shown."""
    backbone = loaded(name)
    size = backbone.shown_size((140, 112))
    (plain,) = backbone.encode([backbone.preprocess(Image.new("RGB", size))])
    for token in (0, 7):
        x1, y1, x2, y2 = (round(edge) for edge in plain.cells[token] * np.array([*size, *size]))
        lit = Image.new("RGB", size)
        lit.paste((255, 255, 255), (x1, y1, x2, y2))
        (encoded,) = backbone.encode([backbone.preprocess(lit)], [PIXELS])
        assert int(backbone.vision_signal(PIXELS, encoded).mean(dim=1).argmax()) == token
