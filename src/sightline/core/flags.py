"""Options declared as data: every described field of a pydantic model is one.

Its name, type, default, bounds and description are the field's own; a ``Flag`` beside the type says what these cannot::

    repeats: int = Field(10, ge=1, description="Samples kept.")
    arms: Annotated[list[str], Flag("What is audited", "--arm")] = Field(description="Selector, budget and arguments.")

``sightline.commands.options`` turns them into the flags of a command.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo


WHAT, HOW, SPEED, OUTPUT = "What is audited", "How", "Speed", "Output"
"""Panels of the help that several commands have."""
TAKES_URL = "path or URL"
"""Beside the type of a field: its value may be a URL, so that nothing reads it as a path too early."""


@dataclass(frozen=True)
class Flag:
    """What the command line needs to know of a field beyond its name, type, description and default."""

    panel: str = ""
    """Heading under which the help shows it."""
    name: str = ""
    """Where it is not the field's own name: one ``--arm`` each for ``arms``."""
    metavar: str = ""
    """What stands for the value in the help, where not its type."""
    shown: str = ""
    """The default in words, where it depends on something."""
    read: Callable[[str], list[dict[str, Any]]] | None = None
    """For values that are written as text: the fields that the text stands for, once for every value it lists."""
    usual: str = ""
    """With ``read``: the text that stands for nothing given."""


Model = TypeVar("Model", bound="type[BaseModel]")


def describe(model: type[BaseModel], sentences: Mapping[str, str]) -> None:
    """Gives fields their descriptions."""
    for name, sentence in sentences.items():
        model.model_fields[name].description = sentence


def described(file: str) -> Callable[[Model], Model]:
    """Above a model: the descriptions of its fields are the sentences of the TOML file beside ``file``."""

    def tell(model: Model) -> Model:
        describe(model, tomllib.loads(Path(file).with_suffix(".toml").read_text(encoding="utf-8")))
        return model

    return tell


def options_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields that are options, in the order declared."""
    return {name: field for name, field in model.model_fields.items() if field.description}


def mark_of(field: FieldInfo) -> Flag:
    return next((mark for mark in field.metadata if isinstance(mark, Flag)), Flag())


def flag_of(model: type[BaseModel], name: str) -> str:
    """How the command line spells what is, or was, a field of the model."""
    field = model.model_fields.get(name)
    return spelled(name) if field is None else flag_of_field(name, field)


def flag_of_field(name: str, field: FieldInfo) -> str:
    """``--arm`` for ``arms``, ``--box-source`` for ``box_source``."""
    return mark_of(field).name or spelled(name)


def spelled(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def least_of(field: FieldInfo) -> Any:
    """The smallest value that the field takes; None without such a bound."""
    return next((mark.ge for mark in field.metadata if hasattr(mark, "ge")), None)


def most_of(field: FieldInfo) -> Any:
    """The largest value that the field takes; None without such a bound."""
    return next((mark.le for mark in field.metadata if hasattr(mark, "le")), None)
