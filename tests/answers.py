"""Answers of one arm over some probes, straight from the heart of the audit, flat for assertions."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from sightline.answering.answerer import Answered, Answerer
from sightline.answering.materialise import SelectStep
from sightline.answering.scorers.yes_no import YesNo
from sightline.arms import Arm
from sightline.core.prefix import Encoded
from sightline.core.probe import Probe
from sightline.core.selection import PositionPolicy


class Scored:
    """The trace's fields as attributes, the scorer's values under ``answer``."""

    def __init__(self, answered: Answered) -> None:
        self.answer = SimpleNamespace(**answered.values)
        self.language_ms = answered.language_ms
        self._trace = answered.trace

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trace, name)


def launch_arm(
    step: SelectStep,
    arm: Arm,
    probes: Sequence[Probe],
    encoded: Sequence[Encoded],
    policy: PositionPolicy = "preserve",
    batch_tokens: int = 4096,
) -> Callable[[], list[Scored]]:
    """Through this very step, which a test may have replaced."""
    answerer = Answerer(step.backbone, YesNo(), clip=step.clip, positions=policy)
    answerer.step = step
    collect = answerer.launch(arm, probes, encoded, batch_tokens)
    return lambda: [Scored(answered) for answered in collect()]


def score_arm(*arguments: Any, **options: Any) -> list[Scored]:
    """What ``launch_arm`` of these arguments collects."""
    return launch_arm(*arguments, **options)()
