"""What Triton's interpreter computes by every kernel, on a CPU, against plain code. ``test_kernels.py`` runs this file.

Programs run one after the other there, so what several of them tell each other is left to tests on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from triton.runtime import interpreter

from sightline.backbones import attention
from sightline.selectors import greedy, scores


@pytest.fixture(autouse=True, scope="module")
def numbers_as_places() -> Iterator[None]:
    """NumPy 2.4 makes no number of an array of one dimension, which the interpreter counts its loops by."""

    def patched(tensor: Any, scope: Any) -> None:
        before(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    before = interpreter._patch_lang_tensor
    with mock.patch.object(interpreter, "_patch_lang_tensor", patched):
        yield


def scene(kind: str, n: int) -> tuple[Tensor, Tensor, torch.Generator]:
    """Tokens (2, n, 24) and weights (2, n): ordinary, with real ties and duplicates, or one of them broken."""
    draw = torch.Generator().manual_seed(n)
    tokens, weight = torch.randn(2, n, 24, generator=draw), torch.rand(2, n, generator=draw)
    if kind == "tied":
        tokens, weight = tokens.sign(), (weight * 4).round() / 4
        tokens[:, n // 2 :] = tokens[:, : n - n // 2]
    if kind == "NaN":
        tokens[:, n // 3] = torch.nan
    return tokens, weight, draw


@pytest.mark.parametrize("kind", ["plain", "tied", "NaN"])
@pytest.mark.parametrize("n", [1, 2, 17, 130, 600])
def test_a_loop_in_one_launch_makes_the_picks_of_plain_code(kind: str, n: int) -> None:
    tokens, weight, draw = scene(kind, n)
    similarity, one, zero = greedy.cosines(tokens), torch.ones_like(weight), torch.zeros_like(weight)
    seeds, forced = scores.rank(weight)[:, :3], torch.tensor([min(n, 3), 1])
    k = min(n, 5)
    for ceiling in (1.0, 2.0):
        picks = greedy.launch_farthest(similarity, weight, seeds, forced, ceiling, k)
        assert torch.equal(picks, greedy.farthest_greedy(similarity, weight, seeds, forced, ceiling, k))
    spanned = min(k, n // 2 or 1) if kind == "tied" else k  # beyond, what is left to choose by is rounding
    start, noise = one.double(), one.double() * greedy.DEPENDENT
    for rooted, first in ((True, None), (False, weight.argmax(dim=1))):
        picks = greedy.launch_residual(similarity, start, noise, weight.double(), 0.9, rooted, first, spanned)
        assert torch.equal(picks, greedy.residual_greedy(similarity, one, weight, spanned, first, 0.9, rooted))
    for items in (1, n + 3):
        covers = torch.rand(2, n, items, generator=draw) if kind == "plain" else similarity[:, :, :items]
        picks = greedy.launch_cover(covers, weight.double(), zero.double(), k)
        assert torch.equal(picks, greedy.cover_fully(covers, weight, zero, k))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("texts", [1, 8, 9, 100])
def test_relevance_in_one_pass_is_the_same_number(dtype: torch.dtype, texts: int) -> None:
    draw = torch.Generator().manual_seed(texts)
    for broken in (False, True):
        tokens, query = (torch.randn(count, 260, generator=draw).to(dtype) for count in (37, texts))
        tokens[3] = 0.0
        query[0, 5] = torch.nan if broken else 0.0
        both = scores._launch_alignment(tokens, query, 2, scores.NORM_FLOOR)
        torch.testing.assert_close(scores._blend(both, 0.85), scores.relevance(tokens, query), equal_nan=True)


@pytest.mark.parametrize(("heads", "shared", "width"), [(4, 2, 64), (6, 1, 128)])
@pytest.mark.parametrize("length", [1, 65, 200])
def test_attention_by_our_kernels_is_attention(length: int, heads: int, shared: int, width: int) -> None:
    """In half precision: bfloat16 is nothing that NumPy multiplies."""
    draw = torch.Generator().manual_seed(length)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw).half()

    joined = drawn(2, length, heads + 2 * shared, width)
    query, key, value = (part.transpose(1, 2) for part in joined.split([heads, shared, shared], dim=2))
    rows, few = min(length, 7), torch.tensor([length, length // 2], dtype=torch.int32)
    mask = torch.where(torch.rand(2, 1, rows, length, generator=draw) < 0.4, -1e4, 0.0).half()
    mask[..., -1] = 0.0

    def in_slots(call: attention.Slotted) -> Any:
        def attend(query: Tensor, new_key: Tensor, new_value: Tensor, scaling: float | None) -> Tensor:
            held = [each.contiguous().to(query.dtype) for each in (key, value)]
            return call(query, new_key, new_value, attention.LayerSlots(held[0], held[1], few), scaling)

        return attend

    new = [drawn(2, each, 1, width) for each in (heads, shared, shared)]
    calls: dict[str, tuple[Any, Any, list[Tensor]]] = {
        "causal": (attention.own_causal, attention.library_causal, [query, key, value]),
        "masked": (attention.own_masked, attention.library_masked, [query[:, :, -rows:], key, value, mask]),
        "slots": (in_slots(attention.own_slotted), in_slots(attention.library_slotted), new),
    }
    for name, (own, library, states) in calls.items():
        exact = library(*(each.double() for each in states), None)
        # No further from the exact values than the library is, up to one rounding of weights and one of the result.
        allowed = (library(*states, None) - exact).abs().max() + 2 * torch.finfo(torch.half).eps * exact.abs().max()
        assert (own(*states, None) - exact).abs().max() <= allowed, name
