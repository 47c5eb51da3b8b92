"""An engine: it says the last word of the question, and of so many tokens of an image it reads one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from sightline.engines import Engine, Heard, Question

TOKEN_PIXELS = 32 * 32


class LastWord(Engine):
    """Says the last word of the question."""

    name = "last_word"
    switches: ClassVar[Mapping[str, str]] = {"every": "Of so many tokens one is kept."}

    @property
    def model(self) -> str:
        return f"last_word:{self.place}"

    def facts(self) -> dict[str, Any]:
        return {"versions": {"last_word": "1"}}

    def requested_keep(self, switches: Mapping[str, str]) -> float:
        return 1 / int(switches.get("every", 1))

    def ask(self, question: Question) -> Heard:
        words = question.text.split()
        tokens = 0 if question.image is None else question.image.width * question.image.height // TOKEN_PIXELS
        kept = tokens // int(question.switches.get("every", 1))
        return Heard(words[-1], raw={"words": words}, prompt_tokens=len(words) + kept, tokens=1, cut_off=False)
