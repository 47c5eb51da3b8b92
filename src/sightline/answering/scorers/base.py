"""What a scorer is: which continuations it attaches, how it asks the language model, what it makes of the result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from sightline.core.prefix import Prefix, Prompt
from sightline.core.probe import Probe
from sightline.core.registry import Registry
from sightline.core.row import Column

if TYPE_CHECKING:
    from sightline.backbones.base import Backbone
    from sightline.backbones.language import Cutter

SCORERS: Registry[type[Scorer]] = Registry("scorer", group="sightline.scorers", package="sightline.answering.scorers")
"""Every known scorer. ``@SCORERS.register("name")`` above a class is all that a new one needs."""


class Reading(Protocol):
    """Results of a batch that the device may still be working on."""

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
    batches: ClassVar[bool] = True
    """Whether several prefixes may share a call of ``launch``."""

    def answers(self, probe: Probe) -> tuple[str, ...]:
        """Continuations to attach to the prompt, each a branch of the same forward; none for an answer in free text."""
        return ()

    def prompt(self, backbone: Backbone, probe: Probe) -> Prompt:
        return backbone.prompt(probe.question, probe.target_text, self.answers(probe))

    @abstractmethod
    def launch(self, backbone: Backbone, prefixes: Sequence[Prefix], cutter: Cutter | None) -> Reading:
        """Puts a batch to the language model; on a GPU it should wait for nothing."""

    @abstractmethod
    def judge(self, probe: Probe, result: Any, arm: str) -> dict[str, Any]:
        """The row's ``predicted``, ``correct`` and ``columns`` from what ``launch`` read; ``arm`` is for messages.

        Its ``label`` too where what is right is not the probe's yes or no: such rows have no false alarms to count.
        """
