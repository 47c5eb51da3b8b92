"""Methods that merge what they do not keep: VisionZip, PruMerge, ToMe, Nuwa, DUET, ApET."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from sightline.core.selection import TokenView
from sightline.selectors.apet import ApET, approximation_errors, farthest_from_mean, farthest_points
from sightline.selectors.duet import Duet, local_merge
from sightline.selectors.nuwa import Nuwa, plane, regional_anchors, spatial_weights
from sightline.selectors.prumerge import KEYS, PruMerge, PruMergePlus, class_attention, merge_weights
from sightline.selectors.tome import ToMe, match, mean_weights, merge_to
from sightline.selectors.visionzip import VisionZip, VisionZipQwen, split_budget
from tests.golden.token_answers import official_centres
from tests.unit.selectors.views import check_batch, check_selection, mix_of, scene, view


def image(n: int = 50, seed: int = 0) -> TokenView:
    """Drawn attention and keys, with a class token and without."""
    source = torch.Generator().manual_seed(seed)
    signals = {
        "vision.cls_attention@-2": torch.rand(4, n, generator=source),
        "vision.key@-2": torch.randn(4, n, 8, generator=source),
        "vision.received@-1": torch.rand(n, generator=source),
        "vision.key@-1": torch.randn(4, n, 8, generator=source),
    }
    return view(torch.zeros(n, 4), signals=signals)


@pytest.mark.parametrize("k", [1, 2, 3, 10, 49, 50])
def test_the_class_token_counts_in_the_budget_and_has_no_cell(k: int) -> None:
    selection, with_class = VisionZip().select(image(), k), k > 1
    mix = mix_of(selection)
    assert selection.merge_at == "vision"
    assert mix.shape == (k, 50 + with_class)
    assert int((selection.anchors == -1).sum()) == float(mix[:, 50:].sum()) == with_class
    sources = mix[:, :50] != 0
    assert int(sources.any(dim=0).sum()) == (50 if k > 2 else 1)
    assert bool((sources.sum(dim=0) <= 1).all())


def test_orders_differ_in_order_only() -> None:
    native, blocks, rank = (VisionZip(order=order).select(image(), 20) for order in ("native", "blocks", "rank"))
    assert (native.native_order, blocks.native_order, rank.native_order) == (True, False, False)
    assert torch.equal(native.anchors, blocks.anchors)
    dominant, _ = split_budget(20, class_token=True)
    leading = rank.anchors[1 : dominant + 1]
    assert torch.equal(leading.sort().values, blocks.anchors[1 : dominant + 1])
    assert bool((image().signals["vision.cls_attention@-2"].sum(dim=0)[leading].diff() <= 0).all())
    assert torch.equal(mix_of(rank)[rank.anchors.argsort()], mix_of(blocks)[blocks.anchors.argsort()])


def test_the_qwen_form_merges_projected_tokens_with_exhaustive_lineage() -> None:
    selection = VisionZipQwen().select(image(), 15)
    assert selection.merge_at == "tokens"
    assert bool((mix_of(selection) != 0).any(dim=0).all())
    assert torch.equal(selection.anchors, selection.anchors.sort().values)
    assert VisionZipQwen().select(image(), 2).mix is None
    assert VisionZipQwen().select(image(), 50).anchors.tolist() == list(range(50))


def test_zero_keys_join_the_first_target_and_weights_stay_finite() -> None:
    alike = image(30)
    alike.signals["vision.key@-1"].zero_()
    mix = mix_of(VisionZipQwen().select(alike, 12))
    assert bool(mix.isfinite().all())
    assert int((mix != 0).sum(dim=1).max()) == 30 - 12 + 1


def test_k_outputs_are_the_fixed_ratio_form_with_k_minus_one_centres() -> None:
    keys = scene(0).signals[KEYS].transpose(0, 1).flatten(1)
    cls_query, cls_key = (scene(0).signals[f"vision.cls_{name}@-1"].flatten() for name in ("query", "key"))
    attention = class_attention(cls_query[None], cls_key[None], keys[None])
    centres = official_centres(attention[0], ratio=(10 - 1) / 42 + 1e-9, plus=False)
    selection = PruMerge().select(scene(0), 10)
    assert selection.anchors.tolist() == [*centres.tolist(), -1]
    assert selection.merge_at == "vision"
    assert torch.equal(mix_of(selection), merge_weights(attention, keys[None], centres[None])[0])


def test_the_class_token_has_its_part_in_the_normalisation() -> None:
    attention = class_attention(torch.zeros(1, 4), torch.randn(1, 4), torch.randn(1, 7, 4))
    torch.testing.assert_close(attention, torch.full((1, 7), 1 / 8))


def test_lineage_of_a_centre_is_itself_and_its_nearest_by_key() -> None:
    attention, keys = torch.rand(1, 12), torch.randn(1, 12, 6)
    mix = merge_weights(attention, keys, torch.tensor([[3, 8]]), neighbours=4)[0]
    cosine = torch.nn.functional.cosine_similarity(keys[0, 3], keys[0], dim=1)
    cosine[3] = -2.0
    nearest = cosine.topk(4).indices.tolist()
    assert set(mix[0].nonzero()[:, 0].tolist()) == {3, *nearest}
    assert mix[0, 3] == 1.0
    assert torch.equal(mix[0, nearest], attention[0, nearest])
    assert mix[2].tolist() == [0.0 if i in (3, 8) else a for i, a in enumerate(attention[0].tolist())]


def test_plus_adds_an_even_ladder_without_touching_the_budget() -> None:
    attention = torch.zeros(1, 576)
    attention[0, 100:136] = 1.0
    centres = PruMergePlus().centres(attention, 144)[0].tolist()
    attended, ladder = centres[:36], centres[36:]
    assert attended == list(range(100, 136))
    assert len(ladder) == 108
    assert ladder[:3] == [0, 5, 10]
    assert ladder == sorted(set(ladder) - set(attended))
    others = [i for i in range(576) if i not in attended]
    assert {others.index(b) - others.index(a) for a, b in itertools.pairwise(ladder)} == {5}


def test_tome_partitions_tokens_into_outputs_that_are_means() -> None:
    shown = scene(5)
    for most in (None, 1, 7):
        selection = ToMe(most=most).select(shown, 9)
        mix = mix_of(selection)
        assert ((mix > 0).sum(dim=0) == 1).all(), most
        for anchor, row in zip(selection.anchors.tolist(), mix, strict=True):
            members = row.nonzero()[:, 0]
            assert anchor in members.tolist()
            torch.testing.assert_close(row @ shown.tokens, shown.tokens[members].mean(dim=0))
    assert ToMe(metric="tokens").needs == frozenset()
    assert len(ToMe(metric="tokens").select(replace(shown, signals={}), 5).anchors) == 5


def test_tome_merges_equal_tokens_first_and_never_a_protected_one() -> None:
    metric = torch.eye(8)
    metric[6] = metric[3]
    slot, _ = match(metric[None], 1)
    assert slot[0, 6] == slot[0, 3]
    assert len(set(slot[0].tolist())) == 7
    slot, kept = match(torch.ones(1, 9, 4), 100, protect_first=True)
    assert kept.shape[1] == 5
    assert (slot[0] == slot[0, 0]).sum() == 1


def test_steps_of_tome_compose_like_their_matrices() -> None:
    metric = scene(6).tokens[None]
    first, kept = match(metric, 21)
    one, size = mean_weights(first, kept.shape[1], torch.ones(1, 42))
    second, left = match(one @ metric, 4)
    two, _ = mean_weights(second, left.shape[1], size)
    slot, anchors = merge_to(metric, 17)
    torch.testing.assert_close(mean_weights(slot, 17, torch.ones(1, 42))[0], two @ one)
    assert torch.equal(anchors, kept.gather(1, left))


def test_nuwa_spreads_anchors_over_regions_before_any_region_gives_two() -> None:
    odd = [[0, 1, 3, 4], [2, 9, 5, 9], [6, 7, 9, 9], [8, 9, 9, 9]]
    assert plane(((3, 3),)).regions.tolist() == odd, "odd sides leave smaller regions"
    importance, regions = torch.zeros(1, 16), plane(((4, 4),)).regions
    importance[0, [0, 1, 4, 5]] = torch.tensor([4.0, 3.0, 2.0, 1.0])  # all in the first region
    for k, per_region, anchors in [
        (4, 1, [0, 2, 8, 10]),
        (4, 4, [0, 1, 4, 5]),
        (5, 1, [0, 1, 2, 3, 8]),  # two each are needed
    ]:
        assert regional_anchors(importance, regions, k, per_region=per_region).tolist() == [anchors]


def test_nuwas_strong_anchors_stand_alone_and_weak_ones_absorb_within_reach() -> None:
    importance, anchors = torch.tensor([[0.4, 0.1, 0.1, 0.2]]), torch.tensor([[0, 3]])
    mix = spatial_weights(torch.ones(1, 4, 2), importance, anchors, plane(((1, 4),)), reach=2.0, percentile=0.55)[0]
    assert mix[0].tolist() == [1.0, 0.0, 0.0, 0.0]
    # Alike features: weights 1 - distance / 2 = (0, 0, 1/2, 1), divided by their sum 3/2; then the own weight is 1.
    torch.testing.assert_close(mix[1], torch.tensor([0.0, 0.0, 1 / 3, 1.0]))


def test_tiles_of_nuwa_absorb_nothing_from_one_another() -> None:
    shown = replace(scene(0, rows=4, columns=6), layout=((3, 4), (3, 4)))
    selection = Nuwa(percentile=1.0, reach=math.inf).select(shown, 8)
    check_selection(selection, 24, 8)
    for anchor, row in zip(selection.anchors.tolist(), mix_of(selection), strict=True):
        assert not row[slice(12, 24) if anchor < 12 else slice(0, 12)].any()


def test_nuwas_layers_are_parameters_and_the_merge_precedes_the_projector() -> None:
    selector = Nuwa(first_layer=-2, last_layer=-1)
    assert "vision.hidden_mean@-2:-1" in selector.needs
    shown = replace(scene(0), signals={**scene(0).signals, "vision.hidden_mean@-2:-1": torch.randn(42, 4)})
    assert selector.select(shown, 9).merge_at == "vision"
    check_batch(selector, [shown, shown], k=9)
    check_batch(Nuwa(), [scene(0), scene(1, rows=7, columns=6), scene(2, rows=3, columns=14)], k=15)


def duet_literal(view: TokenView, k: int, share: float, width: int) -> tuple[list[int], np.ndarray]:
    """The stage as it is described, token by token."""
    received = view.signals["vision.received@-1"].double().numpy()
    keys = view.signals["vision.key@-1"].double().numpy().mean(axis=0)
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    clusters = round(k * share)
    by_attention = np.argsort(-received, kind="stable").tolist()
    dominant, rest = by_attention[: k - clusters], by_attention[k - clusters :]
    pool = rest[: width * clusters]
    step = max(1, len(pool) // max(1, clusters))
    centres = pool[::step][:clusters]
    mix = np.zeros((k, len(received)))
    mix[np.arange(k), dominant + centres] = 1.0
    joins: dict[int, list[int]] = {}
    for token in pool:
        if token not in centres:
            joins.setdefault(int((keys[centres] @ keys[token]).argmax()), []).append(token)
    for cluster, tokens in joins.items():
        mix[k - clusters + cluster, tokens] = 1.0 / len(tokens)
    return dominant + centres, mix


@pytest.mark.parametrize(("k", "share", "width"), [(8, 0.16, 4), (20, 0.3, 2), (12, 0.5, 4), (30, 0.2, 4), (5, 0.0, 4)])
def test_duet_agrees_with_its_description(k: int, share: float, width: int) -> None:
    for seed in range(3):
        chosen = Duet(share, width).select(scene(seed), k)
        anchors, mix = duet_literal(scene(seed), k, share, width)
        assert chosen.anchors.tolist() == anchors
        np.testing.assert_allclose(mix_of(chosen).numpy(), mix, atol=1e-6)


def test_a_small_plan_of_duet_worked_by_hand() -> None:
    """Attention falls with the index. One dominant token, two clusters of width 2: centres 1 and 3, 2 and 4 join."""
    received = torch.tensor([0.5, 0.4, 0.3, 0.2, 0.1, 0.0])
    metric = torch.tensor([[9.0, 9.0], [1.0, 0.0], [0.1, 1.0], [0.0, 1.0], [0.2, 1.0], [1.0, 0.0]])
    anchors, mix = local_merge(received, metric, 1, 2, 2)
    assert anchors.tolist() == [0, 1, 3]
    assert mix.tolist() == [[1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 0.5, 1, 0.5, 0]]


def apet_literal(features: np.ndarray, k: int, basis: int) -> tuple[list[int], np.ndarray]:
    """The method as it is described, in numpy: anchors (basis first) and mix."""
    n = len(features)
    picks = [int(np.linalg.norm(features - features.mean(axis=0), axis=1).argmax())]
    while len(picks) < basis:
        gap = np.linalg.norm(features[:, None] - features[picks][None], axis=2).min(axis=1)
        gap[picks] = -1
        picks.append(int(gap.argmax()))
    spanning = features[picks]
    weights, *_ = np.linalg.lstsq(spanning.T, features.T, rcond=None)
    errors = np.linalg.norm(features - weights.T @ spanning, axis=1)
    spared = picks[: min(basis, k // 2)]
    ranked = [int(i) for i in np.argsort(-errors, kind="stable") if i not in spared]
    leading = sorted(ranked[: k - len(spared)])
    mix = np.zeros((k, n))
    mix[np.arange(k), spared + leading] = 1.0
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    for i in (ranked + sorted(spared))[k:]:  # the basis joins too, and as many as it has places are lost
        mix[len(spared) + int((unit[leading] @ unit[i]).argmax()), i] = 1.0
    return spared + leading, mix / mix.sum(axis=1, keepdims=True)


def test_apet_agrees_with_its_description() -> None:
    for k in (3, 8, 20, 41):
        chosen = ApET(basis=4).select(scene(k), k)
        anchors, mix = apet_literal(scene(k).tokens.double().numpy(), k, 4)
        assert chosen.anchors.tolist() == anchors
        np.testing.assert_allclose(mix_of(chosen).numpy(), mix, atol=1e-6)


def test_apets_basis_spans_counts_twice_and_as_many_tokens_are_lost() -> None:
    """Tokens of a plane, and one out of it: the farthest points span the plane, so the other one stands out.

    As published the basis takes the places of the tokens next in rank, and its own rows are merged as well.
    """
    flat = torch.tensor([[9.0, 0, 0], [0, 8.0, 0], [1.0, 1, 0], [2.0, 1, 0], [1.0, 2, 1.5], [3.0, 3, 0]])
    products = flat.double() @ flat.double().T
    basis = farthest_points(products, farthest_from_mean(products), 2)
    assert basis.tolist() == [0, 1]
    errors = approximation_errors(products, basis)
    assert int(errors.argmax()) == 4
    assert errors[[0, 1, 2, 3, 5]].max() < 1e-5
    chosen = ApET(basis=2).select(view(flat), 4).anchors.tolist()
    assert chosen[:2] == [0, 1]
    assert 4 in chosen
    published = ApET().select(scene(5), 17)
    times = (mix_of(published) > 0).sum(dim=0)
    assert times[published.anchors[:8]].tolist() == [2] * 8
    assert times.bincount().tolist()[0] == 8
