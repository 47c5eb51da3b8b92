"""Methods that keep tokens unlike each other, or that cover the others: DivPrune, CDPruner, CoIn, MMTok, SCOPE."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sightline.errors import SightlineError
from sightline.selectors.cdpruner import CDPruner, cdpruner_order, conditional_relevance, text_dissimilarity
from sightline.selectors.coin import CoIn, coin_order
from sightline.selectors.divprune import DivPrune, divprune_order
from sightline.selectors.greedy import _cover_fully, _cover_lazily, cosine, cosines, farthest_greedy, gram, stack
from sightline.selectors.mmtok import MMTok, cover_greedy, cover_lazily, coverage
from sightline.selectors.scope import Scope, scope_order
from tests.unit.selectors.views import check_batch, scene, view

# The shared loops: the quick form and the form that reads nothing back choose alike, whatever the batch.


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


def test_each_pick_maximises_the_determinant() -> None:
    torch.manual_seed(1)
    tokens, relevance = torch.randn(25, 40), torch.rand(25) + 0.1
    unit = tokens.double() / tokens.double().norm(dim=1, keepdim=True)
    kernel = (unit @ unit.T) * relevance.double()[:, None] * relevance.double()[None]
    picks = cdpruner_order(tokens[None], relevance[None], 12)[0].tolist()
    for step, pick in enumerate(picks):
        determinants = torch.full((25,), -1.0, dtype=torch.float64)
        for j in set(range(25)) - set(picks[:step]):
            chosen = [*picks[:step], j]
            determinants[j] = torch.linalg.det(kernel[chosen][:, chosen])
        assert pick == int(determinants.argmax())


def test_relevance_is_highest_where_the_patch_is_least_like_the_text() -> None:
    text = torch.tensor([[1.0, 0.0]])
    patches = torch.tensor([[[3.0, 0.0], [0.0, 1.0], [-2.0, 0.0]]])
    relevance = conditional_relevance(text_dissimilarity(patches, text))
    torch.testing.assert_close(relevance, torch.tensor([[5e-7, 0.5, 1.0]]), atol=1e-6, rtol=0.0)


def test_images_of_a_batch_influence_each_other_only_on_request() -> None:
    scores = torch.tensor([[0.0, 1.0], [2.0, 4.0]])
    assert torch.equal(conditional_relevance(scores)[0], conditional_relevance(scores[:1])[0])
    assert conditional_relevance(scores, across_batch=True)[0, 1] < 0.5


def make(n: int, d: int) -> dict[str, torch.Tensor]:
    return {"clip.image": torch.randn(n, d), "clip.text": torch.randn(2, d)}


def test_a_batch_chooses_as_its_images_do_alone_cdpruner() -> None:
    torch.manual_seed(2)
    views = [view(torch.randn(50, 64), signals=make(50, 8)) for _ in range(3)]
    for one, v in zip(CDPruner().select_many(views, 20), views, strict=True):
        assert torch.equal(one.anchors, CDPruner().select(v, 20).anchors)


@pytest.mark.parametrize("k", [1, 10, 40])
def test_k_above_the_rank_zero_tokens_and_flat_relevance_still_give_k_distinct_ones(k: int) -> None:
    torch.manual_seed(3)
    tokens = torch.randn(40, 6)
    tokens[3:8] = 0.0
    signals = {"clip.image": torch.ones(40, 4), "clip.text": torch.ones(1, 4)}
    anchors = CDPruner().select(view(tokens, signals=signals), k).anchors
    assert len(anchors.unique()) == k


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
def test_picks_follow_the_definition_coin(alpha: float, beta: float) -> None:
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


def test_questions_of_different_length_share_a_batch() -> None:
    check_batch(MMTok(), [scene(seed, texts=seed) for seed in range(4)], k=11)


@pytest.mark.parametrize("levels", [3, 1000], ids=["many ties", "few ties"])
def test_lazy_and_exhaustive_loops_pick_alike(levels: int) -> None:
    covers = torch.randint(0, levels, (4, 70, 90), generator=torch.Generator().manual_seed(levels)) / levels
    covers[:, 35:] = covers[:, :35]  # every patch twice
    excluded = torch.zeros(4, 70, dtype=torch.bool)
    excluded[:, ::9] = True
    together = cover_greedy(covers, 50, excluded)
    for image, rule, picks in zip(covers, excluded, together, strict=True):
        assert torch.equal(cover_lazily(image, 50, rule), picks)
        assert not rule[picks].any()
        assert len(set(picks.tolist())) == 50


def test_uncovered_items_that_pad_a_batch_change_no_pick() -> None:
    view = scene(2)
    covers = coverage(view.tokens, view.signals["vision.hidden@-2"], view.query, 0.5, 0.02, 0.2)
    padded = torch.nn.functional.pad(covers, (0, 5))
    assert torch.equal(cover_greedy(covers[None], 20), cover_greedy(padded[None], 20))


def test_every_item_is_covered_by_a_distribution_over_patches() -> None:
    view = scene(2)
    covers = coverage(view.tokens, view.signals["vision.hidden@-2"], view.query, 0.5, 0.02, 0.2)
    assert covers.shape == (42, 3 + 42)
    torch.testing.assert_close(covers[:, :3].sum(dim=0), torch.full((3,), 1 / 3))
    torch.testing.assert_close(covers[:, 3:].sum(dim=0), torch.full((42,), 0.5 / 42))


def test_the_patch_that_the_question_names_is_picked_first() -> None:
    view = scene(4)
    asked = replace(view, query=view.tokens[17:18] * 3.0)
    assert MMTok().select(asked, 1).anchors.tolist() == [17]


def test_the_compared_features_are_a_parameter() -> None:
    assert MMTok(features="clip.image").needs == {"clip.image"}


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(SightlineError, match="temperatures"):
        MMTok(text_temp=0.0)


def scope_by_definition(features: torch.Tensor, saliency: torch.Tensor, k: int, combined: str) -> list[int]:
    unit = features.double() / features.double().norm(dim=1, keepdim=True)
    similarity, covered = unit @ unit.T, torch.zeros(len(unit), dtype=torch.float64)
    picks: list[int] = []
    while len(picks) < k:
        best, best_score = -1, -1.0
        for j in range(len(unit)):
            gain = float((similarity[j] - covered).clamp(min=0.0).sum())
            score = gain * float(saliency[j]) if combined == "multi" else gain + float(saliency[j])
            if j not in picks and score > best_score:
                best, best_score = j, score
        picks.append(best)
        covered = torch.maximum(covered, similarity[best])
    return picks


@pytest.mark.parametrize("combined", ["multi", "add"])
def test_picks_follow_the_definition_scope(combined: str) -> None:
    torch.manual_seed(1)
    features, saliency = torch.randn(90, 24) + 0.3, torch.rand(90)
    assert scope_order(features[None], saliency[None], 40, combined)[0].tolist() == scope_by_definition(  # type: ignore[arg-type]
        features, saliency, 40, combined
    )


def signals(n: int) -> dict[str, torch.Tensor]:
    return {"vision.hidden@-2": torch.randn(n, 16), "vision.cls_attention@-2": torch.rand(4, n)}


def test_a_batch_chooses_as_its_images_do_alone_scope() -> None:
    torch.manual_seed(2)
    views = [view(torch.zeros(70, 8), signals=signals(70)) for _ in range(3)]
    for one, v in zip(Scope().select_many(views, 30), views, strict=True):
        assert torch.equal(one.anchors, Scope().select(v, 30).anchors)


def test_pure_coverage_neither_needs_nor_reads_attention() -> None:
    torch.manual_seed(3)
    coverage = Scope(alpha=0.0)
    assert coverage.needs == {"vision.hidden@-2"}
    assert Scope().needs == {"vision.hidden@-2", "vision.cls_attention@-2"}
    features = torch.randn(50, 16)
    anchors = coverage.select(view(torch.zeros(50, 8), signals={"vision.hidden@-2": features}), 20).anchors
    assert anchors.tolist() == sorted(scope_by_definition(features, torch.ones(50), 20, "multi"))


def test_zero_tokens_and_saturation_still_give_k_distinct_ones() -> None:
    torch.manual_seed(4)
    known = signals(40)
    known["vision.hidden@-2"][::2] = 0.0
    known["vision.hidden@-2"][1::4] = known["vision.hidden@-2"][1]
    anchors = Scope().select(view(torch.zeros(40, 8), signals=known), 39).anchors
    assert len(anchors.unique()) == 39


@pytest.mark.parametrize("wrong", [{"combined": "product"}, {"alpha": -1.0}])
def test_wrong_parameters_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SightlineError, match="scope"):
        Scope(**wrong)  # type: ignore[arg-type]
