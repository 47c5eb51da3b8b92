"""How images reach the model: options that an architecture declares for itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator


class ImageOptions(BaseModel):
    """Base of every architecture's options: a field each, with a sentence and its bounds.

    None, or False, leaves an image to the checkpoint's own processor.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    artifact: ClassVar[Mapping[str, Any]] = {}
    """What the paper's published numbers were made with, where that is not the checkpoint's own way."""

    @model_validator(mode="after")
    def _smallest_first(self) -> ImageOptions:
        for low in type(self).model_fields:
            high = low.replace("min_", "max_", 1)
            fewest, most = getattr(self, low), getattr(self, high, None)
            if low != high and None not in (fewest, most) and fewest > most:
                raise ValueError(f"{low} = {fewest} is above {high} = {most}")
        return self

    def as_dict(self) -> dict[str, Any]:
        """Those that change anything."""
        return {name: value for name, value in self.model_dump().items() if value not in (None, False)}

    def as_recorded(self, earlier: Mapping[str, Any]) -> dict[str, Any]:
        """``as_dict`` for a run folder, or what it says already if that means the same.

        The first release recorded options of every architecture; those of others never changed an image.
        """
        own = {name: value for name, value in earlier.items() if name in type(self).model_fields}
        return dict(earlier) if own == self.as_dict() else self.as_dict()
