"""How images reach the model: options that an architecture declares for itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, asdict, dataclass, field, fields
from typing import Any, ClassVar, TypeVar

from sightline.errors import SightlineError

Options = TypeVar("Options", bound="ImageOptions")


def option(default: Any, sentence: str, *, least: int | None = None, most: int | None = None) -> Any:
    """A field of an architecture's options: what it does, and its bounds."""
    return field(default=default, metadata={"sentence": sentence, "least": least, "most": most})


@dataclass(frozen=True)
class ImageOptions:
    """Base of every architecture's options, one field each, made by ``option``: a whole number or a switch.

    None, or False, leaves an image to the checkpoint's own processor.
    """

    artifact: ClassVar[Mapping[str, Any]] = {}
    """What the paper's published numbers were made with, where that is not the checkpoint's own way."""

    def __post_init__(self) -> None:
        for each in fields(self):
            problem = _problem(each, getattr(self, each.name))
            if problem:
                raise SightlineError(f"image option {each.name}={getattr(self, each.name)}: {problem}")
        for low in (each.name for each in fields(self) if each.name.startswith("min_")):
            high = low.replace("min_", "max_", 1)
            fewest, most = getattr(self, low), getattr(self, high, None)
            if fewest is not None and most is not None and fewest > most:
                raise SightlineError(f"{low} = {fewest} is above {high} = {most}")

    @classmethod
    def described(cls) -> dict[str, str]:
        """Every option with its sentence."""
        return {each.name: each.metadata["sentence"] for each in fields(cls)}

    @classmethod
    def of(cls: type[Options], given: Mapping[str, Any], owner: str) -> Options:
        """Options by name; one that this architecture, ``owner``, does not have is refused."""
        known = cls.described()
        for name in given:
            if name not in known:
                raise SightlineError(f"{owner} has no image option '{name}'; it has {', '.join(known) or 'none'}")
        return cls(**given)

    def as_dict(self) -> dict[str, Any]:
        """Those that change anything."""
        return {name: value for name, value in asdict(self).items() if value not in (None, False)}


def _problem(declared: Field[Any], value: Any) -> str:
    least, most = declared.metadata["least"], declared.metadata["most"]
    if isinstance(declared.default, bool):
        return "" if isinstance(value, bool) else "is true or false"
    if value is None:
        return ""
    if not isinstance(value, int) or isinstance(value, bool):
        return "is a whole number"
    if least is not None and value < least:
        return f"must be at least {least}"
    return f"must be at most {most}" if most is not None and value > most else ""
