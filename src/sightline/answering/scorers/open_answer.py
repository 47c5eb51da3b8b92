from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

from sightline.answering.scorers.base import SCORERS
from sightline.answering.scorers.spoken import SPOKEN_COLUMNS, SpokenScorer, Utterance
from sightline.answers import cleaned, score_answer
from sightline.core.prefix import Prompt
from sightline.core.probe import Probe
from sightline.core.row import Column

if TYPE_CHECKING:
    from sightline.backbones.base import Backbone

RIGHT = 0.5
"""The score from which on an answer counts as right."""


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
    )
    metrics: ClassVar[tuple[str, ...]] = ("accuracy",)

    def prompt(self, backbone: Backbone, probe: Probe) -> Prompt:
        return backbone.prompt(probe.question, probe.target_text or probe.question, in_words=True)

    def judge(self, probe: Probe, result: Utterance, arm: str) -> dict[str, Any]:
        answer = cleaned(result.text)
        scores = score_answer(probe.task, answer, probe.answers, probe.kind)
        return {
            "predicted": answer,
            "correct": scores.score >= RIGHT,
            "task": probe.task,
            "accepted": probe.answers[0],
            "answer": answer,
            "answer_tokens": result.tokens,
            "cut_off": result.cut_off,
            "answer_loss": result.loss,
            **asdict(scores),
        }
