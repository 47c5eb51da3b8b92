"""Joined projections: one product where compiled, the same numbers everywhere, no second copy of a weight."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sightline.device.graphs import JoinedLinear, fastest_length, join_projections, matrices


class Layer(nn.Module):
    """Grouped attention's projections of unequal width, and a gated product."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(8, width, bias=bias) for width in (8, 4, 4))
        self.gate_proj, self.up_proj = nn.Linear(8, 6, bias=False), nn.Linear(8, 6, bias=False)
        self.down_proj = nn.Linear(6, 8)

    def forward(self, x: Tensor) -> Tensor:
        mixed = x + self.q_proj(x) * torch.cat([self.k_proj(x), self.v_proj(x)], dim=-1)
        return self.down_proj(torch.sigmoid(self.gate_proj(mixed)) * self.up_proj(mixed))


def products(call: Any, x: Tensor) -> tuple[Tensor, list[int]]:
    """The compiled call's result and how many matrix products each of its graphs holds."""
    counts: list[int] = []

    def backend(graph: Any, _: Any) -> Any:
        counts.append(sum("linear" in str(node.target) for node in graph.graph.nodes))
        return graph.forward

    torch._dynamo.reset()
    return torch.compile(call, backend=backend, fullgraph=True)(x), counts


@pytest.mark.parametrize("bias", [False, True])
@torch.inference_mode()
def test_siblings_become_one_product_where_compiled(bias: bool) -> None:
    torch.manual_seed(0)
    layer, x = Layer(bias), torch.randn(3, 8)
    expected = layer(x)
    join_projections([layer])
    assert torch.equal(layer(x), expected)
    ours, counts = products(layer, x)
    assert torch.allclose(ours, expected, atol=1e-6)
    assert counts == [3]


@pytest.mark.parametrize("bias", [False, True])
@torch.inference_mode()
def test_weights_stay_where_they_were_and_are_stored_once(bias: bool) -> None:
    layer = Layer(bias)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    join_projections([layer])
    after = layer.state_dict()
    assert set(after) == set(before)
    assert all(torch.equal(after[name], before[name]) for name in before)
    q, v = layer.q_proj, layer.v_proj
    assert isinstance(q, JoinedLinear)
    assert isinstance(v, JoinedLinear)
    assert q.weight.untyped_storage().data_ptr() == v.weight.untyped_storage().data_ptr()
    join_projections([layer])
    assert layer.q_proj is q


def test_products_are_counted_once_per_group_and_nothing_is_padded_without_a_gpu() -> None:
    layer = Layer(bias=False)
    join_projections([layer])
    assert sorted(tuple(weight.shape) for weight in matrices(layer)) == [(8, 6), (12, 8), (16, 8)]
    assert fastest_length([layer], 2, 13, 3) == 13


def test_groups_with_some_biases_and_projections_that_are_not_plain_are_left_alone() -> None:
    layer = Layer(bias=False)
    layer.k_proj = nn.Linear(8, 4)
    join_projections([layer])
    assert isinstance(layer.q_proj, nn.Linear)
    assert isinstance(layer.gate_proj, JoinedLinear)

    class Quantised(nn.Linear):
        pass

    layer = Layer(bias=False)
    layer.up_proj = Quantised(8, 6, bias=False)
    join_projections([layer])
    assert isinstance(layer.up_proj, Quantised)
    assert isinstance(layer.gate_proj, nn.Linear)
