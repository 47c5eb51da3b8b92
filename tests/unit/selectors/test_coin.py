from __future__ import annotations

import pytest
import torch

from sightline.errors import SightlineError
from sightline.selectors.coin import CoIn, coin_order
from tests.unit.selectors.views import view


def by_definition(tokens: torch.Tensor, text: torch.Tensor, k: int, alpha: float, beta: float) -> list[int]:
    """Gram-Schmidt on the vectors themselves, one token at a time, in float64."""
    z, query = tokens.double(), text.double().mean(dim=0)
    scaled = lambda x: (x - x.min()) / (x.max() - x.min())  # noqa: E731
    align = torch.stack([row @ query / (row.norm() * query.norm()) for row in z])
    info = beta * scaled(z.norm(dim=1)) + (1 - beta) * scaled(align)
    unit = z / z.norm(dim=1, keepdim=True)
    picks, basis = [int(info.argmax())], list[torch.Tensor]()
    while len(picks) < k:
        new = unit[picks[-1]].clone()
        for vector in basis:
            new = new - (new @ vector) * vector
        basis.append(new / new.norm())
        best, best_score = -1, -1.0
        for i in range(len(z)):
            rest = max(0.0, 1.0 - sum(float(unit[i] @ vector) ** 2 for vector in basis)) ** 0.5
            score = alpha * rest + (1 - alpha) * float(info[i])
            if i not in picks and score > best_score:
                best, best_score = i, score
        picks.append(best)
    return picks


@pytest.mark.parametrize(("alpha", "beta"), [(0.9, 0.6), (0.3, 0.1), (1.0, 1.0), (0.0, 0.5)])
def test_picks_follow_the_definition(alpha: float, beta: float) -> None:
    torch.manual_seed(1)
    tokens, text = torch.randn(50, 40) + 0.5, torch.randn(7, 40)
    expected = by_definition(tokens, text, 20, alpha, beta)
    assert coin_order(tokens[None], text.mean(dim=0)[None], 20, alpha, beta)[0].tolist() == expected


def test_a_batch_chooses_as_its_images_do_alone_with_questions_of_any_length() -> None:
    torch.manual_seed(2)
    views = [view(torch.randn(60, 32), query=torch.randn(length, 32)) for length in (3, 9, 0)]
    selector = CoIn()
    together = selector.select_many(views, 25)
    for one, alone in zip(together, (selector.select(v, 25) for v in views), strict=True):
        assert torch.equal(one.anchors, alone.anchors)


@pytest.mark.parametrize("k", [1, 12, 40])
def test_zero_duplicate_and_dependent_tokens_still_give_k_distinct_ones(k: int) -> None:
    torch.manual_seed(3)
    tokens = torch.randn(40, 4)
    tokens[5:9], tokens[10:20] = 0.0, tokens[0]
    anchors = CoIn().select(view(tokens, query=torch.randn(3, 4)), k).anchors
    assert len(anchors.unique()) == k


def test_weights_outside_the_unit_interval_are_refused() -> None:
    with pytest.raises(SightlineError, match="alpha and beta"):
        CoIn(alpha=1.5)
