from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from sightline.answering.scorers.base import SCORERS
from sightline.answering.scorers.candidate_ranking import refuse_without_decoy
from sightline.answering.scorers.yes_no import YesNo
from sightline.core.probe import Label, Probe

QUESTION = 'Given the image, answer the OCR question: "{question}". Is the answer "{candidate}"? Answer yes or no.'


@SCORERS.register("verification")
class Verification(YesNo):
    """Every open question twice, as a yes/no question about its accepted answer and about its decoy."""

    name: ClassVar[str] = "verification"
    open_questions: ClassVar[bool] = True

    def check(self, probe: Probe) -> None:
        super().check(probe)
        refuse_without_decoy(probe, self.name)

    def asked(self, probe: Probe) -> Iterator[Probe]:
        candidates: tuple[tuple[str, str, Label], ...] = (
            ("gold", probe.answers[0], "yes"),
            ("decoy", probe.decoy, "no"),
        )
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
