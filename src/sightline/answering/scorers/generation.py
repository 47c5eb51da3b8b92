from __future__ import annotations

import re
from typing import Any, ClassVar

from sightline.answering.scorers.base import SCORERS
from sightline.answering.scorers.spoken import SPOKEN_COLUMNS, SpokenScorer, Utterance
from sightline.core.probe import Probe
from sightline.core.row import Column


@SCORERS.register("generation")
class Generation(SpokenScorer):
    """A yes/no question answered in the model's own words; predicted is its first word if that is yes or no."""

    name: ClassVar[str] = "generation"
    columns: ClassVar[tuple[Column, ...]] = SPOKEN_COLUMNS
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "hfpr")

    def judge(self, probe: Probe, result: Utterance, arm: str) -> dict[str, Any]:
        first = re.match(r"\W*(yes|no)\b", result.text, re.IGNORECASE)
        predicted = first[1].lower() if first else result.text
        return {
            "predicted": predicted,
            "correct": predicted == probe.label,
            "answer": result.text,
            "answer_tokens": result.tokens,
            "cut_off": result.cut_off,
            "answer_loss": result.loss,
        }
