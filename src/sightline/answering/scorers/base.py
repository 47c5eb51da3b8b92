"""What a scorer is: which continuations it attaches, how it asks the language model, what it makes of the result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from sightline.core.prefix import Prefix, Prompt
from sightline.core.probe import Probe
from sightline.core.registry import Registry
from sightline.core.row import Column
from sightline.errors import SightlineError

if TYPE_CHECKING:
    from sightline.backbones.base import Backbone
    from sightline.backbones.batches import Cutter


SCORERS: Registry[type[Scorer]] = Registry("scorer", group="sightline.scorers", package="sightline.answering.scorers")
"""Every known scorer. ``@SCORERS.register("name")`` above a class is all that a new one needs."""


class Launched(Protocol):
    """Results of a batch that the device may still be working on.

    One whose work goes on between ``launch`` and ``read`` says in ``spent_ms`` what each prefix took.
    """

    def read(self) -> Sequence[Any]:
        """One result per prefix; waits for the device."""
        ...


class Scorer(ABC):
    """One kind of answer. Its rows carry ``predicted`` and ``correct`` like all others, and the columns it names."""

    name: ClassVar[str]
    columns: ClassVar[tuple[Column, ...]] = ()
    """What its rows hold beyond ``predicted`` and ``correct``."""
    metrics: ClassVar[tuple[str, ...]] = ("accuracy",)
    """Metrics that its columns allow, by name, besides those of coverage; its own ones are registered in its file."""
    open_questions: ClassVar[bool] = False
    """Whether it takes questions with accepted answers; else those that are answered yes or no."""
    needs_decoy: ClassVar[bool] = False
    """Whether it compares the accepted answer with the probe's decoy."""
    in_words: ClassVar[bool] = False
    """Whether questions are put as the protocol asks for an answer in free text: see ``Prompting.render``."""

    def check(self, probe: Probe) -> None:
        """Refuses a probe that this scorer cannot judge."""
        if probe.is_open != self.open_questions:
            kind = "an open question" if probe.is_open else "answered yes or no"
            fitting = [name for name, scorer in SCORERS.items() if scorer.open_questions == probe.is_open]
            raise SightlineError(
                f"probe '{probe.id}' is {kind}, which --scorer {self.name} cannot judge; choose {' or '.join(fitting)}"
            )
        if self.needs_decoy and not probe.decoy:
            raise SightlineError(
                f"probe '{probe.id}' has no decoy, which --scorer {self.name} compares its answer with"
            )

    def asked(self, probe: Probe) -> Iterable[Probe]:
        """The questions that are put to the model for a probe: itself, unless the scorer asks something else."""
        return (probe,)

    def answers(self, probe: Probe) -> tuple[str, ...]:
        """Continuations to attach to the prompt, each a branch of the same forward; none for an answer in free text."""
        return ()

    def prompt(self, backbone: Backbone, probe: Probe) -> Prompt:
        return backbone.prompt(probe.question, probe.target_text, self.answers(probe))

    @abstractmethod
    def launch(self, backbone: Backbone, prefixes: Sequence[Prefix], cutter: Cutter | None) -> Launched:
        """Puts a batch to the language model; on a GPU it should wait for nothing."""

    @abstractmethod
    def judge(self, probe: Probe, result: Any, arm: str) -> dict[str, Any]:
        """The row's ``predicted``, ``correct`` and ``columns`` from what ``launch`` read; ``arm`` is for messages.

        Its ``label`` too where what is right is neither the probe's yes or no nor one of its accepted answers. Rows
        whose label is neither yes nor no have no false alarms to count.
        """
