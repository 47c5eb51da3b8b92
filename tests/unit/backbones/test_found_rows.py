"""Rows of vision towers that are found: as architectures declare them, and of towers made for the purpose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from sightline.backbones import Backbone
from sightline.backbones.found_cells import cached
from sightline.backbones.found_rows import FoundProjector, FoundRows, find_rows
from sightline.checks.doctor.cells import signal_rows
from sightline.contract.backbones import NoisePage, check_signals
from sightline.core.prefix import Encoded
from sightline.core.selection import PIXELS
from tests.conftest import DATA
from tests.refusals import Refused
from tests.unit.backbones.named import ARCHITECTURES, Zoo, architecture, photograph, plainly
from tests.unit.backbones.test_cells import PATCH, ROWS, WIDTH, Patches, prepare
from tests.unit.backbones.test_signals import Own

SIZES = [(200, 130), (90, 300)]
KINDS = ("received", "query", "key", "value", "hidden", "cls_attention", "cls", "cls_key", "cls_query", "cls_value")
SIGNALS = [f"vision.{kind}@{layer}" for kind in KINDS for layer in (0, 1, -2, -1)]
FOUND = [
    "aya_vision", "deepseek_vl_hybrid", "exaone4_5", "gemma4", "got_ocr2", "lighton_ocr", "ovis2", "paddleocr_vl",
    "qianfan_ocr", "qwen3_5", "video_llama_3", "vipllava",
]  # fmt: skip
"""Types that nothing is declared of, with towers of every kind."""


@torch.inference_mode()
def read(backbone: Backbone, signal: str, encoded: Encoded) -> Tensor:
    return backbone.vision_signal(signal, encoded)


# What architectures declare is what is found.


@pytest.mark.parametrize("name", [*ARCHITECTURES, "granite_vision"])
def test_found_signals_and_pixels_are_those_of_the_architectures_own_file(name: str, zoo: Zoo) -> None:
    kind, _, shipped = name.partition("-")
    known = architecture(name, zoo)
    known = known.under(known.image_options())  # those that keep shipped checkpoints quick are not known to both
    found = plainly(DATA / "tiny" / shipped if kind == "shipped" else zoo(name))
    both = [each for each in SIGNALS if known.serves(each) is None]
    assert [each for each in both if found.serves(each) is not None] == []
    pixels = [PIXELS] * (kind == "shipped" or name in ("qwen2_5_vl", "glm4v"))
    for image in (photograph(200, 130), photograph(90, 300)):
        (ours,), (theirs,) = (each.encode([each.preprocess(image)], [*both, *pixels]) for each in (found, known))
        assert ours.n == theirs.n
        for signal in both:
            mine, expected = read(found, signal, ours), read(known, signal, theirs)
            assert mine.shape == expected.shape, signal
            assert (mine - expected).abs().max() <= 1e-5 * max(1.0, float(expected.abs().max())), signal
            assert expected.std() > 0, signal
        for signal in pixels:
            assert torch.equal(read(found, signal, ours), read(known, signal, theirs))


# Types that nothing is declared of.


@pytest.mark.parametrize("name", FOUND)
def test_types_without_a_file_serve_signals_of_their_tower(name: str, zoo: Zoo) -> None:
    backbone = plainly(zoo(name))
    assert backbone.serves("vision.hidden@-2") is None
    class_token = backbone.serves("vision.cls_attention@-2") is None
    assert class_token == (name in ("qianfan_ocr", "vipllava"))
    if not class_token:
        assert "its vision tower has no class token" in str(backbone.serves("vision.cls_attention@-2"))
    hidden = name == "got_ocr2"  # attention written out by hand, as in SAM
    assert ("keep queries and keys to themselves" in str(backbone.serves("vision.key@-1"))) == hidden
    assert (backbone.serves(PIXELS) is None) == (name != "got_ocr2")  # whose tokens overlap, less of them at the edge
    if name in ("aya_vision", "got_ocr2"):
        assert "reads something else than states of the tower" in str(backbone.unprojected())
    page = NoisePage.sized(backbone, (320, 224))
    check_signals(page)
    rows = signal_rows(page)
    assert rows is None or rows.passed, rows and rows.words


@pytest.mark.parametrize(
    ("name", "reads"),
    [
        ("vipllava", [(3, 0), (2, 0), (1, 0)]),
        ("qianfan_ocr", [(4, place) for place in range(4)]),
        ("video_llava", [(3, 0)]),
    ],
)
def test_states_are_merged_as_the_projector_reads_them(name: str, reads: list[tuple[int, int]], zoo: Zoo) -> None:
    """Several states of one patch, or one state of four patches: mixtures of them against the model's own modules."""
    backbone = plainly(zoo(name))
    assert backbone.unprojected() is None
    assert isinstance(backbone.projector, FoundProjector)
    assert list(backbone.projector.parts) == reads
    (encoded,) = backbone.encode([backbone.preprocess(photograph(200, 130))], ["vision.hidden@-2"])
    with torch.inference_mode():
        sources = backbone.merge_sources(encoded)
        assert len(sources) == encoded.n + (name != "qianfan_ocr"), "the class token last, if as wide as a token"
        torch.testing.assert_close(backbone.project(sources[: encoded.n]), encoded.tokens, atol=1e-5, rtol=1e-5)
        mix = torch.rand(5, encoded.n).softmax(dim=1)
        expected = backbone.body.multi_modal_projector(mix @ sources[: encoded.n])
        assert torch.equal(backbone.project(mix @ sources[: encoded.n]), expected)
        assert (expected - mix @ encoded.tokens).abs().max() > 1e-3, "which merging behind it would not give"


@pytest.mark.parametrize("name", [name for name in FOUND if name not in ("deepseek_vl_hybrid", "got_ocr2")])
def test_received_attention_is_what_the_tower_gives(name: str, zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the weights of the model's own eager attention; padding neither gives nor receives."""
    backbone = plainly(zoo(name), "eager")
    (encoded,) = backbone.encode([backbone.preprocess(photograph())], ["vision.received@-1", "vision.received@0"])
    own, rows = Own(backbone, (200, 130), monkeypatch), backbone.token_rows((200, 130))
    for block in (0, len(backbone.vision_blocks) - 1):
        expected = own(f"vision.received@{block}")[rows, 0].mean(dim=1)
        found = read(backbone, f"vision.received@{block}", encoded)
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


# Towers made for the purpose: 8 x 8 patches of an image of 64 x 64.


class Tower(Patches):
    """(64, WIDTH) rows, with learned rows ``before`` and ``behind`` them; ``after`` makes tokens of them."""

    def __init__(self, after: Callable[[Tensor], Tensor], before: int = 0, behind: int = 0) -> None:
        torch.manual_seed(0)
        super().__init__(depth=3)
        self.before, self.behind = (nn.Parameter(torch.randn(1, count, WIDTH)) for count in (before, behind))
        self.project = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, 32))
        self.after = after

    def forward(self, pixels: Tensor) -> Tensor:
        states = torch.cat([self.before, self.embed(pixels).flatten(2).mT, self.behind], dim=1)
        for block in self.layers:
            states = block(states)
        return self.after(self.project(states[0, self.before.shape[1] :][: ROWS * ROWS]))

    def find(self) -> FoundRows:
        return find_rows((64, 64), prepare, lambda inputs: self(inputs["pixel_values"]), self, list(self.layers))


def test_a_token_for_every_patch_is_read_from_its_own_row_behind_or_before_a_class_token_or_several_such_rows() -> None:
    for counts, row, leads in (((1, 0), 0, 1), ((0, 1), ROWS * ROWS, 1), ((4, 0), -1, 4), ((0, 0), -1, 0)):
        found = Tower(lambda states: states, *counts).find()
        assert (found.class_row, found.leads) == (row, leads)
        assert found.rows.tolist() == [[counts[0] + patch] for patch in range(ROWS * ROWS)]
        assert found.alike.all()
        assert not found.attends.any(), "nothing of this attention is handed over"
        if row >= 0:
            assert found.class_at == row
            assert found.of(np.ones(ROWS * ROWS, dtype=np.bool_))[1] is None


def test_weights_of_an_interpolation_are_found() -> None:
    for mode in ("bilinear", "bicubic"):

        def shrunken(states: Tensor, mode: str = mode) -> Tensor:
            grid = states.T.unflatten(1, (ROWS, ROWS))[None]
            return interpolate(grid, (3, 5), mode=mode)[0].flatten(1).T

        found = Tower(shrunken).find()
        given = shrunken(torch.eye(ROWS * ROWS))
        laid = torch.zeros(15, ROWS * ROWS).scatter_add_(1, *map(torch.from_numpy, (found.rows, found.weights)))
        torch.testing.assert_close(laid, given, atol=2e-6, rtol=0)


def test_patches_laid_side_by_side_have_equal_parts() -> None:
    merge = nn.Linear(4 * 32, 32)
    found = Tower(lambda states: merge(states.view(16, 4 * 32))).find()
    assert found.rows.tolist() == np.arange(ROWS * ROWS).reshape(16, 4).tolist()
    assert (found.weights == 0.25).all()


def test_tokens_that_see_the_image_beside_the_blocks_are_refused(refused: Refused) -> None:
    tower = Tower(lambda states: states)
    beside = nn.Conv2d(3, 32, PATCH, PATCH)

    def features(inputs: Any) -> Tensor:
        shifted = beside(inputs["pixel_values"]).flatten(2)[0].T.roll(1, dims=0)
        return tower(inputs["pixel_values"]) + shifted

    refused("rows of those account for 50% of it", find_rows, (64, 64), prepare, features, tower, list(tower.layers))


def test_rows_are_remembered_as_cells_are(tmp_path: Path) -> None:
    found, calls = Tower(lambda states: states, before=1).find(), list[int]()
    for _ in range(2):
        again = cached("rows", FoundRows, {"model": "a"}, (64, 64), lambda: calls.append(1) or found, tmp_path)
    assert calls == [1]
    for name, value in vars(found).items():
        np.testing.assert_array_equal(getattr(again, name), value)
