"""A silenced tower shows where tokens come from, whatever its attention looks like, and is put back afterwards."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sightline.backbones.silenced import silenced

TOKENS, WIDTH = 6, 8


class SelfAttention(nn.Module):
    """Attention with code of its own: every token becomes the mean of all."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, WIDTH)

    def forward(self, states: Tensor, output_attentions: bool = False) -> tuple[Tensor, None]:
        return self.project(states).mean(-2, keepdim=True).expand_as(states), None


class AttentionWithResidual(nn.Module):
    """As BERT has it: the outer module adds what the inner one says to what came in."""

    def __init__(self) -> None:
        super().__init__()
        self.own = SelfAttention()

    def forward(self, states: Tensor) -> Tensor:
        return states + self.own(states)[0]


class Layer(nn.Module):
    """Called by name, answers a tuple; between its attention and its MLP may stand something else."""

    def __init__(self, attention: nn.Module, between: nn.Module | None = None) -> None:
        super().__init__()
        self.mixing_attn = attention
        self.between = between or nn.Identity()
        self.mlp = nn.Linear(WIDTH, WIDTH)
        self.calls = 0

    def forward(self, hidden_states: Tensor, scale: float = 1.0) -> tuple[Tensor, str]:
        self.calls += 1
        said = self.mixing_attn(hidden_states)
        states = hidden_states + (said[0] if isinstance(said, tuple) else said)
        return states + scale * self.mlp(self.between(states)), "more"


class Neighbours(nn.Module):
    """Mixes a token with the next, by its own means."""

    def forward(self, states: Tensor) -> Tensor:
        return states + states.roll(1, -2)


class Tower(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, states: Tensor) -> Tensor:
        for layer in self.layers:
            states, more = layer(hidden_states=states, scale=2.0)
            assert more == "more"
        return states


def mixed(tower: nn.Module) -> Tensor:
    """(token, token) whether the first depends on the second."""
    states = torch.randn(TOKENS, WIDTH)
    jacobian = torch.autograd.functional.jacobian(tower, states)
    return jacobian.abs().amax((1, 3)) != 0


@pytest.mark.parametrize("attention", [SelfAttention, AttentionWithResidual])
def test_silenced_tokens_do_not_mix_and_keep_their_source(attention: type[nn.Module]) -> None:
    tower = Tower(Layer(attention()), Layer(attention()))
    assert mixed(tower).all()
    with silenced(tower):
        assert torch.equal(mixed(tower), torch.eye(TOKENS, dtype=torch.bool))
    assert mixed(tower).all()


def test_layers_of_one_kind_are_tried_once_and_stepped_over() -> None:
    layers = [Layer(SelfAttention()) for _ in range(4)]
    tower = Tower(*layers)
    states = torch.randn(TOKENS, WIDTH)
    with silenced(tower):
        assert torch.equal(tower(states), states)
        assert torch.equal(tower(states), states)
    assert [layer.calls for layer in layers] == [3, 0, 0, 0]


def test_a_layer_that_mixes_by_other_means_runs_as_it_is() -> None:
    with silenced(tower := Tower(Layer(SelfAttention(), Neighbours()))):
        found = mixed(tower)
    expected = torch.eye(TOKENS, dtype=torch.bool)
    assert torch.equal(found, expected | expected.roll(1, 0))


def test_what_stood_in_place_of_forward_comes_back_after_an_error() -> None:
    layer = Layer(SelfAttention())
    tower = Tower(layer, Layer(SelfAttention()))

    def hooked(*arguments: Any, **named: Any) -> Any:
        return type(layer).forward(layer, *arguments, **named)

    layer.forward = hooked  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="shape"), silenced(tower):
        tower(torch.zeros(TOKENS, WIDTH + 1))
    assert layer.forward is hooked
    assert not any("forward" in vars(module) for module in tower.modules() if module is not layer)
