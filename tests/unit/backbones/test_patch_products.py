"""Convolutions that cut patches, as products."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from sightline.backbones.silenced import by_products, patch_products


@pytest.mark.parametrize(("convolution", "shape"), [
    (nn.Conv2d(3, 8, 4, stride=4), (2, 3, 12, 16)),
    (nn.Conv2d(3, 8, (4, 2), stride=(4, 2), bias=False), (1, 3, 13, 9)),
    (nn.Conv3d(3, 8, (2, 4, 4), stride=(2, 4, 4)), (5, 3, 2, 4, 4)),
    (nn.Conv2d(3, 8, 4, stride=4), (3, 8, 8)),
])  # fmt: skip
def test_products_are_the_convolution(convolution: nn.Conv2d, shape: tuple[int, ...]) -> None:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(patch_products(convolution, values), convolution(values))


def test_only_what_cuts_patches_is_replaced_and_put_back() -> None:
    cutting, sliding, padded = nn.Conv2d(3, 4, 2, stride=2), nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 2, stride=2, padding=1)
    with by_products(nn.ModuleList([cutting, sliding, padded])):
        assert "forward" in vars(cutting)
        assert not {"forward"} & {*vars(sliding), *vars(padded)}
    assert "forward" not in vars(cutting)


def test_it_is_put_back_when_something_fails() -> None:
    cutting = nn.Conv2d(3, 4, 2, stride=2)
    with pytest.raises(ZeroDivisionError), by_products(cutting):
        _ = 1 / 0
    assert "forward" not in vars(cutting)
