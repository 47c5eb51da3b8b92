"""Projections that read the same input, as one matrix product.

Query, key and value (and gate and up) multiply the same hidden states. One product over their joined weights keeps a
GPU busier than two or three smaller ones, most of all for a single short prefix. The joined weights replace the
originals, which become views of them: no second copy in memory, and every weight is found where it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

GROUPS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Names of sibling projections, in the order in which a layer calls them."""


class Joint:
    """The joined weight (sum of E_i, D) of a group, and the parts of the product last made while tracing."""

    def __init__(self, linears: list[nn.Linear]) -> None:
        self.sizes = [each.out_features for each in linears]
        self.weight = torch.cat([each.weight.data for each in linears])
        biases = [each.bias.data for each in linears if each.bias is not None]
        self.bias = torch.cat(biases) if biases else None
        self.source: Tensor | None = None
        self.parts: tuple[Tensor, ...] = ()


class JoinedLinear(nn.Module):
    """One projection of a group: x W_i^T + b_i, cut from the group's product where that is compiled.

    While tracing, the first member called with an input makes the product for all, and the last one forgets it, so that
    nothing outlives the layer. Outside of compiled code every member multiplies with its own rows, as before.
    """

    def __init__(self, joint: Joint, index: int) -> None:
        super().__init__()
        rows = slice(sum(joint.sizes[:index]), sum(joint.sizes[: index + 1]))
        self.joint, self.index = joint, index
        self.out_features, self.in_features = joint.sizes[index], joint.weight.shape[1]
        self.weight = nn.Parameter(joint.weight[rows], requires_grad=False)
        self.bias = None if joint.bias is None else nn.Parameter(joint.bias[rows], requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            return linear(x, self.weight, self.bias)
        joint = self.joint
        if joint.source is not x:
            joint.source = x
            joint.parts = torch.split(linear(x, joint.weight, joint.bias), joint.sizes, dim=-1)
        part = joint.parts[self.index]
        if self.index == len(joint.sizes) - 1:
            joint.source, joint.parts = None, ()
        return part


def join_projections(layers: Iterable[Any]) -> None:
    """Joins all groups in these layers, in place and once; groups of which only some have a bias stay apart."""
    for layer in layers:
        for module in list(layer.modules()):
            for names in GROUPS:
                members = [getattr(module, name, None) for name in names]
                # Plain ones only: subclasses (quantised ones, say) store their weights in ways of their own.
                if any(type(member) is not nn.Linear for member in members):
                    continue
                if len({member.bias is None for member in members}) == 1:  # type: ignore[union-attr]
                    joint = Joint(members)  # type: ignore[arg-type]
                    for index, name in enumerate(names):
                        setattr(module, name, JoinedLinear(joint, index))
