"""Cells found by ramps and gradients: those that architectures declare, through towers silenced for the purpose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, interpolate, pad

from sightline.backbones.found_cells import FoundCells, cached_cells, find_cells
from sightline.backbones.images import Pixels
from sightline.backbones.silenced import silenced
from sightline.backbones.towered import Towered
from sightline.errors import SightlineError
from sightline.geometry.cells import Cells, grid_cells, token_blocks
from tests.towered import towered
from tests.unit.backbones.named import SECOND_FORM, architecture
from tests.zoo.stand_ins import SEModule

# Cells found by ramps and gradients through towers made by hand, and how they are remembered.


SIDE, PATCH, WIDTH = 64, 8, 16
ROWS = SIDE // PATCH


class Block(nn.Module):
    """A transformer block: every token sees every other, unless attention is silenced."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.self_attn = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU())

    def forward(self, states: Tensor) -> Tensor:
        normed = self.norm(states)
        states = states + self.self_attn(normed, normed, normed)[0]
        return states + self.mlp(states)


class Patches(nn.Module):
    """(1, 3, H, W) -> (H / PATCH * W / PATCH, WIDTH)"""

    def __init__(self, depth: int = 2, patch: int = PATCH) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, WIDTH, patch, stride=patch)
        self.layers = nn.ModuleList(Block() for _ in range(depth))

    def forward(self, pixels: Tensor) -> Tensor:
        states = self.embed(pixels).flatten(2).transpose(1, 2)
        for layer in self.layers:
            states = layer(states)
        return states[0]


@pytest.fixture(scope="module")
def tower() -> Patches:
    torch.manual_seed(0)
    return Patches().eval()


def prepare(image: Image.Image) -> dict[str, Tensor]:
    """The whole image in SIDE x SIDE pixels, normalised channel by channel."""
    resized = np.array(image.resize((SIDE, SIDE), Image.Resampling.BICUBIC), dtype=np.float32)
    return {"pixel_values": torch.from_numpy((resized / 255 - 0.4) / (0.25, 0.26, 0.27)).float().permute(2, 0, 1)[None]}


def on(tower: nn.Module, after: Callable[[Tensor], Tensor] = lambda tokens: tokens) -> FoundCells:
    return find_cells((320, 200), prepare, lambda inputs: after(tower(inputs["pixel_values"])), tower)


def difference(found: Cells, declared: Cells, size: tuple[int, int] = (320, 200)) -> float:
    """In source pixels, the largest."""
    assert found.shape == declared.shape
    return float(np.abs((found - np.clip(declared, 0, 1)) * np.tile(size, 2)).max())


def test_a_grid_of_patches_is_found_through_layers_that_attend_to_everything(tower: Patches) -> None:
    found = on(tower)
    assert found.sourced.all()
    assert difference(found.cells, grid_cells(ROWS, ROWS)) < 0.5


def test_the_tower_is_left_as_it_was(tower: Patches) -> None:
    pixels = torch.randn(1, 3, SIDE, SIDE)
    before = tower(pixels)
    on(tower)
    assert torch.equal(tower(pixels), before)
    assert not any("forward" in vars(module) or module._forward_hooks for module in tower.modules())


def test_cells_can_be_asked_for_in_the_middle_of_encoding(tower: Patches) -> None:
    with torch.inference_mode():
        found = on(tower)
    np.testing.assert_array_equal(found.cells, on(tower).cells)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_finds_the_same(tower: Patches, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    half = Patches().eval().to(dtype)
    np.testing.assert_array_equal(on(half).cells, on(tower).cells)


def test_a_newline_embedding_has_no_source(tower: Patches) -> None:
    newline = nn.Parameter(torch.randn(WIDTH))

    def with_newlines(tokens: Tensor) -> Tensor:
        rows = tokens.view(ROWS, ROWS, WIDTH)
        return torch.cat([rows, newline.expand(ROWS, 1, WIDTH)], dim=1).flatten(0, 1)

    found = on(tower, with_newlines)
    assert found.sourced.reshape(ROWS, ROWS + 1).tolist() == [[True] * ROWS + [False]] * ROWS
    assert np.isnan(found.cells[~found.sourced]).all()
    assert difference(found.cells[found.sourced], grid_cells(ROWS, ROWS)) < 0.5


def test_average_pooling_joins_the_cells_of_its_patches(tower: Patches) -> None:
    def pooled(tokens: Tensor) -> Tensor:
        grid = tokens.T.reshape(1, WIDTH, ROWS, ROWS)
        return nn.functional.avg_pool2d(grid, 2).flatten(2)[0].T

    assert difference(on(tower, pooled).cells, grid_cells(ROWS // 2, ROWS // 2)) < 0.5


def test_tokens_in_window_order_have_their_cells_in_window_order(tower: Patches) -> None:
    order = torch.arange(ROWS * ROWS).view(2, ROWS // 2, 2, ROWS // 2).transpose(1, 2).flatten()
    found = on(tower, lambda tokens: tokens[order])
    assert difference(found.cells, grid_cells(ROWS, ROWS)[order.numpy()]) < 0.5
    assert token_blocks(found.cells) == ((ROWS // 2, ROWS // 2),) * 4


def test_a_shrunken_feature_map_gives_the_extent_of_all_that_a_token_reads(tower: Patches) -> None:
    """8 rows to 5 by interpolation: row i lies at (i + 1/2) 8 / 5 - 1/2 between two of them and reads both."""

    def shrunken(tokens: Tensor) -> Tensor:
        grid = tokens.T.reshape(1, WIDTH, ROWS, ROWS)
        return interpolate(grid, size=(5, 5), mode="bilinear").flatten(2)[0].T

    first = np.array([0, 1, 3, 5, 6]) / ROWS
    y, x = (axis.flatten() for axis in np.meshgrid(first, first, indexing="ij"))
    found = on(tower, shrunken)
    assert difference(found.cells, np.stack([x, y, x + 2 / ROWS, y + 2 / ROWS], axis=-1)) < 0.5
    assert token_blocks(found.cells) == ((5, 5),)


@pytest.mark.parametrize("apart", [2, ROWS - 1, 3 * ROWS, 2 * ROWS + 3])
def test_tokens_that_read_pieces_with_a_gap_between_them_are_refused(tower: Patches, apart: int) -> None:
    """A box around both pieces would hold places that the token does not see: beside, below, or across."""
    with pytest.raises(SightlineError, match=r"read pieces of the image that lie apart: 64 of 64 .* have no cells"):
        on(tower, lambda tokens: tokens + 0.5 * tokens.roll(-apart, dims=0))


def test_one_token_of_everything_does_not_spoil_the_others(tower: Patches) -> None:
    found = on(tower, lambda tokens: torch.cat([tokens.mean(0, keepdim=True), tokens]))
    assert difference(found.cells, np.concatenate([[[0, 0, 1, 1]], grid_cells(ROWS, ROWS)])) < 0.5


def test_tokens_of_padding_alone_are_sourced_and_have_empty_cells(tower: Patches) -> None:
    def half_padded(image: Image.Image) -> dict[str, Tensor]:
        """The image in the upper left quarter but for one column of patches."""
        canvas = torch.zeros(1, 3, SIDE, SIDE)
        canvas[..., : SIDE // 2, : SIDE - PATCH] = interpolate(
            prepare(image)["pixel_values"], size=(SIDE // 2, SIDE - PATCH)
        )
        return {"pixel_values": canvas}

    found = find_cells((320, 200), half_padded, lambda inputs: tower(inputs["pixel_values"]), tower)
    assert found.sourced.all()
    rows = found.cells.reshape(ROWS, ROWS, 4)
    assert difference(rows[:4, :-1].reshape(-1, 4), grid_cells(4, ROWS - 1)) < 5  # pixels are repeated, not resampled
    np.testing.assert_array_equal(rows[:4, -1], np.tile(rows[:4, -2, 2:], 2))
    np.testing.assert_array_equal(rows[4:].reshape(-1, 4), np.tile(rows[3, -2, 2:], (32, 2)))
    assert token_blocks(found.cells) == ((ROWS, ROWS),)


class Resampler(nn.Module):
    """A fixed number of queries looks at all patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = Patches()
        self.queries = nn.Parameter(torch.randn(1, 6, WIDTH))
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, pixels: Tensor) -> Tensor:
        states = self.patches(pixels)[None]
        return (self.queries + self.attention(self.queries, states, states)[0])[0]


class Convolutions(nn.Module):
    """As of mobile towers: patches that overlap, two halvings, wide kernels, one with padding of its own, a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 5, stride=2, padding=2)
        self.halved = nn.Conv2d(WIDTH, WIDTH, 3, stride=2)  # its padding is put there by hand, behind alone
        self.wide = nn.Conv2d(WIDTH, WIDTH, 7, padding="same", groups=WIDTH)
        self.dilated = nn.Conv2d(WIDTH, WIDTH, 3, padding=4, dilation=4)
        self.gate = SEModule(WIDTH)

    def forward(self, pixels: Tensor) -> Tensor:
        states = self.halved(pad(self.stem(pixels), (0, 1, 0, 1))).tanh()
        states = states + self.wide(states)
        states = self.gate(states + self.dilated(states))
        return avg_pool2d(states, 2).flatten(2).transpose(1, 2)[0]


def test_where_convolutions_mix_everything_a_cell_is_the_place_of_its_token() -> None:
    torch.manual_seed(0)
    made = Convolutions().eval()
    image = torch.randn(1, 3, SIDE, SIDE)
    before, weights = made(image), dict(made.named_parameters())
    with torch.inference_mode():  # as encoding asks
        found = on(made)
    assert found.reads_beyond
    assert difference(found.cells, grid_cells(ROWS, ROWS)) < 0.5
    again = find_cells((90, 300), prepare, lambda inputs: made(inputs["pixel_values"]), made, beyond=True)
    assert again.reads_beyond
    assert difference(again.cells, grid_cells(ROWS, ROWS), (90, 300)) < 0.5
    assert torch.equal(made(image), before)
    assert all(weight is weights[name] for name, weight in made.named_parameters())
    assert not on(Patches().eval()).reads_beyond


BOOK = torch.randn(32, WIDTH, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("made", "after", "words"),
    [
        (Resampler, lambda tokens: tokens, "none of this model's 6 image tokens comes from a place"),
        (Patches, lambda tokens: BOOK[(tokens @ BOOK.T).argmax(-1)], "codebook"),
        (Patches, lambda tokens: tokens + tokens.mean(0), "64 of 64 read exactly the same pixels"),
        (lambda: Patches(patch=4), lambda tokens: tokens.softmax(0), "a pixel feeds about 256 of 256 tokens"),
    ],
    ids=["resampler", "codebook", "all see everything", "many see everything, refused at once"],
)
def test_tokens_that_come_from_no_place_are_refused(
    made: Callable[[], nn.Module], after: Callable[[Tensor], Tensor], words: str
) -> None:
    torch.manual_seed(0)
    with pytest.raises(SightlineError, match=words):
        on(made().eval(), after)


def test_a_processor_that_looks_at_the_content_is_refused(tower: Patches) -> None:
    def cropping(image: Image.Image) -> dict[str, Tensor]:
        return prepare(image) if np.asarray(image).any() else {"pixel_values": torch.zeros(1, 3, 8, 8)}

    with pytest.raises(SightlineError, match="looks at their content"):
        find_cells((320, 200), cropping, lambda inputs: tower(inputs["pixel_values"]), tower)


@settings(max_examples=25)
@given(size=st.tuples(st.integers(8, 400), st.integers(8, 400)))
def test_any_size_is_found_to_the_pixel(tower: Patches, size: tuple[int, int]) -> None:
    found = find_cells(size, prepare, lambda inputs: tower(inputs["pixel_values"]), tower)
    assert difference(found.cells, grid_cells(ROWS, ROWS), size) < 1


# ---------------------------------------------------------------------- remembered


def test_cells_are_found_once_per_model_and_size(tmp_path: Path) -> None:
    calls = []

    def find() -> FoundCells:
        calls.append(1)
        return FoundCells(
            np.array([[0.0, 0.0, 0.5, 1.0], [np.nan] * 4]), np.array([True, False]), np.array([0, -1]), 1.5
        )

    first = cached_cells({"model": "a"}, (10, 20), find, tmp_path)
    again = cached_cells({"model": "a"}, (10, 20), find, tmp_path)
    assert len(calls) == 1
    np.testing.assert_array_equal(again.cells, first.cells)
    assert again.sourced.tolist() == [True, False]
    assert again.tiles.tolist() == [0, -1]
    assert again.seconds == 1.5
    cached_cells({"model": "b"}, (10, 20), find, tmp_path)
    cached_cells({"model": "a"}, (20, 10), find, tmp_path)
    assert len(calls) == 3


@pytest.mark.parametrize("harm", [lambda content: b"", lambda content: content[:-40], lambda content: b"no archive"])
def test_a_harmed_file_is_found_anew(tmp_path: Path, harm: Callable[[bytes], bytes]) -> None:
    def found(edge: float) -> FoundCells:
        return FoundCells(np.array([[0.0, 0.0, edge, 1.0]]), np.array([True]), np.array([0]), 0.0)

    cached_cells({}, (10, 20), lambda: found(0.25), tmp_path)
    (file,) = (tmp_path / "cells").iterdir()
    file.write_bytes(harm(file.read_bytes()))
    assert cached_cells({}, (10, 20), lambda: found(0.5), tmp_path).cells[0, 2] == 0.5
    assert cached_cells({}, (10, 20), lambda: found(0.75), tmp_path).cells[0, 2] == 0.5


# Found cells are those that architectures with a tower of their own declare; test_named.py has the others.


OPTIONS = {"shipped-llava": {}, "shipped-qwen3vl": {}, "shipped-internvl": {"max_tiles": 4}, SECOND_FORM: {}}
"""Crops, patches that merge, tiles with a thumbnail; as small as shows it."""


@pytest.fixture(scope="module", params=OPTIONS)
def backbone(request: pytest.FixtureRequest, zoo: Callable[[str], Path]) -> Towered:
    loaded = towered(architecture(request.param, zoo))
    return loaded.under(replace(loaded.options, **OPTIONS[request.param]))


@pytest.mark.parametrize("size", [(640, 480), (333, 777), (1900, 1200), (57, 40), (300, 1500)])
def test_found_cells_are_the_declared_ones(backbone: Towered, size: tuple[int, int]) -> None:
    def features(inputs: Mapping[str, Tensor]) -> Tensor:
        taken = {name: inputs[name] for name in ("pixel_values", "image_grid_thw") if name in inputs}
        return torch.cat(list(backbone.model.get_image_features(**taken).pooler_output)).flatten(0, -2)

    found = find_cells(size, backbone.image_inputs, features, backbone.model)
    declared, layout = backbone.cells_of(Pixels(torch.empty(0), backbone.patch_grid(*size[::-1]), size, 0.0))
    assert found.sourced.all()
    assert difference(found.cells, declared, size) < 1
    assert token_blocks(found.cells, found.tiles) == layout


# A silenced tower shows where tokens come from, whatever its attention looks like, and is put back afterwards.


TOKENS, STATES = 6, 8


class SelfAttention(nn.Module):
    """Attention with code of its own: every token becomes the mean of all."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(STATES, STATES)

    def forward(self, states: Tensor, output_attentions: bool = False) -> tuple[Tensor, None]:
        return self.project(states).mean(-2, keepdim=True).expand_as(states), None


class AttentionWithResidual(nn.Module):
    """As BERT has it: the outer module adds what the inner one says to what came in."""

    def __init__(self) -> None:
        super().__init__()
        self.own = SelfAttention()

    def forward(self, states: Tensor) -> Tensor:
        return states + self.own(states)[0]


class Layer(nn.Module):
    """Called by name, answers a tuple; between its attention and its MLP may stand something else."""

    def __init__(self, attention: nn.Module, between: nn.Module | None = None) -> None:
        super().__init__()
        self.mixing_attn = attention
        self.between = between or nn.Identity()
        self.mlp = nn.Linear(STATES, STATES)
        self.calls = 0

    def forward(self, hidden_states: Tensor, scale: float = 1.0) -> tuple[Tensor, str]:
        self.calls += 1
        said = self.mixing_attn(hidden_states)
        states = hidden_states + (said[0] if isinstance(said, tuple) else said)
        return states + scale * self.mlp(self.between(states)), "more"


class Neighbours(nn.Module):
    """Mixes a token with the next, by its own means."""

    def forward(self, states: Tensor) -> Tensor:
        return states + states.roll(1, -2)


class Tower(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, states: Tensor) -> Tensor:
        for layer in self.layers:
            states, more = layer(hidden_states=states, scale=2.0)
            assert more == "more"
        return states


def mixed(tower: nn.Module) -> Tensor:
    """(token, token) whether the first depends on the second."""
    states = torch.randn(TOKENS, STATES)
    jacobian = torch.autograd.functional.jacobian(tower, states)
    return jacobian.abs().amax((1, 3)) != 0


@pytest.mark.parametrize("attention", [SelfAttention, AttentionWithResidual])
def test_silenced_tokens_do_not_mix_and_keep_their_source(attention: type[nn.Module]) -> None:
    tower = Tower(Layer(attention()), Layer(attention()))
    assert mixed(tower).all()
    with silenced(tower):
        assert torch.equal(mixed(tower), torch.eye(TOKENS, dtype=torch.bool))
    assert mixed(tower).all()


def test_layers_of_one_kind_are_tried_once_and_stepped_over() -> None:
    layers = [Layer(SelfAttention()) for _ in range(4)]
    tower = Tower(*layers)
    states = torch.randn(TOKENS, STATES)
    with silenced(tower):
        assert torch.equal(tower(states), states)
        assert torch.equal(tower(states), states)
    assert [layer.calls for layer in layers] == [3, 0, 0, 0]


def test_a_layer_that_mixes_by_other_means_runs_as_it_is() -> None:
    with silenced(tower := Tower(Layer(SelfAttention(), Neighbours()))):
        found = mixed(tower)
    expected = torch.eye(TOKENS, dtype=torch.bool)
    assert torch.equal(found, expected | expected.roll(1, 0))


def test_what_stood_in_place_of_forward_comes_back_after_an_error() -> None:
    layer = Layer(SelfAttention())
    tower = Tower(layer, Layer(SelfAttention()))

    def hooked(*arguments: Any, **named: Any) -> Any:
        return type(layer).forward(layer, *arguments, **named)

    layer.forward = hooked  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="shape"), silenced(tower):
        tower(torch.zeros(TOKENS, STATES + 1))
    assert layer.forward is hooked
    assert not any("forward" in vars(module) for module in tower.modules() if module is not layer)
