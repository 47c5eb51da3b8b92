"""Inputs for timing selectors: one image-question pair of a given size, with every signal a method may ask for.

Sizes are LLaVA-1.5-7B's: 4096 channels in the language model, 1024 in the vision tower, 768 in CLIP's joint space, 588
values in a patch of pixels.
Features are a few dozen clusters with noise around a common mean, as real ones are: how long a lazy loop takes depends
on how alike tokens are.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from sightline.core.selection import LayerState, TokenView

WIDTH, VISION, JOINT, PATCH = 4096, 1024, 768, 588
VISION_HEADS, HEADS = 16, 32
WORDS, BEFORE, BEHIND = 6, 35, 30
CLUSTERS = 40
BOXES = ((0.1, 0.2, 0.3, 0.27), (0.55, 0.6, 0.8, 0.7))


class Inputs:
    """Draws tensors from one seeded generator on the CPU and moves them to the device."""

    def __init__(self, n: int, device: torch.device, seed: int) -> None:
        self.n, self.device = n, device
        self._source = torch.Generator().manual_seed(seed)
        rows = next(r for r in range(math.isqrt(n), 0, -1) if n % r == 0)
        self.layout = ((rows, n // rows),)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._source)

    def features(self, count: int, width: int) -> Tensor:
        """(count, width) clustered vectors of uneven length."""
        centres = self.normal(CLUSTERS, width)
        member = torch.randint(CLUSTERS, (count,), generator=self._source)
        length = 0.5 + torch.rand(count, 1, generator=self._source)
        return (0.7 * self.normal(width) + centres[member] + 0.6 * self.normal(count, width)) * length

    def weights(self, *shape: int) -> Tensor:
        """Attention: softmax over the last dimension, a class token cut off."""
        return (1.5 * self.normal(*shape[:-1], shape[-1] + 1)).softmax(dim=-1)[..., 1:]

    def vision(self, name: str) -> Tensor:
        """A ``vision.*``, ``clip.*`` or ``image.*`` signal; docs/signals.md has the shapes."""
        n, head = self.n, VISION // VISION_HEADS
        kind = name.partition("@")[0]
        if kind in ("vision.hidden", "vision.hidden_mean"):
            return self.features(n, VISION)
        if kind == "vision.cls":
            return self.normal(VISION)
        if kind == "vision.cls_attention":
            return self.weights(VISION_HEADS, n)
        if kind == "vision.received":
            return self.weights(n)
        if kind in ("vision.key", "vision.value"):
            return self.features(n, VISION).view(n, VISION_HEADS, head).transpose(0, 1).contiguous()
        if kind in ("vision.cls_key", "vision.cls_query", "vision.cls_value"):
            return self.normal(VISION_HEADS, head)
        if kind == "image.pixels":
            return self.features(n, PATCH)
        return self.features(n, JOINT) if kind == "clip.image" else self.normal(1, JOINT)

    def language(self, name: str) -> Tensor:
        """An ``lm.*`` signal for a prompt with the image in its middle."""
        length, head = BEFORE + self.n + BEHIND, WIDTH // HEADS
        if name == "lm.attention":
            future = torch.ones(length, length, dtype=torch.bool).triu(1)
            return self.normal(HEADS, length, length).masked_fill_(future, -torch.inf).softmax(dim=-1)
        if name in ("lm.attention_last", "lm.next_attention_last"):
            return self.normal(HEADS, length).softmax(dim=-1)
        if name in ("lm.key", "lm.value", "lm.bare_query", "lm.bare_key"):
            return self.normal(HEADS, length, head)
        if name == "lm.rotary":
            angle = torch.arange(length)[:, None] * 1e4 ** -(torch.arange(0, head, 2) / head).repeat(2)
            return torch.stack([angle.cos(), angle.sin()])
        return self.features(length, WIDTH)

    def view(self, needs: frozenset[str]) -> TokenView:
        (rows, columns) = self.layout[0]
        y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        corner = torch.stack([x / columns, y / rows], dim=-1).double()
        opposite = torch.stack([(x + 1) / columns, (y + 1) / rows], dim=-1).double()
        return TokenView(
            tokens=self.features(self.n, WIDTH).to(self.device),
            cells=torch.cat([corner, opposite], dim=-1).view(-1, 4),
            layout=self.layout,
            query=self.features(WORDS, WIDTH).to(self.device),
            boxes=torch.tensor(BOXES, dtype=torch.float64),
            signals={name: self.vision(name).to(self.device) for name in sorted(needs)},
            key=f"probe:orig:{self.n}",
        )

    def state(self, needs: frozenset[str]) -> LayerState:
        return LayerState(
            layer=1,
            hidden=self.features(BEFORE + self.n + BEHIND, WIDTH).to(self.device),
            image=torch.arange(BEFORE, BEFORE + self.n),
            source=torch.arange(self.n),
            layout=self.layout,
            signals={name: self.language(name).to(self.device) for name in sorted(needs)},
            key=f"probe:orig:{self.n}",
        )
