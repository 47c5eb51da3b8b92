"""What is fuzzed: how an input is made, and who reads it."""

from abc import ABC, abstractmethod
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import yaml

from tests.fuzz import mutations

GOOD: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("good.yaml").read_text(encoding="utf-8"))
"""Good inputs, by what they are."""


class Subject(ABC):
    """One kind of input. ``folder`` is its own, for files; nothing else is written."""

    name: ClassVar[str]
    share: ClassVar[float]
    """How many of a run's inputs it gets, beside the shares of others: many where an input is read in no time."""
    forgives: ClassVar[bool]
    """Whether nothing is ever refused: what cannot be read counts as never written."""

    def __init_subclass__(cls, *, name: str = "", share: float = 1, forgives: bool = False) -> None:
        cls.name, cls.share, cls.forgives = name, share, forgives

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.prepare()

    def prepare(self) -> None:
        """Makes the good inputs that others are made from."""
        return

    @abstractmethod
    def make(self, random: Random) -> Any:
        """An input; what is returned is handed to ``read``, and shown if that fails."""

    @abstractmethod
    def read(self, given: Any) -> None:
        """What Sightline does with such an input. A refusal is a ``SightlineError``."""

    def left_behind(self) -> list[str]:
        """Files that a refusal left and that look finished."""
        return []


class FileSubject(Subject):
    """An input that is the content of one file."""

    file_name: str

    def __init_subclass__(cls, *, file_name: str = "given", **facts: Any) -> None:
        super().__init_subclass__(**facts)
        cls.file_name = file_name

    @property
    def file(self) -> Path:
        return self.folder / self.file_name

    good: Any = None
    """Where it is JSON: what others are made from."""

    def content(self, random: Random) -> bytes:
        """What the file holds."""
        return mutations.json_bytes(self.good, random)

    def make(self, random: Random) -> bytes:
        data = self.content(random)
        self.file.write_bytes(data)
        return data
