from __future__ import annotations

import torch

from sightline.selectors.divprune import DivPrune, divprune_order
from tests.unit.selectors.views import view


def test_picks_follow_the_definition() -> None:
    torch.manual_seed(1)
    tokens = torch.randn(40, 6)
    unit = tokens.double() / tokens.double().norm(dim=1, keepdim=True)
    distance = 1.0 - unit @ unit.T
    neighbour = [sorted(distance[:, j].tolist())[1] for j in range(40)]
    picks = [max(range(40), key=lambda j: (neighbour[j], -j))]
    while len(picks) < 25:
        nearest = [min(float(distance[i, j]) for j in picks) for i in range(40)]
        picks.append(max((i for i in range(40) if i not in picks), key=lambda i: (nearest[i], -i)))
    assert divprune_order(tokens[None], 25)[0].tolist() == picks


def test_of_two_mutual_neighbours_the_lower_index_comes_first() -> None:
    tokens = torch.tensor([[1.0, 0.01], [0.3, 1.7], [0.1, 1.9], [1.0, 0.02]])
    assert divprune_order(tokens[None], 1)[0].tolist() == [1]


def test_a_batch_chooses_as_its_images_do_alone() -> None:
    torch.manual_seed(2)
    views = [view(torch.randn(50, 16)) for _ in range(3)]
    for one, v in zip(DivPrune().select_many(views, 20), views, strict=True):
        assert torch.equal(one.anchors, DivPrune().select(v, 20).anchors)


def test_when_only_duplicates_are_left_they_follow_by_index() -> None:
    eye = torch.eye(4)
    tokens = torch.cat([eye, eye, torch.zeros(1, 4)])
    order = divprune_order(tokens[None], 9)[0].tolist()
    assert sorted(order) == list(range(9))
    assert order[5:] == sorted(order[5:])
    assert DivPrune().select(view(tokens), 1).anchors.tolist() == order[:1]
