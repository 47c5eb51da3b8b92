from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sightline.core.selection import TokenView
from sightline.errors import SightlineError
from sightline.selectors.prunesid import PruneSID, principal_groups, quotas, surviving
from tests.unit.selectors.contract import check_contract, scene


def literal(view: TokenView, k: int) -> list[int]:
    """The method as it is described, group by group, in numpy."""
    features = view.signals["vision.hidden@-2"].double().numpy()
    score = view.signals["vision.cls_attention@-2"].double().numpy().sum(axis=0)
    n, count = len(features), max(1, k // 4)
    columns = 1.0 / (1.0 + np.exp(-features.T))
    _, _, directions = np.linalg.svd(columns - columns.mean(axis=0), full_matrices=False)
    group = np.abs(directions[:count]).argmax(axis=0)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    alike = unit @ unit.T
    limit = k / 32 * alike[np.triu_indices(n, 1)].mean()
    members: list[list[int]] = []
    survived: list[int] = []
    for g in range(count):
        pool = [int(i) for i in np.argsort(-score, kind="stable") if group[i] == g]
        left: list[int] = []
        for i in pool:
            if all(alike[i, j] <= limit for j in left):
                left.append(i)
        members.append(left + [i for i in pool if i not in left])
        survived.append(len(left))
    rest = k - sum(bool(pool) for pool in members)
    upto = [0, *(round(rest * part / sum(survived)) for part in np.cumsum(survived))]
    allowed = [int(bool(pool)) + upto[g + 1] - upto[g] for g, pool in enumerate(members)]
    kept = [i for pool, allow in zip(members, allowed, strict=True) for i in pool[:allow]]
    for g in sorted(range(count), key=lambda g: -survived[g]):
        kept += members[g][allowed[g] :][: k - len(kept)]
    return sorted(kept)


def test_contract() -> None:
    check_contract(PruneSID())


@pytest.mark.parametrize("k", [1, 5, 12, 24, 40])
def test_it_agrees_with_the_description(k: int) -> None:
    for seed in range(3):
        view = scene(seed)
        assert PruneSID().select(view, k).anchors.tolist() == literal(view, k)


def test_patches_of_two_kinds_make_two_groups() -> None:
    """Patterns over channels at right angles, one stronger: each direction is made of the patches of one pattern."""
    level = torch.tensor([[3.0], [2.8], [3.2], [2.9]])
    features = torch.zeros(8, 4)
    features[::2] = level * torch.tensor([1.0, -1.0, 0.0, 0.0])
    features[1::2] = level / 3 * torch.tensor([0.0, 0.0, 1.0, -1.0])
    group = principal_groups(features, 2)
    assert group.tolist() == [0, 1] * 4


def test_only_the_similar_of_the_same_group_are_suppressed() -> None:
    similarity = torch.ones(4, 4)
    similarity[0, 3] = similarity[3, 0] = 0.1
    score, group = torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([0, 0, 1, 0])
    assert surviving(similarity, score, group, torch.tensor(0.5)).tolist() == [True, False, True, True]


def test_quotas_follow_survivors_and_add_up() -> None:
    """One each for three groups, and 10 more in the proportion 6 : 1 : 3; the third of four groups is empty."""
    group = torch.tensor([0] * 6 + [1] * 3 + [3] * 3)
    left = torch.tensor([True] * 6 + [True, False, False] + [True] * 3)
    assert quotas(group, left, 4, 13).tolist() == [1 + 6, 1 + 1, 0, 1 + 3]


def test_a_patch_is_never_kept_beside_its_copy_while_others_survive() -> None:
    view = scene(4)
    features = view.signals["vision.hidden@-2"].clone()
    features[1] = features[0]
    view = replace(view, signals={**view.signals, "vision.hidden@-2": features})
    kept = PruneSID().select(view, 8).anchors.tolist()
    assert not {0, 1} <= set(kept)
    with pytest.raises(SightlineError, match="lenience"):
        PruneSID(-1.0)
