"""Scorers that compare how likely the prefix makes given continuations."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sightline.answering.scorers.base import Reading, Scorer
from sightline.core.prefix import Prefix
from sightline.core.probe import Probe
from sightline.errors import SightlineError

if TYPE_CHECKING:
    from sightline.backbones.base import Backbone
    from sightline.backbones.language import Cutter, Likelihood


class LikelihoodScorer(Scorer):
    """All continuations of all prefixes of a batch in one forward."""

    def launch(self, backbone: Backbone, prefixes: Sequence[Prefix], cutter: Cutter | None) -> Reading:
        return backbone.language.launch(prefixes, cutter)

    def judge(self, probe: Probe, result: Sequence[Likelihood], arm: str) -> dict[str, Any]:
        if not all(math.isfinite(each.loss) for each in result):
            raise SightlineError(
                f"the model gave a loss that is not a number for probe {probe.id}, arm {arm}; "
                "try --dtype float32 (finished shards are kept)"
            )
        return self.verdict(probe, result)

    @abstractmethod
    def verdict(self, probe: Probe, likelihoods: Sequence[Likelihood]) -> dict[str, Any]:
        """The row's columns from finite likelihoods, in the order of ``answers``."""
