"""What an engine is: it answers a question about an image, tells what it counted, and shows none of its layers.

A run names one where it names a model, ``NAME:PLACE``: ``openvino:DIR``, ``openai:URL#NAME``. A new engine is one file
with a class under ``@ENGINES.register("name")``, here or behind another package's entry point ``sightline.engines``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from sightline.core.registry import Registry
from sightline.errors import SightlineError

if TYPE_CHECKING:
    from PIL import Image

ENGINES: Registry[type[Engine]] = Registry("engine", group="sightline.engines", package="sightline.engines")
"""By the name in front of the colon."""

JPEG = "jpeg"
"""A switch of every engine: the image is shown after JPEG at this quality, 1 to 100."""


@dataclass(frozen=True)
class Question:
    """What is put to an engine once."""

    text: str
    """The user's turn, instruction included."""
    image: Image.Image | None = None
    """RGB; None: the text alone, which is asked to count its tokens."""
    system: str | None = None
    switches: Mapping[str, str] = field(default_factory=dict)
    """The arm's own, as they are written: ``{"pruning_ratio": "30"}``; empty: nothing is pruned."""
    longest: int = 32
    """Most tokens of the answer."""
    likely: bool = False
    """Whether the log-probabilities of the first token are wanted."""


@dataclass(frozen=True)
class Heard:
    """What an engine answered. What it does not tell is None."""

    text: str
    raw: Mapping[str, Any]
    """What it gave, as JSON: kept with the run."""
    prompt_tokens: int | None = None
    """Of the prompt that the language model read, pruned or not."""
    tokens: int | None = None
    """Generated, without the stop token."""
    cut_off: bool | None = None
    loss: float | None = None
    """Mean negative log-likelihood per generated token, in nats."""
    first: Mapping[str, float] | None = None
    """Log-probabilities of the likeliest first tokens, by their text."""
    ms: float | None = None
    """What answering took, where ``ask`` does more than that, such as tracing."""
    positions: str | None = None
    """How kept tokens are numbered, in a word, where that is told."""
    cells: Sequence[int] | None = None
    """Cells of the visual tokens that reached the language model, in its order: row * columns + column."""


@dataclass(frozen=True)
class TokenGrid:
    """How an image of one size is divided among visual tokens."""

    rows: int
    columns: int
    token_pixels: int
    """Input pixels, after resizing, that one visual token is made from."""


class Engine(ABC):
    """One engine at one place.

    Making it is cheap and refuses what cannot work; ``load`` makes it ready. ``ask`` may be called from as many
    threads at a time as ``parallel`` says.
    """

    name: ClassVar[str]
    switches: ClassVar[Mapping[str, str]] = {}
    """What its arms may set, ``engine:SWITCH=VALUE``, each with a sentence."""
    tells_likelihoods: ClassVar[bool] = False
    """Whether the log-probabilities of first tokens are always told: yes and no are then judged by them."""
    parallel: int = 1
    markers: int = 0
    """Tokens that stand around an image and for no part of it."""
    pixel_step: int = 1
    """Sides of an image are shown in multiples of so many pixels."""
    tokenizer: Any = None
    """What counts the tokens of a text, where it lies on this machine."""

    def __init__(self, place: str) -> None:
        self.place = place

    @property
    @abstractmethod
    def model(self) -> str:
        """What rows call the model: no local path, no key."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What decides its answers, for the manifest: ``model_type``, ``weight_digest``, ``dtype``, ``device`` where
        they are known, versions, options. Never a key. Known before ``load``."""

    def load(self) -> None:
        """Makes it ready to answer."""
        return None

    @abstractmethod
    def ask(self, question: Question) -> Heard:
        """Greedy. A refusal is a ``SightlineError`` with what to do; tried again as often as it makes sense."""

    def stream(self, question: Question) -> Generator[None, None, int]:
        """Asks once, for its timing: yields at every piece of the answer, then says how many tokens there were.

        The image is made ready at once, and the question sent with the first ``next``.
        """
        raise SightlineError(f"{self.name} tells nothing before an answer is complete, so that no token can be timed")

    def check(self, switches: Mapping[str, str]) -> None:
        """Refuses a switch that it does not have, or a value that the switch does not take."""
        for name in switches:
            if name not in self.switches:
                known = ", ".join(self.switches) or "no switch"
                raise SightlineError(f"{self.name} has no switch '{name}'; it has {known}")

    def requested_keep(self, switches: Mapping[str, str]) -> float | None:
        """The kept fraction that the switches ask for; None where they ask for none in numbers."""
        return None

    def grid(self, size: tuple[int, int]) -> TokenGrid | None:
        """Of an image of this (width, height); None: nobody knows which tokens come from where."""
        return None

    @property
    def traces(self) -> bool:
        """Whether ``Heard.cells`` are told."""
        return False

    @property
    def untold(self) -> Mapping[str, str]:
        """Columns of a row that it cannot fill, each with the reason; they are null."""
        return {}

    def text_tokens(self, question: Question) -> int | None:
        """Tokens of a prompt without its image, where they can be counted here; None: the engine is asked."""
        return None

    def system(self, *, in_words: bool) -> str | None:
        """The system message that the protocol puts before a question to this type of model; None where it has none."""
        from sightline.backbones.base import BACKBONES

        kind = str(self.facts().get("model_type"))
        if kind not in BACKBONES:
            return None
        known = BACKBONES.get(kind)
        return (in_words and known.open_system) or known.system

    def pruning_arm(self, keep: float) -> str | None:
        """The arm that asks it to keep this share of the visual tokens; None where it prunes nothing."""
        return None


@lru_cache(maxsize=1)
def engine_of(model: str) -> Engine | None:
    """The engine that ``NAME:PLACE`` names, loaded or not; None where a model is a checkpoint.

    Whoever asks next is given the same one: what it has found out about itself is not found out again.
    """
    name, colon, place = model.partition(":")
    if not colon or Path(model).exists() or "/" in name or name not in ENGINES:
        return None
    return ENGINES.get(name)(place)
