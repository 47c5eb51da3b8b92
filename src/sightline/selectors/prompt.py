from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sightline.selectors import SELECTORS
from sightline.selectors.scored import ScoreSource
from sightline.selectors.target import Target


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
