from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from sightline.answering.scorers.base import SCORERS, LikelihoodScorer
from sightline.core.prefix import Prompt
from sightline.core.probe import Probe
from sightline.core.row import Column
from sightline.errors import SightlineError

if TYPE_CHECKING:
    from sightline.backbones.base import Backbone
    from sightline.backbones.language import Likelihood


@SCORERS.register("candidate_ranking")
class CandidateRanking(LikelihoodScorer):
    """Of an open question's first accepted answer and its decoy, which does the prefix make likelier?

    Mean loss per token, so that a longer candidate is not worse for being longer. A tie is wrong: knowing nothing wins
    nothing.
    """

    name: ClassVar[str] = "candidate_ranking"
    open_questions: ClassVar[bool] = True
    columns: ClassVar[tuple[Column, ...]] = (
        Column("task", "string", "The benchmark that the question is from."),
        Column("gold_loss", "float64", "Mean negative log-likelihood per token of the accepted answer, in nats."),
        Column("decoy_loss", "float64", "The same of the decoy."),
        Column("preference", "float64", "decoy_loss - gold_loss; larger means surer of the accepted answer."),
    )

    def check(self, probe: Probe) -> None:
        super().check(probe)
        refuse_without_decoy(probe, self.name)

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


def refuse_without_decoy(probe: Probe, scorer: str) -> None:
    if not probe.decoy:
        raise SightlineError(f"probe '{probe.id}' has no decoy, which --scorer {scorer} compares its answer with")
