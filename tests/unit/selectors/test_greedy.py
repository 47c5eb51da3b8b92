"""The shared loops: the quick form and the form that reads nothing back choose alike, whatever the batch."""

from __future__ import annotations

import pytest
import torch

from sightline.errors import SightlineError
from sightline.selectors.greedy import _cover_fully, _cover_lazily, cosine, cosines, farthest_greedy, gram, stack


def features(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("n", [1, 5, 6, 7, 100])
def test_gram_is_the_full_symmetric_product(n: int) -> None:
    x = features(n, 2, n, 12)
    products = gram(x)
    torch.testing.assert_close(products, x @ x.mT)
    assert torch.equal(products, products.mT)


def test_cosines_agree_with_cosine_and_leave_zero_tokens_at_zero() -> None:
    x = features(0, 1, 30, 8)
    x[0, 3] = 0.0
    both = cosines(x)
    torch.testing.assert_close(both[0], cosine(x[0], x[0]))
    assert both[0, 3].abs().max() == 0.0


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("levels", [None, 2, 1])
def test_lazy_coverage_equals_full_coverage(seed: int, levels: int | None) -> None:
    """Also with coarse scores, where most steps are decided by ties, and far beyond saturation."""
    covers = features(seed, 2, 90, 90)
    weight = features(seed + 10, 2, 90).abs()
    if levels is not None:
        covers, weight = (covers * levels).round() / levels, (weight * levels).round() / levels
    bias = torch.zeros(2, 90)
    lazy = torch.stack([_cover_lazily(*image, 90) for image in zip(covers, weight, bias, strict=True)])
    assert torch.equal(lazy, _cover_fully(covers, weight, bias, 90))
    assert torch.equal(lazy.sort(dim=1).values, torch.arange(90).expand(2, 90))


def test_a_bias_of_minus_infinity_excludes_a_token() -> None:
    covers, bias = torch.rand(1, 20, 20), torch.zeros(1, 20)
    bias[0, :5] = -torch.inf
    lazy = _cover_lazily(covers[0], torch.ones(20), bias[0], 15)
    assert lazy.min() >= 5
    assert torch.equal(lazy[None], _cover_fully(covers, torch.ones(1, 20), bias, 15))


def test_forced_seeds_come_first_and_only_as_many_as_asked() -> None:
    similarity = cosines(features(3, 2, 40, 6))
    seeds, counts = torch.tensor([[7, 3, 9], [7, 3, 9]]), torch.tensor([3, 1])
    picks = farthest_greedy(similarity, torch.ones(2, 40), seeds, counts, ceiling=2.0, k=40)
    assert picks[0, :3].tolist() == [7, 3, 9]
    assert picks[1, 0] == 7
    assert picks[1, 1] == similarity[1, 7].argmin()
    assert torch.equal(picks.sort(dim=1).values, torch.arange(40).expand(2, 40))


def test_views_of_different_size_are_refused() -> None:
    with pytest.raises(SightlineError, match="group views by their token count"):
        stack([torch.zeros(3, 2), torch.zeros(4, 2)])
