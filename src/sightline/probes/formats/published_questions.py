"""Published sets of open questions, each declared in published_questions.toml."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from sightline.probes.formats.base import FORMATS, FormatOption
from sightline.probes.formats.question_files import QuestionFiles


@dataclass(frozen=True)
class JpegQuestionFiles(QuestionFiles):
    """A set whose images may be unpacked as the paper's artifact unpacked them."""

    jpeg: Annotated[
        int | None, FormatOption("Write images inside the data as RGB JPEGs of this quality; the artifact's is 95.")
    ] = None

    @property
    def quality(self) -> int | None:
        return self.jpeg


def _declared(name: str, facts: dict[str, Any]) -> type[QuestionFiles]:
    base = JpegQuestionFiles if facts.pop("images_as_jpeg", False) else QuestionFiles
    own = {key: tuple(value) if isinstance(value, list) else value for key, value in facts.items()}
    own |= {"name": name, "begins": re.compile(facts["begins"])}
    return dataclass(frozen=True)(type(name, (base,), own))


PUBLISHED = {
    name: _declared(name, facts)
    for name, facts in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items()
}
for _name, _kind in PUBLISHED.items():
    FORMATS.add(_name, _kind)
