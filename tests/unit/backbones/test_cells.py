"""Cells found by ramps and gradients: those that architectures declare, through towers silenced for the purpose."""

from __future__ import annotations

import copy
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
from sightline.backbones.isolated_tokens import silenced
from sightline.backbones.prompting import Layout
from sightline.backbones.towered import Towered
from sightline.errors import SightlineError
from sightline.geometry.cells import Cells, grid_cells, token_blocks
from tests.refusals import Refused
from tests.towered import towered
from tests.unit.backbones.named import SECOND_FORM, Zoo, architecture
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
    """Also in half precision and in the middle of encoding; the tower is left as it was."""
    pixels = torch.randn(1, 3, SIDE, SIDE)
    before, found = tower(pixels), on(tower)
    assert found.sourced.all()
    assert not found.reads_beyond
    assert difference(found.cells, grid_cells(ROWS, ROWS)) < 0.5
    assert torch.equal(tower(pixels), before)
    assert not any("forward" in vars(module) or module._forward_hooks for module in tower.modules())
    with torch.inference_mode():
        np.testing.assert_array_equal(on(tower).cells, found.cells)
    for dtype in (torch.bfloat16, torch.float16):
        half = copy.deepcopy(tower).to(dtype)
        np.testing.assert_array_equal(on(half).cells, found.cells)


def in_grid(tokens: Tensor, call: Callable[[Tensor], Tensor]) -> Tensor:
    """Tokens as a picture of so many channels, and back."""
    return call(tokens.T.reshape(1, WIDTH, ROWS, ROWS)).flatten(2)[0].T


WINDOWS = torch.arange(ROWS * ROWS).view(2, ROWS // 2, 2, ROWS // 2).transpose(1, 2).flatten()
PLACES = np.array([0, 1, 3, 5, 6]) / ROWS
"""8 rows to 5 by interpolation: row i lies at (i + 1/2) 8 / 5 - 1/2 between two of them and reads both."""
X, Y = (axis.flatten() for axis in np.meshgrid(PLACES, PLACES))
BOOK = torch.randn(32, WIDTH, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("after", "cells", "blocks"), [
    (lambda tokens: in_grid(tokens, lambda grid: avg_pool2d(grid, 2)), grid_cells(ROWS // 2, ROWS // 2), None),
    (lambda tokens: tokens[WINDOWS], grid_cells(ROWS, ROWS)[WINDOWS.numpy()], ((ROWS // 2, ROWS // 2),) * 4),
    (lambda tokens: in_grid(tokens, lambda grid: interpolate(grid, size=(5, 5), mode="bilinear")),
     np.stack([X, Y, X + 2 / ROWS, Y + 2 / ROWS], axis=-1), ((5, 5),)),
    (lambda tokens: torch.cat([tokens.mean(0, keepdim=True), tokens]),
     np.concatenate([[[0, 0, 1, 1]], grid_cells(ROWS, ROWS)]), None),
], ids=["pooled", "in window order", "shrunken to the extent of all that it reads", "one of everything"])  # fmt: skip
def test_what_is_done_behind_the_tower_shows_in_the_cells(
    tower: Patches, after: Callable[[Tensor], Tensor], cells: Cells, blocks: Layout | None
) -> None:
    found = on(tower, after)
    assert difference(found.cells, cells) < 0.5
    assert blocks is None or token_blocks(found.cells) == blocks


def test_a_newline_embedding_has_no_source(tower: Patches) -> None:
    newline = nn.Parameter(torch.randn(WIDTH))

    def with_newlines(tokens: Tensor) -> Tensor:
        rows = tokens.view(ROWS, ROWS, WIDTH)
        return torch.cat([rows, newline.expand(ROWS, 1, WIDTH)], dim=1).flatten(0, 1)

    found = on(tower, with_newlines)
    assert found.sourced.reshape(ROWS, ROWS + 1).tolist() == [[True] * ROWS + [False]] * ROWS
    assert np.isnan(found.cells[~found.sourced]).all()
    assert difference(found.cells[found.sourced], grid_cells(ROWS, ROWS)) < 0.5


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


def rolled(apart: int) -> Callable[[Tensor], Tensor]:
    """A box around both pieces would hold places that the token does not see: beside, below, or across."""
    return lambda tokens: tokens + 0.5 * tokens.roll(-apart, dims=0)


@pytest.mark.parametrize(("made", "after", "words"), [
    (Resampler, lambda tokens: tokens, "none of this model's 6 image tokens comes from a place"),
    (Patches, lambda tokens: BOOK[(tokens @ BOOK.T).argmax(-1)], "codebook"),
    (Patches, lambda tokens: tokens + tokens.mean(0), "64 of 64 read exactly the same pixels"),
    (lambda: Patches(patch=4), lambda tokens: tokens.softmax(0), "a pixel feeds about 256 of 256 tokens"),
])  # fmt: skip
def test_tokens_that_come_from_no_place_are_refused(
    made: Callable[[], nn.Module], after: Callable[[Tensor], Tensor], words: str, refused: Refused
) -> None:
    """Queries, a codebook, all that see everything, many that do (at once)."""
    torch.manual_seed(0)
    refused(words, on, made().eval(), after)


@pytest.mark.parametrize("apart", [2, ROWS - 1, 3 * ROWS, 2 * ROWS + 3])
def test_tokens_that_see_pieces_with_a_gap_between_them_are_refused(apart: int) -> None:
    torch.manual_seed(0)
    with pytest.raises(SightlineError, match=r"read pieces of the image that lie apart: 64 of 64 .* have no cells"):
        on(Patches().eval(), rolled(apart))


def test_a_processor_that_looks_at_the_content_is_refused(tower: Patches, refused: Refused) -> None:
    def cropping(image: Image.Image) -> dict[str, Tensor]:
        return prepare(image) if np.asarray(image).any() else {"pixel_values": torch.zeros(1, 3, 8, 8)}

    features = lambda inputs: tower(inputs["pixel_values"])  # noqa: E731
    refused("looks at their content", find_cells, (320, 200), cropping, features, tower)


@settings(max_examples=25)
@given(size=st.tuples(st.integers(8, 400), st.integers(8, 400)))
def test_any_size_is_found_to_the_pixel(tower: Patches, size: tuple[int, int]) -> None:
    found = find_cells(size, prepare, lambda inputs: tower(inputs["pixel_values"]), tower)
    assert difference(found.cells, grid_cells(ROWS, ROWS), size) < 1


def test_cells_are_found_once_per_model_and_size_and_anew_where_their_file_is_harmed(tmp_path: Path) -> None:
    asked: list[float] = []

    def cached(edge: float, model: str = "a", size: tuple[int, int] = (10, 20)) -> FoundCells:
        """What is remembered, or cells with this edge."""
        cells = np.array([[0.0, 0.0, edge, 1.0], [np.nan] * 4])
        found = FoundCells(cells, np.array([True, False]), np.array([0, -1]), 1.5)
        return cached_cells({"model": model}, size, lambda: asked.append(edge) or found, tmp_path)

    first, again = cached(0.5), cached(0.75)
    np.testing.assert_array_equal(again.cells, first.cells)
    assert (again.sourced.tolist(), again.tiles.tolist(), again.seconds) == ([True, False], [0, -1], 1.5)
    assert asked == [0.5]
    (file,) = (tmp_path / "cells").iterdir()
    whole = file.read_bytes()
    for edge, content in ((0.1, b""), (0.2, whole[:-40]), (0.3, b"no archive")):
        file.write_bytes(content)
        assert [cached(given).cells[0, 2] for given in (edge, 0.9)] == [edge] * 2
    cached(0.6, model="b")
    cached(0.7, size=(20, 10))
    assert asked == [0.5, 0.1, 0.2, 0.3, 0.6, 0.7]


# Found cells are those that architectures with a tower of their own declare; test_named.py has the others.


OPTIONS = {"shipped-llava": {}, "shipped-qwen3vl": {}, "shipped-internvl": {"max_tiles": 4}, SECOND_FORM: {}}
"""Crops, patches that merge, tiles with a thumbnail; as small as shows it."""


@pytest.fixture(scope="module", params=OPTIONS)
def backbone(request: pytest.FixtureRequest, zoo: Zoo) -> Towered:
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


def test_silenced_tokens_do_not_mix_and_keep_their_source_but_where_a_layer_mixes_by_other_means() -> None:
    alone = torch.eye(TOKENS, dtype=torch.bool)
    for layers, expected in (
        ([Layer(SelfAttention()), Layer(SelfAttention())], alone),
        ([Layer(AttentionWithResidual()), Layer(AttentionWithResidual())], alone),
        ([Layer(SelfAttention(), Neighbours())], alone | alone.roll(1, 0)),
    ):
        tower = Tower(*layers)
        assert mixed(tower).all()
        with silenced(tower):
            assert torch.equal(mixed(tower), expected)
        assert mixed(tower).all()


def test_layers_of_one_kind_are_tried_once_and_stepped_over() -> None:
    layers = [Layer(SelfAttention()) for _ in range(4)]
    tower, states = Tower(*layers), torch.randn(TOKENS, STATES)
    with silenced(tower):
        assert torch.equal(tower(states), states)
        assert torch.equal(tower(states), states)
    assert [layer.calls for layer in layers] == [3, 0, 0, 0]


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
