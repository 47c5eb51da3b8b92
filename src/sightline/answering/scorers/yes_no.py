from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from sightline.answering.scorers.base import SCORERS, LikelihoodScorer
from sightline.core.probe import Probe
from sightline.core.row import Column

if TYPE_CHECKING:
    from sightline.backbones.language import Likelihood


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
