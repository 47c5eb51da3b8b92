"""``ranking``: not yes or no, but which of several words stands in the image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from sightline.answering.scorers.yes_no import LikelihoodScorer
from sightline.core.prefix import Prompt
from sightline.core.probe import Probe
from sightline.core.row import Column

if TYPE_CHECKING:
    from sightline.backbones.base import Backbone
    from sightline.backbones.language import Likelihood

NEITHER = "nothing"
"""A word that every question offers beside those of the probe."""


class Ranking(LikelihoodScorer):
    """The word that stands in the image, the word asked for and one more, ranked by their mean likelihood per token.

    The right answer of every probe is the word that stands in its regions, so a row's label is that word.
    """

    name: ClassVar[str] = "ranking"
    columns: ClassVar[tuple[Column, ...]] = (
        Column("rank", "int32", "Place of the right word among the candidates, 1 for the likeliest; ties count down."),
        Column("candidates", "int32", "Words that were ranked."),
        Column("word_loss", "float64", "Mean negative log-likelihood per token of the right word, in nats."),
    )
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "reciprocal_rank")

    def candidates(self, probe: Probe) -> tuple[str, ...]:
        """The right word first, each once: on a positive the word asked for is the right one."""
        return tuple(dict.fromkeys((probe.source_text, probe.target_text, NEITHER)))

    def answers(self, probe: Probe) -> tuple[str, ...]:
        return tuple(f" {word}" for word in self.candidates(probe))

    def prompt(self, backbone: Backbone, probe: Probe) -> Prompt:
        offered = ", ".join(sorted(self.candidates(probe)))
        question = f"Which of these stands in the image: {offered}?"
        return backbone.prompt(question, probe.target_text, self.answers(probe))

    def verdict(self, probe: Probe, likelihoods: Sequence[Likelihood]) -> dict[str, Any]:
        words = self.candidates(probe)
        losses = [each.loss for each in likelihoods]
        # The right word is the first: one that is as likely stands before it, so that knowing nothing wins nothing.
        rank = sum(loss <= losses[0] for loss in losses)
        likeliest = words[0] if rank == 1 else words[losses.index(min(losses[1:]), 1)]
        return {
            "label": probe.source_text,
            "predicted": likeliest,
            "correct": rank == 1,
            "rank": rank,
            "candidates": len(words),
            "word_loss": losses[0],
        }
