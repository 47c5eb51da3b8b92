"""Relevance by input embeddings alone: to the queried string, or to the whole prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from sightline.core.selection import TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.scores import TARGET_SCORE_MS, Scored, ScoreSource, rank


@SELECTORS.register("target")
@dataclass(frozen=True)
class Target(Scored):
    """Keeps the tokens most relevant to the queried string.

    Paper: Target. The K largest a_i = w minmax(r_i) + (1 - w) minmax(|z_i|), r_i the mean of the two largest
    cosines between token i and the input embeddings of the target span; ties to the lower index. O(N T D + N log
    N).
    Parity: exact indices with the paper's artifact.
    """

    name: ClassVar[str] = "target"
    plain_top: ClassVar[bool] = True
    rule_on_device: ClassVar[bool] = True
    official_ms: ClassVar[float | None] = TARGET_SCORE_MS + 0.2

    def choose(self, scores: Tensor, view: TokenView, k: int) -> Tensor:
        return rank(scores)[:k]


@SELECTORS.register("prompt")
@dataclass(frozen=True)
class FullPrompt(Target):
    """Keeps the tokens most relevant to the whole prompt.

    Paper: Full-prompt. Target's rule with every prompt token except the image's, template and system text included.
    Parity: exact indices with the paper's artifact.
    """

    score: ScoreSource = "prompt"

    name: ClassVar[str] = "prompt"
    official_ms: ClassVar[float | None] = None
