"""Cells found by ramps and gradients through towers made by hand, and how they are remembered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import interpolate

from sightline.backbones.found_cells import FoundCells, cached_cells, find_cells
from sightline.errors import SightlineError
from sightline.geometry.cells import Cells, grid_cells, token_blocks

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


def test_the_tokens_of_a_resampler_are_refused() -> None:
    with pytest.raises(SightlineError, match="none of this model's 6 image tokens comes from a place"):
        on(Resampler().eval())


def test_tokens_from_a_codebook_are_refused(tower: Patches) -> None:
    book = torch.randn(32, WIDTH)
    with pytest.raises(SightlineError, match="codebook"):
        on(tower, lambda tokens: book[(tokens @ book.T).argmax(-1)])


def test_tokens_that_all_see_everything_are_refused(tower: Patches) -> None:
    with pytest.raises(SightlineError, match="64 of 64 read exactly the same pixels"):
        on(tower, lambda tokens: tokens + tokens.mean(0))


def test_many_tokens_that_see_everything_are_refused_at_once() -> None:
    with pytest.raises(SightlineError, match="a pixel feeds about 256 of 256 tokens"):
        on(Patches(patch=4).eval(), lambda tokens: tokens.softmax(0))


def test_a_processor_that_looks_at_the_content_is_refused(tower: Patches) -> None:
    def cropping(image: Image.Image) -> dict[str, Tensor]:
        return prepare(image) if np.asarray(image).any() else {"pixel_values": torch.zeros(1, 3, 8, 8)}

    with pytest.raises(SightlineError, match="looks at their content"):
        find_cells((320, 200), cropping, lambda inputs: tower(inputs["pixel_values"]), tower)


@settings(max_examples=25, deadline=None)
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
