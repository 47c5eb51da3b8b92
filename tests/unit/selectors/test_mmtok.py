from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sightline.errors import SightlineError
from sightline.selectors.mmtok import MMTok, cover_greedy, cover_lazily, coverage
from tests.unit.selectors.contract import check_batch, check_contract, scene


def test_contract() -> None:
    check_contract(MMTok())


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
