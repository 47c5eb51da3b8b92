"""One arm over some probes, as far as the language model is concerned: prefixes, what cuts them, what was kept."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from sightline.arms.arm import Arm
from sightline.backbones.base import Backbone
from sightline.backbones.cuts import LayerCuts
from sightline.backbones.images import Pixels
from sightline.core.prefix import Encoded, Prefix, Prompt
from sightline.core.probe import Probe
from sightline.core.selection import PositionPolicy
from sightline.device.memory import FEWER, halved, in_halves


@dataclass(frozen=True)
class Trace:
    """Which part of an image reached the model under an arm, and what getting there took."""

    anchors: np.ndarray
    """(N,) bool: cells of the outputs' anchors."""
    lineage: np.ndarray
    """(N,) bool: cells of every source of an output."""
    shares: np.ndarray | None
    """(N,) of every source the largest part it has in one output, positive on the lineage; None: nothing was mixed."""
    k: int
    k_layers: list[int] | None
    """Visual tokens that each language layer read; None when all layers read K."""
    sequence_full: int
    sequence_pruned: int
    signal_ms: float
    select_ms: float
    materialise_ms: float
    scores: np.ndarray | None = None
    """(N,) float64, what the selector ranked tokens by; None where it ranks none or nobody asked for them."""
    inside_ms: float = 0.0
    """What of the signal and select time passed inside the language model's forward."""

    halved: bool = False
    """Whether memory ran out for the batch that the selection was to be made in."""

    @property
    def merges(self) -> bool:
        return self.shares is not None


@dataclass
class ArmPass(ABC):
    """Everything between encoded images and the language model, for one arm.

    Two kinds exist and nobody else tells them apart: a method chooses before the language model (``before``) or cuts
    between its layers (``inside``).
    """

    backbone: Backbone
    arm: Arm
    probes: Sequence[Probe]
    encoded: Sequence[Encoded]
    """The image of every probe."""
    prompts: Sequence[Prompt]
    positions: PositionPolicy

    @property
    @abstractmethod
    def lengths(self) -> list[int]:
        """Slots of every prefix."""

    @property
    def groups(self) -> list[list[int]]:
        """Indices of the probes that may share a batch."""
        return [list(range(len(self.probes)))]

    def batch_tokens(self, limit: int) -> int:
        """How many tokens a batch may have, given what the user allows."""
        return limit

    @abstractmethod
    def prefix(self, i: int) -> Prefix:
        """What the language model reads for the i-th probe."""

    def cutter(self, group: Sequence[int], prefixes: Sequence[Prefix]) -> LayerCuts | None:
        """What shortens the prefixes of a batch between the layers."""
        return None

    def layer_lengths(self, i: int) -> list[int]:
        """Slots that each language layer reads for the i-th probe; all the same unless the layers cut."""
        return [self.lengths[i]] * len(self.backbone.language.layers)

    @abstractmethod
    def traces(self) -> list[Trace]:
        """Per probe what was kept; waits for the device, and checks what a queued selection could not check before.

        To be read once every prefix has been through the language model.
        """


def index_mask(indices: Tensor, n: int) -> np.ndarray:
    """(N,) bool of (K,) indices on the host; those below zero have no cell."""
    mask = np.zeros(n, dtype=bool)
    placed = indices.numpy()
    mask[placed[placed >= 0]] = True
    return mask


def layer_counts(n: int, schedule: dict[int, int], depth: int) -> list[int]:
    """Visual tokens that each layer reads: a cut after layer l takes effect from l + 1 on."""
    counts, current = [], n
    for layer in range(depth):
        counts.append(current)
        current = min(current, schedule.get(layer, current))
    return counts


# Images through the vision tower in batches: alike shapes together, halved when memory runs out.


def encode_all(
    backbone: Backbone, pixels: Sequence[Pixels], needs: Iterable[str] = (), batch_images: int = 1
) -> list[Encoded]:
    """Every image once, in the order given.

    One image per call (the default) makes an image's tokens independent of its neighbours to the last bit; batches
    are faster on a GPU and differ by rounding. Only images of equal shape share a batch.
    """
    wanted = frozenset(needs)

    def too_large(index: int) -> str:
        size = "x".join(str(edge) for edge in pixels[index].size)
        return f"a single image of {size} pixels; use a smaller image size or dtype{FEWER}"

    def encode(group: list[int]) -> list[Encoded]:
        return backbone.encode([pixels[i] for i in group], wanted)

    def patches(group: list[int]) -> int:
        return sum(math.prod(pixels[i].grid) for i in group)

    groups = _groups(pixels, max(1, batch_images))
    done = in_halves(groups, encode, too_large, patches, backbone.limits["patches"])
    smaller = halved(groups, done)
    encoded = {
        index: replace(item, halved=True) if index in smaller else item
        for group, items in done
        for index, item in zip(group, items, strict=True)
    }
    return [encoded[i] for i in range(len(pixels))]


def _groups(pixels: Sequence[Pixels], batch_images: int) -> list[list[int]]:
    """Indices of images of equal shape to the tower, at most ``batch_images`` together, by first appearance."""
    alike: dict[tuple[int, int, int], list[int]] = {}
    for index, item in enumerate(pixels):
        alike.setdefault(item.grid, []).append(index)
    return [
        members[first : first + batch_images]
        for members in alike.values()
        for first in range(0, len(members), batch_images)
    ]
