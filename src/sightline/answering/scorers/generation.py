from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sightline.answering.scorers.base import SCORERS, Reading, Scorer
from sightline.core.prefix import Prefix
from sightline.core.probe import Probe
from sightline.core.row import Column

if TYPE_CHECKING:
    from sightline.backbones.base import Backbone
    from sightline.backbones.language import Cutter

MAX_NEW_TOKENS = 32


@dataclass(frozen=True)
class Said:
    """Answers that are there already: generating waits for every token anyway."""

    texts: list[tuple[str, int]]
    """Text and number of tokens of each."""

    def read(self) -> list[tuple[str, int]]:
        return self.texts


@SCORERS.register("generation")
class Generation(Scorer):
    """What the model says, greedily, one prefix at a time; predicted is its first word if that is yes or no."""

    name: ClassVar[str] = "generation"
    columns: ClassVar[tuple[Column, ...]] = (
        Column("answer", "string", "The generated text, greedy, up to a stop token."),
        Column("answer_tokens", "int32", "Generated tokens."),
    )
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "hfpr")
    batches: ClassVar[bool] = False

    def __init__(self, max_new_tokens: int = MAX_NEW_TOKENS) -> None:
        self.max_new_tokens = max_new_tokens

    def launch(self, backbone: Backbone, prefixes: Sequence[Prefix], cutter: Cutter | None) -> Reading:
        (prefix,) = prefixes
        ids = backbone.language.generate(prefix, self.max_new_tokens, backbone.stop_ids, cutter)
        return Said([(backbone.tokenizer.decode(ids, skip_special_tokens=True).strip(), len(ids))])

    def judge(self, probe: Probe, result: tuple[str, int], arm: str) -> dict[str, Any]:
        text, count = result
        first = re.match(r"\W*(yes|no)\b", text, re.IGNORECASE)
        predicted = first[1].lower() if first else text
        return {
            "predicted": predicted,
            "correct": predicted == probe.label,
            "answer": text,
            "answer_tokens": count,
        }
