"""One question about one image, and the boxes it is about.

Boxes are ``(x1, y1, x2, y2)`` in fractions of the image, x to the right and y down, everywhere in Sightline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Box = tuple[float, float, float, float]
Label = Literal["yes", "no", "open"]
"""``open``: the answer is a text, one of the probe's ``answers``."""

ORIGINAL = "orig"
"""The view of a probe about its image as it is."""
TWIN = "twin"
"""The view of a probe about the twin of its page, where nothing can be guessed."""


@dataclass(frozen=True)
class Probe:
    """One question about one image, its right answer and the regions that support it."""

    id: str
    """Unique within a probe set, together with ``view``."""
    image: str
    """File name relative to the image root."""
    image_id: str
    question: str
    label: Label
    target_text: str
    """The queried string: its tokens are the target span. Of an open question a part of it, or empty: all of it."""
    source_text: str
    """The word that stands in the regions (equal to ``target_text`` on positives)."""
    regions: tuple[Box, ...]
    """Annotated evidence. Coverage is always audited against these."""
    boxes: tuple[Box, ...] | None = None
    """Selector-visible boxes. None: the regions themselves; of open questions, where they tell the answer, none."""
    kind: str = ""
    """How the probe was made, for example ``small_positive`` or ``near_miss_negative``."""
    view: str = ORIGINAL
    """The version of the image that the question is about."""
    occlude: tuple[Box, ...] = ()
    """Boxes painted gray before encoding."""
    answers: tuple[str, ...] = ()
    """Every accepted answer of an open question, repetitions kept: several people may have given the same."""
    roles: tuple[str, ...] = ()
    """What each region is to the question, ``answer_value`` for example; empty: nobody said."""
    task: str = ""
    """The benchmark that an open question is from: it decides how answers are scored."""
    decoy: str = ""
    """A wrong answer of the same kind, for rankings of candidates."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else the probe file carried; written back unchanged."""

    @property
    def is_open(self) -> bool:
        """Whether the answer is a text instead of yes or no."""
        return self.label == "open"

    @property
    def visible_boxes(self) -> tuple[Box, ...]:
        """What selectors see. The regions of an open question only where a box source, or the file, says so."""
        if self.boxes is not None:
            return self.boxes
        return () if self.is_open else self.regions
