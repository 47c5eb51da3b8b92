from __future__ import annotations

import pytest
import torch

from sightline.errors import SightlineError
from sightline.selectors.tokencarve import TokenCarve, information, places
from tests.unit.selectors.layer_states import check_any_input, check_schedule, layer_state, visual


def test_contract() -> None:
    for ranking in ("both", "information", "attention"):
        check_any_input(TokenCarve(ranking=ranking))
    check_schedule(TokenCarve())


@pytest.mark.parametrize("shape", [(40, 90), (90, 40), (50, 50)])
def test_information_is_the_row_sum_of_the_scaled_left_vectors(shape: tuple[int, int]) -> None:
    matrix = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    matrix[..., 3] *= 300  # one massive channel, as language models have them
    left, values, _ = torch.linalg.svd(matrix.double(), full_matrices=False)
    torch.testing.assert_close(information(matrix), (left * values.unsqueeze(-2)).abs().sum(dim=-1), rtol=1e-8, atol=0)


def test_places_count_down_from_n() -> None:
    assert places(torch.tensor([0.1, 0.9, 0.9, 0.0])).tolist() == [2, 4, 3, 1]


def test_merged_tokens_are_plain_means_with_their_partner() -> None:
    state = layer_state(8, 8, width=80)
    selector = TokenCarve(weight=0.37)
    kept, source, target = selector.carve(state, 20)
    assert len(source) == 10
    assert set(target.tolist()) <= set(kept.tolist())
    assert not set(source.tolist()) & set(kept.tolist())
    tokens = visual(state)
    selection = selector.cut(state, 20)
    assert selection.mix is not None
    for slot, token in enumerate(kept.tolist()):
        members = [token, *source[target == token].tolist()]
        torch.testing.assert_close(selection.mix[slot] @ tokens, tokens[members].mean(dim=0))


def test_attention_ranking_keeps_the_upper_half_whole() -> None:
    state = layer_state(8, 8)
    score = state.signals["lm.attention_last"].mean(dim=0)[state.image]
    kept, source, _ = TokenCarve(ranking="attention").carve(state, 20)
    best = score.topk(30).indices.tolist()
    assert set(best[:15]) <= set(kept.tolist())
    assert set(kept.tolist()) | set(source.tolist()) == set(best)


def test_generous_budgets_merge_only_the_excess() -> None:
    state = layer_state(6, 6)
    assert len(TokenCarve().carve(state, 30)[1]) == 6


@pytest.mark.parametrize("arguments", [{"weight": 1.5}, {"full_layers": 0}, {"ranking": "entropy"}])
def test_refuses_bad_arguments(arguments: dict[str, object]) -> None:
    with pytest.raises(SightlineError, match="tokencarve"):
        TokenCarve(**arguments)  # type: ignore[arg-type]
