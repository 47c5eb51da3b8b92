"""The tensor resize gives Pillow's bytes, and torch's own bytes in torch's arithmetic, whatever the sizes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from sightline.backbones import images as resampling
from sightline.backbones.images import Size, by_tensors, on_host, resizer, rows_first, taps
from sightline.errors import SightlineError

HOST = torch.device("cpu")
BICUBIC, BILINEAR = int(Image.Resampling.BICUBIC), int(Image.Resampling.BILINEAR)
EDGES = st.one_of(st.integers(1, 6), st.integers(1, 300))
SIZES = st.tuples(EDGES, EDGES)


def noise(size: Size, seed: int, harsh: bool) -> Tensor:
    """Bytes that leave no weight unseen; black and white ones overshoot, so that clipping shows."""
    drawn = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    return torch.from_numpy(np.where(drawn > 127, 255, 0).astype(np.uint8) if harsh else drawn)


@settings(max_examples=150, deadline=None)
@given(SIZES, SIZES, st.sampled_from([BICUBIC, BILINEAR]), st.integers(0, 99), st.booleans())
@example((1, 1), (300, 300), BICUBIC, 0, False)
@example((300, 300), (1, 1), BICUBIC, 0, False)
@example((1, 300), (300, 1), BICUBIC, 0, True)
@example((300, 1), (1, 300), BICUBIC, 0, True)
@example((200, 1), (64, 32), BICUBIC, 0, True)
@example((100, 100), (50, 75), BICUBIC, 0, True)
@example((100, 100), (50, 76), BICUBIC, 0, True)
@example((64, 64), (64, 64), BILINEAR, 0, False)
def test_bytes_are_pillows(source: Size, target: Size, kind: int, seed: int, harsh: bool) -> None:
    image = noise(source, seed, harsh)
    ours = by_tensors(source, target, kind, HOST, "pillow")(image)
    expected = Image.fromarray(image.numpy()).resize(target[::-1], Image.Resampling(kind))
    assert ours.dtype == torch.uint8
    assert torch.equal(ours, torch.from_numpy(np.array(expected)))


@settings(max_examples=60, deadline=None)
@given(SIZES, SIZES, st.integers(0, 99), st.booleans())
def test_bytes_are_torchs_in_torchs_arithmetic(source: Size, target: Size, seed: int, harsh: bool) -> None:
    image = noise(source, seed, harsh)
    ours = by_tensors(source, target, BICUBIC, HOST, "torch")(image)
    assert torch.equal(ours, on_host(target, BICUBIC, "torch")(image))


def test_a_host_image_is_resized_by_pillow_itself() -> None:
    image = noise((40, 70), 1, False)
    assert torch.equal(
        resizer((40, 70), (31, 20), int(Image.Resampling.LANCZOS), HOST)(image),
        torch.from_numpy(np.array(Image.fromarray(image.numpy()).resize((20, 31), Image.Resampling.LANCZOS))),
    )


def test_the_order_of_passes_depends_on_what_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resampling, "_pillow_orders_passes", lambda: True)
    assert rows_first((100, 100), (50, 76), "pillow")
    assert not rows_first((100, 100), (50, 75), "pillow")
    assert not rows_first((100, 100), (101, 400), "pillow")
    assert not rows_first((100, 100), (50, 76), "torch")
    monkeypatch.setattr(resampling, "_pillow_orders_passes", lambda: False)
    assert not rows_first((100, 100), (50, 76), "pillow")


def test_tables_are_made_once_and_weights_sum_to_one() -> None:
    table = taps(640, 448, BICUBIC, "pillow", HOST)
    assert taps(640, 448, BICUBIC, "pillow", HOST) is table
    assert (table.weight.sum(0) - (1 << table.bits)).abs().max() <= len(table.weight)


def test_an_unknown_filter_is_refused_in_one_line() -> None:
    with pytest.raises(SightlineError, match=r"filter 4.*--device cpu"):
        by_tensors((8, 8), (4, 4), int(Image.Resampling.BOX), HOST, "pillow")
