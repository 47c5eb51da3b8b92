"""Scorers that let the model speak."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from sightline.answering.scorers.base import SCORERS, Reading, Scorer
from sightline.core.prefix import Prefix
from sightline.core.probe import Probe
from sightline.core.row import Column

if TYPE_CHECKING:
    from sightline.backbones.base import Backbone
    from sightline.backbones.decoding import Continues, Said
    from sightline.backbones.language import Cutter


MAX_NEW_TOKENS = 32
SPOKEN_COLUMNS = (
    Column("answer", "string", "The generated text, greedy, up to a stop token, without what surrounds the answer."),
    Column("answer_tokens", "int32", "Generated tokens, without the stop token."),
    Column("cut_off", "bool", "Whether it reached the longest allowed (--longest-answer) without a stop token."),
    Column(
        "answer_loss",
        "float64",
        "Mean negative log-likelihood per generated token, the stop token included, in nats: smaller means surer.",
    ),
)


class Utterance(NamedTuple):
    """What a model said about one prefix."""

    text: str
    tokens: int
    loss: float
    cut_off: bool = False


class SpokenScorer(Scorer):
    """What the model says, greedily, up to a stop token or ``max_new_tokens``; many prefixes side by side."""

    def __init__(self, max_new_tokens: int = MAX_NEW_TOKENS) -> None:
        self.max_new_tokens = max_new_tokens
        self._decoder: Continues | None = None

    def launch(self, backbone: Backbone, prefixes: Sequence[Prefix], cutter: Cutter | None) -> Reading:
        from sightline.backbones.decoding import decoder_of

        if self._decoder is None or self._decoder.language is not backbone.language:
            self._decoder = decoder_of(backbone.language, self.max_new_tokens, backbone.stop_ids)
        return Heard(self._decoder.launch(prefixes, cutter), backbone, self.max_new_tokens)


@dataclass(frozen=True)
class Heard:
    """Utterances that the device may still be working on."""

    said: Said
    backbone: Backbone
    most: int

    def read(self) -> list[Utterance]:
        decode = self.backbone.tokenizer.decode
        return [
            Utterance(
                decode(each.tokens, skip_special_tokens=True).strip(),
                len(each.tokens),
                each.loss,
                len(each.tokens) >= self.most,  # a stop token, which is not among them, would have ended it before
            )
            for each in self.said.read()
        ]

    @property
    def spent_ms(self) -> list[float]:
        """What each took, after ``read``: its share of every forward that it was part of."""
        return self.said.spent_ms


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
