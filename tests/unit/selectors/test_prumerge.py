from __future__ import annotations

import itertools

import pytest
import torch

from sightline.errors import SightlineError
from sightline.selectors.prumerge import (
    KEYS,
    PruMerge,
    PruMergePlus,
    class_attention,
    merge_weights,
)
from tests.golden.adapters.prumerge import official_centres, outlier_fraction, spatial_ladder
from tests.unit.selectors.contract import check_contract, scene


def test_contract() -> None:
    check_contract(PruMerge(), extra_outputs=1)
    check_contract(PruMergePlus(), extra_outputs=1)
    check_contract(PruMerge(neighbours=3), extra_outputs=1)


def test_k_outputs_are_the_fixed_ratio_form_with_k_minus_one_centres() -> None:
    view = scene(0)
    keys = view.signals[KEYS].transpose(0, 1).flatten(1)
    cls_query, cls_key = (view.signals[f"vision.cls_{name}@-1"].flatten() for name in ("query", "key"))
    attention = class_attention(cls_query[None], cls_key[None], keys[None])
    centres = official_centres(attention[0], ratio=(10 - 1) / 42 + 1e-9, plus=False)
    selection = PruMerge().select(view, 10)
    assert selection.anchors.tolist() == [*centres.tolist(), -1]
    assert selection.merge_at == "vision"
    assert selection.mix is not None
    assert torch.equal(selection.mix, merge_weights(attention, keys[None], centres[None])[0])


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


def test_attention_includes_the_class_token_in_its_normalisation() -> None:
    attention = class_attention(torch.zeros(1, 4), torch.randn(1, 4), torch.randn(1, 7, 4))
    torch.testing.assert_close(attention, torch.full((1, 7), 1 / 8))


def test_outlier_fraction_counts_what_exceeds_the_upper_fence() -> None:
    attention = torch.cat([torch.linspace(0.0, 1.0, 18), torch.tensor([5.0, 9.0])])
    assert outlier_fraction(attention[None]).item() == 2 / 20


def test_plus_adds_an_even_ladder_without_touching_the_budget() -> None:
    attention = torch.zeros(1, 576)
    attention[0, 100:136] = 1.0
    centres = PruMergePlus().centres(attention, 144)[0].tolist()
    assert centres[:36] == list(range(100, 136))
    ladder = centres[36:]
    assert len(ladder) == 108
    assert ladder[:3] == [0, 5, 10]
    assert ladder == sorted(ladder)
    assert not set(ladder) & set(centres[:36])
    others = [i for i in range(576) if not 100 <= i < 136]
    gaps = [others.index(b) - others.index(a) for a, b in itertools.pairwise(ladder)]
    assert set(gaps) == {5}


def test_published_ladder_needs_a_small_ratio() -> None:
    assert spatial_ladder(576, 1 / 16).tolist() == list(range(0, 575, 5))
    for ratio in (0.4, 0.0):
        with pytest.raises(SightlineError, match="ladder"):
            spatial_ladder(576, ratio)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(SightlineError, match="neighbours"):
        PruMerge(neighbours=-1)
