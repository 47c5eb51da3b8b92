"""Scorers that let the model speak: a yes/no question in its own words, an open question in free text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from sightline.answering.answer_scores import cleaned, score_answer
from sightline.answering.field_outcomes import judge_field, page_texts
from sightline.answering.scorers.base import SCORERS, Launched, Scorer
from sightline.core.prefix import Prefix, Prompt
from sightline.core.probe import Probe
from sightline.core.row import Column
from sightline.probes.regions import ANSWER

if TYPE_CHECKING:
    from sightline.backbones.base import Backbone
    from sightline.backbones.batches import Cutter
    from sightline.backbones.decoding import Continues, Said


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
    tokens: int | None
    loss: float | None
    """None where an engine does not tell."""
    cut_off: bool | None = False

    def as_columns(self, answer: str) -> dict[str, Any]:
        """``SPOKEN_COLUMNS``."""
        said = (answer, self.tokens, self.cut_off, self.loss)
        return dict(zip((column.name for column in SPOKEN_COLUMNS), said, strict=True))


class SpokenScorer(Scorer):
    """What the model says, greedily, up to a stop token or ``max_new_tokens``; many prefixes side by side."""

    def __init__(self, max_new_tokens: int = MAX_NEW_TOKENS) -> None:
        self.max_new_tokens = max_new_tokens
        self._decoder: Continues | None = None

    def launch(self, backbone: Backbone, prefixes: Sequence[Prefix], cutter: Cutter | None) -> Launched:
        from sightline.backbones.decoding import decoder_of

        if self._decoder is None or self._decoder.language is not backbone.language:
            self._decoder = decoder_of(backbone.language, self.max_new_tokens, backbone.stop_ids)
        return PendingUtterances(self._decoder.launch(prefixes, cutter), backbone, self.max_new_tokens)


@dataclass(frozen=True)
class PendingUtterances:
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
        return {"predicted": predicted, "correct": predicted == probe.label, **result.as_columns(result.text)}


RIGHT = 0.5
"""The score from which on an answer counts as right."""
FIELD_COLUMNS = (
    Column("outcome", "string", "What became of the value: right, swapped, digit_error, invented, silent; or wrong."),
    Column("swapped", "bool", "Whether a wrong answer stands elsewhere on the page; null: its texts are not known."),
    Column("swapped_text", "string", "The text of the page that it is, or stands in."),
    Column("swapped_box", "list<float64>", "Where that text stands, in fractions of the image."),
    Column("digit_error", "bool", "Whether it stands nowhere and differs in digits alone, at most half of them."),
    Column("digits_changed", "int32", "Digits of the accepted answer that are others; null where it has none."),
    Column("digits_lost", "int32", "Digits that are missing."),
    Column("digits_added", "int32", "Digits that are too many."),
    Column("invented", "bool", "Whether a wrong answer stands nowhere on the page and is no digit error."),
    Column("silent", "bool", "Whether nothing was answered, or that nothing can be read."),
    Column("character_errors", "float64", "Edit distance to the nearest accepted answer / its length."),
    Column("confidently_wrong", "bool", "Wrong, with a mean probability of at least 0.9 per token."),
)
"""What ``judge_field`` says of an answer."""


@SCORERS.register("open")
class OpenAnswer(SpokenScorer):
    """An open question answered in free text, scored by the rule of the benchmark that it is from.

    The question stands in the prompt with the protocol's instruction and system message; see ``Prompting.render``.
    Selectors look at the question alone: accepted answers and their regions are read here, behind the model.
    """

    name: ClassVar[str] = "open"
    open_questions: ClassVar[bool] = True
    columns: ClassVar[tuple[Column, ...]] = (
        Column("task", "string", "The benchmark that the question is from; it decides what score is."),
        Column("accepted", "string", "The first accepted answer; probes.jsonl holds all."),
        *SPOKEN_COLUMNS,
        Column("score", "float64", "The task's own: soft_accuracy, anls, ocrbench, else exact. correct: at least 0.5."),
        Column("exact", "bool", "Whether it equals an accepted answer, case, punctuation and blanks aside."),
        Column("contains", "bool", "Whether it contains an accepted answer, likewise."),
        Column("soft_accuracy", "float64", "TextVQA's: agreement with the accepted answers, each left out in turn."),
        Column("anls", "float64", "DocVQA's: 1 - edit distance / length to the nearest accepted answer, 0 below 0.5."),
        Column("anls_stripped", "float64", "The same with punctuation stripped, as the paper's artifact has it."),
        Column("ocrbench", "bool", "OCRBench's: whether it contains an accepted answer, by the authors' rule."),
        Column("same_value", "bool", "Of fields: whether it gives the value; amounts by number, dates by their parts."),
        *FIELD_COLUMNS,
    )
    metrics: ClassVar[tuple[str, ...]] = ("accuracy",)
    in_words: ClassVar[bool] = True

    def prompt(self, backbone: Backbone, probe: Probe) -> Prompt:
        return backbone.prompt(probe.question, probe.target_text or probe.question, in_words=True)

    def judge(self, probe: Probe, result: Utterance, arm: str) -> dict[str, Any]:
        answer = cleaned(result.text)
        scores = score_answer(probe.task, answer, probe.answers, probe.kind)
        field = judge_field(
            answer,
            probe.answers,
            right=scores.score >= RIGHT,
            loss=result.loss,
            kind=probe.kind,
            page=page_texts(probe.extra.get("page")),
            regions=[box for box, role in zip(probe.regions, probe.roles, strict=False) if role == ANSWER],
        )
        return {
            "predicted": answer,
            "correct": scores.score >= RIGHT,
            "task": probe.task,
            "accepted": probe.answers[0],
            **result.as_columns(answer),
            **asdict(scores),
            **asdict(field),
        }
