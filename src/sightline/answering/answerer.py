"""The heart: a probe under an arm becomes an answer.

An arm's pass makes the prefixes (and knows what cuts them), the scorer puts them to the language model and judges what
comes back. Launching and reading are apart, so that the device can be given other work before an arm is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sightline.answering.arm_pass import ArmPass, Trace
from sightline.answering.batching import launch_batches
from sightline.answering.before import BeforePass
from sightline.answering.inside import InsidePass
from sightline.answering.scorers import Scorer
from sightline.answering.select_step import SelectStep
from sightline.answering.spending import Spending, SpendingPass
from sightline.arms.arm import Arm
from sightline.backbones.base import Backbone
from sightline.backbones.clip import ClipSpace
from sightline.core.prefix import Encoded, PositionPolicy
from sightline.core.probe import Probe
from sightline.errors import SightlineError


@dataclass(frozen=True)
class Answered:
    """What became of one probe under one arm, apart from its geometry."""

    values: Mapping[str, Any]
    """The scorer's columns: ``predicted``, ``correct`` and its own."""
    trace: Trace
    language_ms: float
    spent: Spending | None = None
    """Of an arm with a policy what its passes cost, all of whose times are in ``trace`` and ``language_ms``."""
    query_found: bool | None = None
    """Whether what the selector looks for stands in the question; None where it looks for nothing."""
    halved: bool = False
    """Whether memory ran out for a batch that it was to be part of."""


Collect = Callable[[], list[Answered]]
"""Reads what was launched, in the order of the probes; waits for the device."""


class Answerer:
    """A model and a scorer. The only place that knows whether a method works before or inside the language model.

    Parameters
    ----------
    positions: the usual position policy; None is the paper's for the architecture. An arm's intervention may swap it.
    keeps_scores: whether traces of scored selectors hold what they ranked tokens by.
    """

    def __init__(
        self,
        backbone: Backbone,
        scorer: Scorer,
        *,
        clip: ClipSpace | None = None,
        positions: PositionPolicy | None = None,
        keeps_scores: bool = False,
    ) -> None:
        self.backbone = backbone
        self.scorer = scorer
        self.step = SelectStep(backbone, clip, keeps_scores=keeps_scores)
        self.positions: PositionPolicy = positions or backbone.paper_positions

    def over(
        self, arm: Arm, probes: Sequence[Probe], encoded: Sequence[Encoded], step: SelectStep | None = None
    ) -> ArmPass:
        """The arm's prefixes for these probes, each about the image beside it.

        An arm that shows images smaller needs them encoded so: ``backbone.preprocess(image, budget=arm.image_budget)``.
        ``step`` is what selects where that is not the answerer's own.
        """
        if arm.policy is not None:
            raise SightlineError(
                f"{arm.text} has no one prefix: its budget differs from probe to probe; name a fixed budget, "
                f"for example {arm.at(arm.budget).text}"
            )
        if arm.image_budget is not None and any(image.usual_n is None for image in encoded):
            raise SightlineError(f"{arm.text} reads smaller images, and was given one in its usual size")
        prompts = [self.scorer.prompt(self.backbone, probe) for probe in probes]
        policy = arm.positions(self.positions)
        if arm.inside:
            return InsidePass(self.backbone, arm, probes, encoded, prompts, policy)
        return BeforePass(self.backbone, arm, probes, encoded, prompts, policy, step or self.step)

    def launch(
        self,
        arm: Arm,
        probes: Sequence[Probe],
        encoded: Sequence[Encoded],
        batch_tokens: int,
        step: SelectStep | None = None,
    ) -> Collect:
        """Selects, materialises and hands all batches to the device. On a GPU this waits for nothing.

        Three kinds of arms have to look at values in between and do wait: those that prune between layers,
        interventions on the mask, and policies that look at masks; a cascade waits while it is read.
        """
        if arm.policy is not None:
            return SpendingPass(self, arm, arm.policy, probes, encoded, batch_tokens).collect
        passed = self.over(arm, probes, encoded, step)
        launched = launch_batches(self.scorer, passed, batch_tokens)

        def collect() -> list[Answered]:
            results, shares = launched.read()
            read = zip(probes, passed.prompts, results, passed.traces(), shares, strict=True)
            return [
                Answered(
                    self.scorer.judge(probe, result, arm.text),
                    trace,
                    share - trace.inside_ms,
                    query_found=prompt.found(getattr(arm.selector, "query", "none")),
                    halved=i in launched.halved or trace.halved,
                )
                for i, (probe, prompt, result, trace, share) in enumerate(read)
            ]

        return collect

    def answer(
        self, arm: Arm, probes: Sequence[Probe], encoded: Sequence[Encoded], batch_tokens: int = 16384
    ) -> list[Answered]:
        """Launched and read at once."""
        return self.launch(arm, probes, encoded, batch_tokens)()
