"""Methods that keep tokens unlike each other, or that cover the others; and those that rank by relevance or pixels."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sightline.backbones.signals import pixels_of_tokens
from sightline.selectors.anchorprune import AnchorPrune
from sightline.selectors.cdpruner import conditional_relevance
from sightline.selectors.divprune import DivPrune, divprune_order
from sightline.selectors.gprune import flow_scores
from sightline.selectors.greedy import (
    cosine,
    cosines,
    cover_fully,
    cover_lazily,
    farthest_greedy,
    gram,
    stack,
    text_dissimilarity,
)
from sightline.selectors.mmtok import MMTok, coverage, mmtok_kept
from sightline.selectors.pixelprune import prediction_errors
from sightline.selectors.scope import Scope
from tests.refusals import Refused
from tests.unit.selectors.views import scene, view

# The shared loops: the quick form and the form that reads nothing back choose alike, whatever the batch.


def features(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_gram_is_the_full_symmetric_product() -> None:
    for n in (1, 5, 6, 7, 100):
        x = features(n, 2, n, 12)
        products = gram(x)
        torch.testing.assert_close(products, x @ x.mT)
        assert torch.equal(products, products.mT)


def test_cosines_leave_zero_tokens_at_zero() -> None:
    x = features(0, 1, 30, 8)
    x[0, 3] = 0.0
    both = cosines(x)
    torch.testing.assert_close(both[0], cosine(x[0], x[0]))
    assert both[0, 3].abs().max() == 0.0


def test_views_of_different_size_are_refused(refused: Refused) -> None:
    refused("group views by their token count", stack, [torch.zeros(3, 2), torch.zeros(4, 2)])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("levels", [None, 2, 1])
def test_lazy_coverage_equals_full_coverage(seed: int, levels: int | None) -> None:
    """Also with coarse scores, where most steps are decided by ties, and far beyond saturation."""
    covers, weight, bias = features(seed, 2, 90, 90), features(seed + 10, 2, 90).abs(), torch.zeros(2, 90)
    if levels is not None:
        covers, weight = (covers * levels).round() / levels, (weight * levels).round() / levels
    lazy = torch.stack([cover_lazily(*image, 90) for image in zip(covers, weight, bias, strict=True)])
    assert torch.equal(lazy, cover_fully(covers, weight, bias, 90))
    assert torch.equal(lazy.sort(dim=1).values, torch.arange(90).expand(2, 90))
    bias[:, :5] = -torch.inf  # excludes a token
    covers, weight = covers.abs(), torch.ones(2, 90)
    lazy = torch.stack([cover_lazily(*image, 15) for image in zip(covers, weight, bias, strict=True)])
    assert lazy.min() >= 5
    assert torch.equal(lazy, cover_fully(covers, weight, bias, 15))


def test_lazy_coverage_renews_few_of_576_gains_a_pick(monkeypatch: pytest.MonkeyPatch) -> None:
    renewed, own = list[int](), torch.Tensor.index_select

    def counted(self: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
        renewed.append(len(index))
        return own(self, dim, index)

    shown = scene(1, rows=24, columns=24)
    covers = coverage(shown.tokens, shown.signals["vision.hidden@-2"], shown.query, 0.5, 0.02, 0.2)
    monkeypatch.setattr(torch.Tensor, "index_select", counted)
    mmtok_kept([covers], 128)
    assert sum(renewed) < 40 * 128


def test_forced_seeds_come_first_and_only_as_many_as_asked() -> None:
    similarity = cosines(features(3, 2, 40, 6))
    seeds, counts = torch.tensor([[7, 3, 9], [7, 3, 9]]), torch.tensor([3, 1])
    picks = farthest_greedy(similarity, torch.ones(2, 40), seeds, counts, ceiling=2.0, k=40)
    assert picks[0, :3].tolist() == [7, 3, 9]
    assert picks[1, :2].tolist() == [7, int(similarity[1, 7].argmin())]
    assert torch.equal(picks.sort(dim=1).values, torch.arange(40).expand(2, 40))


def test_of_two_mutual_neighbours_divprune_takes_the_lower_index_first() -> None:
    tokens = torch.tensor([[1.0, 0.01], [0.3, 1.7], [0.1, 1.9], [1.0, 0.02]])
    assert divprune_order(tokens[None], 1)[0].tolist() == [1]


def test_when_only_duplicates_are_left_divprune_takes_them_by_index() -> None:
    tokens = torch.cat([torch.eye(4), torch.eye(4), torch.zeros(1, 4)])
    order = divprune_order(tokens[None], 9)[0].tolist()
    assert sorted(order) == list(range(9))
    assert order[5:] == sorted(order[5:])
    assert DivPrune().select(view(tokens), 1).anchors.tolist() == order[:1]


def test_cdpruner_finds_relevant_what_is_least_like_the_text() -> None:
    patches = torch.tensor([[[3.0, 0.0], [0.0, 1.0], [-2.0, 0.0]]])
    relevance = conditional_relevance(text_dissimilarity(patches, torch.tensor([[1.0, 0.0]])))
    torch.testing.assert_close(relevance, torch.tensor([[5e-7, 0.5, 1.0]]), atol=1e-6, rtol=0.0)


def test_images_of_a_batch_influence_each_other_in_cdpruner_only_on_request() -> None:
    scores = torch.tensor([[0.0, 1.0], [2.0, 4.0]])
    assert torch.equal(conditional_relevance(scores)[0], conditional_relevance(scores[:1])[0])
    assert conditional_relevance(scores, across_batch=True)[0, 1] < 0.5


@pytest.mark.parametrize("levels", [3, 1000], ids=["many ties", "few ties"])
def test_mmtoks_lazy_and_exhaustive_loops_pick_alike(levels: int) -> None:
    covers = torch.randint(0, levels, (4, 70, 90), generator=torch.Generator().manual_seed(levels)) / levels
    covers[:, 35:] = covers[:, :35]  # every patch twice
    excluded = torch.zeros(4, 70, dtype=torch.bool)
    excluded[:, ::9] = True
    alike = torch.ones(4, 70, dtype=torch.float64)
    barred = torch.zeros_like(alike).masked_fill(excluded, -torch.inf)
    together = cover_fully(covers, alike, barred, 50)
    assert not excluded.gather(1, together).any()
    for image, weight, bias, picks in zip(covers, alike, barred, together, strict=True):
        assert torch.equal(cover_lazily(image, weight, bias, 50), picks)
        assert picks.unique().shape == (50,)
    assert torch.equal(mmtok_kept(list(covers), 50, excluded), together.sort(dim=1).values)
    padded = torch.nn.functional.pad(covers, (0, 5))  # uncovered items, as in a batch
    assert torch.equal(cover_fully(padded, alike, barred, 50), together)


def test_mmtok_covers_every_item_by_a_distribution_over_patches() -> None:
    shown = scene(2)
    covers = coverage(shown.tokens, shown.signals["vision.hidden@-2"], shown.query, 0.5, 0.02, 0.2)
    assert covers.shape == (42, 3 + 42)
    torch.testing.assert_close(covers[:, :3].sum(dim=0), torch.full((3,), 1 / 3))
    torch.testing.assert_close(covers[:, 3:].sum(dim=0), torch.full((42,), 0.5 / 42))


def test_mmtok_picks_the_patch_that_the_question_names_first() -> None:
    asked = replace(scene(4), query=scene(4).tokens[17:18] * 3.0)
    assert MMTok().select(asked, 1).anchors.tolist() == [17]
    assert MMTok(features="clip.image").needs == {"clip.image"}


def test_scopes_pure_coverage_neither_needs_nor_reads_attention() -> None:
    pure = Scope(alpha=0.0)
    assert pure.needs == {"vision.hidden@-2"}
    assert Scope().needs == {"vision.hidden@-2", "vision.cls_attention@-2"}
    signals = {"vision.hidden@-2": features(3, 50, 16)}
    anchors = pure.select(view(torch.zeros(50, 8), signals=signals), 20).anchors
    alike = view(torch.zeros(50, 8), signals={**signals, "vision.cls_attention@-2": torch.ones(4, 50)})
    assert torch.equal(anchors, Scope().select(alike, 20).anchors)


# By relevance, by a graph of tokens, by pixels.


def test_anchorprune_fills_up_with_the_lowest_indices_where_nothing_is_important() -> None:
    signals = {"clip.image": features(4, 30, 8), "vision.cls_attention@-2": torch.zeros(4, 30)}
    signals |= {"clip.text": -signals["clip.image"][29:], "vision.hidden@-2": features(5, 30, 16)}
    anchors = AnchorPrune(k_min=1, max_ratio=0.0).select(view(torch.zeros(30, 8), signals=signals), 6).anchors
    assert anchors.tolist() == [0, 1, 2, 3, 4, 29]


def test_gprune_connects_tokens_at_the_threshold_and_others_keep_their_norm() -> None:
    apart = torch.diag(torch.tensor([3.0, 1.0, 2.0]))
    half = torch.tensor([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, -1.0]])  # cosine exactly one half
    for tokens, threshold, temperature, iterations, scores in [
        (apart, 0.5, 0.03, 5, [3.0, 1.0, 2.0]),
        (half, 0.5, 1.0, 1, [1.0, 1.0]),
        (half, 0.5001, 1.0, 1, [2.0, 2.0]),
    ]:
        assert flow_scores(tokens[None], threshold, temperature, iterations)[0].tolist() == scores


def test_a_rectangle_costs_its_corners_where_edges_are_seen() -> None:
    """A dark rectangle on paper, worked by hand: beside the first token, where it begins, where its first row ends, and
    where the paper begins again below its left side. Below its right corner the left neighbour predicts paper."""
    sheet = torch.zeros(5, 6, 1)
    sheet[1:3, 2:4] = 7.0
    errors = prediction_errors(sheet.flatten(0, 1), ((5, 6),), 0.0)
    assert torch.nonzero(errors).flatten().tolist() == [0, 6 + 2, 6 + 4, 18 + 2]


def test_tiles_predict_nothing_of_one_another() -> None:
    errors = prediction_errors(torch.zeros(8, 3), ((2, 2), (2, 2)), 0.0)
    assert torch.isinf(errors).tolist() == [True, *[False] * 3] * 2


def test_blocks_of_pixels_lie_where_their_tokens_do() -> None:
    tiles = torch.arange(2 * 3 * 4 * 6.0).view(2, 3, 4, 6)
    blocks = pixels_of_tokens(tiles, ((2, 3), (2, 3)))
    assert blocks.shape == (12, 12)
    assert torch.equal(blocks[6 + 4], tiles[1, :, 2:4, 2:4].flatten())
    patches = torch.arange(24.0).view(8, 3)
    assert torch.equal(pixels_of_tokens(patches, ((1, 2),)), patches.view(2, 12))
