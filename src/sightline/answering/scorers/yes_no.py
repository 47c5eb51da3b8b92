"""Scorers that compare how likely the prefix makes given continuations: yes and no, an answer and its decoy."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from sightline.answering.scorers.base import SCORERS, Launched, Scorer
from sightline.core.prefix import Prefix, Prompt
from sightline.core.probe import Label, Probe
from sightline.core.row import Column
from sightline.errors import SightlineError

if TYPE_CHECKING:
    from sightline.backbones.base import Backbone
    from sightline.backbones.batches import Cutter
from sightline.backbones.language import Likelihood


class LikelihoodScorer(Scorer):
    """All continuations of all prefixes of a batch in one forward."""

    def launch(self, backbone: Backbone, prefixes: Sequence[Prefix], cutter: Cutter | None) -> Launched:
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


@SCORERS.register("yes_no")
class YesNo(LikelihoodScorer):
    """Yes or no, whichever the prefix makes likelier: margin = loss_no - loss_yes, yes iff margin >= 0."""

    name: ClassVar[str] = "yes_no"
    columns: ClassVar[tuple[Column, ...]] = (
        Column("loss_yes", "float64", "Mean negative log-likelihood per token of the yes continuation, in nats."),
        Column("loss_no", "float64", "Mean negative log-likelihood per token of the no continuation, in nats."),
        Column("margin", "float64", "loss_no - loss_yes; larger means more yes; predicted is yes iff margin >= 0."),
        Column("greedy_yes", "bool", "Whether every token of the yes continuation is the arg-max at its position."),
        Column("greedy_no", "bool", "The same for the no continuation."),
    )
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "hfpr", "auroc", "ece", "brier", "nll")

    def answers(self, probe: Probe) -> tuple[str, ...]:
        return (" yes", " no")

    def verdict(self, probe: Probe, likelihoods: Sequence[Likelihood]) -> dict[str, Any]:
        yes, no = likelihoods
        margin = no.loss - yes.loss
        predicted = "yes" if margin >= 0.0 else "no"
        return {
            "predicted": predicted,
            "correct": predicted == probe.label,
            "loss_yes": yes.loss,
            "loss_no": no.loss,
            "margin": margin,
            "greedy_yes": yes.greedy,
            "greedy_no": no.greedy,
        }


@SCORERS.register("candidate_ranking")
class CandidateRanking(LikelihoodScorer):
    """Of an open question's first accepted answer and its decoy, which does the prefix make likelier?

    Mean loss per token, so that a longer candidate is not worse for being longer. A tie is wrong: knowing nothing wins
    nothing.
    """

    name: ClassVar[str] = "candidate_ranking"
    open_questions: ClassVar[bool] = True
    needs_decoy: ClassVar[bool] = True
    columns: ClassVar[tuple[Column, ...]] = (
        Column("task", "string", "The benchmark that the question is from."),
        Column("gold_loss", "float64", "Mean negative log-likelihood per token of the accepted answer, in nats."),
        Column("decoy_loss", "float64", "The same of the decoy."),
        Column("preference", "float64", "decoy_loss - gold_loss; larger means surer of the accepted answer."),
    )

    def answers(self, probe: Probe) -> tuple[str, ...]:
        return probe.answers[0], probe.decoy

    def prompt(self, backbone: Backbone, probe: Probe) -> Prompt:
        return backbone.prompt(probe.question, probe.target_text or probe.question, self.answers(probe), in_words=True)

    def verdict(self, probe: Probe, likelihoods: Sequence[Likelihood]) -> dict[str, Any]:
        gold, decoy = (each.loss for each in likelihoods)
        return {
            "predicted": probe.answers[0] if gold < decoy else probe.decoy,
            "correct": gold < decoy,
            "task": probe.task,
            "gold_loss": gold,
            "decoy_loss": decoy,
            "preference": decoy - gold,
        }


QUESTION = 'Given the image, answer the OCR question: "{question}". Is the answer "{candidate}"? Answer yes or no.'


@SCORERS.register("verification")
class Verification(YesNo):
    """Every open question twice, as a yes/no question about its accepted answer and about its decoy."""

    name: ClassVar[str] = "verification"
    open_questions: ClassVar[bool] = True
    needs_decoy: ClassVar[bool] = True

    def asked(self, probe: Probe) -> Iterator[Probe]:
        candidates: list[tuple[str, str, Label]] = [("gold", probe.answers[0], "yes"), ("decoy", probe.decoy, "no")]
        for name, candidate, label in candidates:
            yield replace(
                probe,
                id=f"{probe.id}:{name}",
                question=QUESTION.format(question=probe.question, candidate=candidate),
                label=label,
                target_text=candidate,
                source_text=probe.answers[0],
                answers=(),
                decoy="",
            )
