from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sightline.errors import SightlineError
from sightline.selectors.tome import ToMe, match, mean_weights, merge_to
from tests.unit.selectors.contract import check_contract, scene


def test_contract() -> None:
    check_contract(ToMe())
    check_contract(ToMe(metric="tokens"))
    check_contract(ToMe(most=3))


@pytest.mark.parametrize("most", [None, 1, 7])
def test_lineage_is_a_partition_and_every_output_its_mean(most: int | None) -> None:
    view = scene(5)
    selection = ToMe(most=most).select(view, 9)
    mix = selection.mix
    assert mix is not None
    assert ((mix > 0).sum(dim=0) == 1).all()
    for anchor, row in zip(selection.anchors.tolist(), mix, strict=True):
        members = row.nonzero()[:, 0]
        assert anchor in members.tolist()
        torch.testing.assert_close(row @ view.tokens, view.tokens[members].mean(dim=0))


def test_steps_compose_like_their_matrices() -> None:
    metric = scene(6).tokens[None]
    first, kept = match(metric, 21)
    one, size = mean_weights(first, kept.shape[1], torch.ones(1, 42))
    second, left = match(one @ metric, 4)
    two, _ = mean_weights(second, left.shape[1], size)
    slot, anchors = merge_to(metric, 17)
    whole, _ = mean_weights(slot, 17, torch.ones(1, 42))
    torch.testing.assert_close(whole, two @ one)
    assert torch.equal(anchors, kept.gather(1, left))


def test_equal_tokens_merge_first() -> None:
    metric = torch.eye(8)
    metric[6] = metric[3]
    slot, _ = match(metric[None], 1)
    assert slot[0, 6] == slot[0, 3]
    assert len(set(slot[0].tolist())) == 7


def test_a_protected_first_token_never_merges() -> None:
    metric = torch.ones(1, 9, 4)
    slot, representative = match(metric, 100, protect_first=True)
    assert representative.shape[1] == 5
    assert (slot[0] == slot[0, 0]).sum() == 1


def test_tokens_as_metric_need_no_signal() -> None:
    assert ToMe(metric="tokens").needs == frozenset()
    bare = replace(scene(0), signals={})
    assert len(ToMe(metric="tokens").select(bare, 5).anchors) == 5


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(SightlineError, match="metric"):
        ToMe(metric="values")  # type: ignore[arg-type]
    with pytest.raises(SightlineError, match="at least 1"):
        ToMe(most=0)
