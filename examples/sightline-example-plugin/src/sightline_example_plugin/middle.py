"""A text detector that looks at nothing: it finds the middle of every image, and shows what a detector must say."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from sightline.boxes.detectors import FindsByReading, FoundText

if TYPE_CHECKING:
    import numpy as np


class Middle(FindsByReading):
    """Needs no weights and no library, so it runs wherever Sightline does."""

    name: ClassVar[str] = "middle"
    rule: ClassVar[str] = "the middle third of the width and of the height, whatever is there"
    LEAST: ClassVar[float] = 0.5

    @classmethod
    def require(cls) -> str:
        return "1"

    def read(self, image: np.ndarray) -> list[FoundText]:
        height, width = image.shape[:2]
        left, right, top, bottom = width / 3, 2 * width / 3, height / 3, 2 * height / 3
        return [FoundText(((left, top), (right, top), (right, bottom), (left, bottom)), confidence=1.0)]
