from __future__ import annotations

import numpy as np
import pytest
import torch

from sightline.errors import SightlineError
from sightline.selectors.apet import ApET, approximation_errors, farthest_from_mean, farthest_points
from tests.unit.selectors.contract import check_contract, scene
from tests.unit.selectors.views import view


def literal(features: np.ndarray, k: int, basis: int) -> tuple[list[int], np.ndarray]:
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


def test_contract() -> None:
    check_contract(ApET())
    check_contract(ApET(at="vision"))


@pytest.mark.parametrize("k", [3, 8, 20, 41])
def test_it_agrees_with_the_description(k: int) -> None:
    shown = scene(k)
    chosen = ApET(basis=4).select(shown, k)
    anchors, mix = literal(shown.tokens.double().numpy(), k, 4)
    assert chosen.anchors.tolist() == anchors
    assert chosen.mix is not None
    np.testing.assert_allclose(chosen.mix.numpy(), mix, atol=1e-6)


def test_what_lies_in_the_span_of_the_basis_has_no_error() -> None:
    """Tokens of a plane, and one out of it: the farthest points span the plane, so the other one stands out."""
    flat = torch.tensor([[9.0, 0, 0], [0, 8.0, 0], [1.0, 1, 0], [2.0, 1, 0], [1.0, 2, 1.5], [3.0, 3, 0]])
    products = flat.double() @ flat.double().T
    basis = farthest_points(products, farthest_from_mean(products), 2)
    assert basis.tolist() == [0, 1]
    errors = approximation_errors(products, basis)
    assert int(errors.argmax()) == 4
    assert errors[[0, 1, 2, 3, 5]].max() < 1e-5
    chosen = ApET(basis=2).select(view(flat), 4)
    assert chosen.anchors.tolist()[:2] == [0, 1]
    assert 4 in chosen.anchors.tolist()


def test_the_basis_counts_twice_and_as_many_tokens_are_lost() -> None:
    """As published: the basis takes the places of the tokens next in rank, and its own rows are merged as well."""
    chosen = ApET().select(scene(5), 17)
    assert chosen.mix is not None
    times = (chosen.mix > 0).sum(dim=0)
    assert times[chosen.anchors[:8]].tolist() == [2] * 8
    assert times.bincount().tolist()[0] == 8


def test_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(SightlineError, match="basis"):
        ApET(basis=0)
    with pytest.raises(SightlineError, match="'tokens' or 'vision'"):
        ApET(at="somewhere")  # type: ignore[arg-type]
