"""One arm over some probes, as far as the language model is concerned: prefixes, what cuts them, what was kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from sightline.arms.arm import Arm
from sightline.backbones.base import Backbone
from sightline.backbones.cuts import LayerCuts
from sightline.core.prefix import Encoded, PositionPolicy, Prefix, Prompt
from sightline.core.probe import Probe


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
    policy: PositionPolicy

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
