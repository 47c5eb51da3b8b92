"""What an annotation format is: how its files begin, which options it takes, and how it reads them into regions."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, get_type_hints

from sightline.core.registry import Registry
from sightline.errors import SightlineError, nearest
from sightline.probes.data_rows import start_of
from sightline.probes.regions import Ingest

START = 65_536
"""Characters of a file that formats are shown to recognise it by."""

Profile = Literal["paper", "artifact"]

FORMATS: Registry[type[Format]] = Registry(
    "annotation format", group="sightline.formats", package="sightline.probes.formats"
)
"""By the name behind ``--format``. ``@FORMATS.register("name")`` above a class is all that a new one needs."""


@dataclass(frozen=True)
class Format(ABC):
    """Reads one kind of annotation file. The fields of the dataclass are its options; one without default is needed."""

    name: ClassVar[str]
    description: ClassVar[str]
    """One line for the list of formats."""
    artifact: ClassVar[Mapping[str, Any]] = {}
    """Options that ``--profile artifact`` sets, where the command line does not."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """Endings of the files that are read when a folder is given; a format without any reads single files only."""
    yields: ClassVar[bool] = False
    """Whether a file that another format recognises too is that other's, since this one is told by little."""

    @classmethod
    @abstractmethod
    def recognises(cls, start: str) -> bool:
        """Whether a file that begins like this (its first 65,536 characters, unpacked) is of this format."""

    @abstractmethod
    def read(self, path: Path, images: Path | None) -> Ingest:
        """All images of the file, in order. ``images`` is the folder their names are relative to, where it is known."""

    def read_shards(self, files: Sequence[Path], images: Path | None) -> Ingest:
        """Several files as one; for formats whose data comes in shards."""
        raise SightlineError(f"format {self.name} reads one file, {len(files)} were given")

    @classmethod
    def candidates(cls, path: Path) -> list[Path]:
        """The file itself; or, for a folder, all below it that end as this format's do, by name."""
        if not path.is_dir():
            return [path]
        found = (file for file in path.rglob("*") if file.name.lower().removesuffix(".gz").endswith(cls.suffixes))
        return sorted(file for file in found if file.is_file())

    @classmethod
    def files(cls, path: Path) -> list[Path]:
        """What is read when ``path`` is: the file, or the files of a folder that are of this format."""
        if not path.is_dir():
            return [path]
        if not cls.suffixes:
            raise SightlineError(f"{path} is a folder; format {cls.name} reads single files")
        found = [file for file in cls.candidates(path) if cls.recognises(start_of(file, START))]
        if not found:
            raise SightlineError(f"{path}: holds no {cls.name} file ({', '.join(f'*{end}' for end in cls.suffixes)})")
        return found


@dataclass(frozen=True)
class FormatOption:
    """What a user is told about an option: ``pairing: Annotated[Pairing, FormatOption(...)] = "paired"``."""

    help: str = ""
    """One line for the list of formats."""
    flag: str = ""
    """Its own option on the command line. Without one it is given as ``--format-option NAME=VALUE``."""


def options_of(kind: type[Format]) -> dict[str, FormatOption]:
    """The options of a format by name, each with what a user writes to set it."""
    hints = get_type_hints(kind, include_extras=True)
    found = {}
    for field in fields(kind):
        notes = getattr(hints[field.name], "__metadata__", ())
        said = next((note for note in notes if isinstance(note, FormatOption)), FormatOption())
        found[field.name] = replace(said, flag=said.flag or f"--format-option {field.name}")
    return found


def configured(kind: type[Format], options: Mapping[str, Any], profile: Profile = "paper") -> Format:
    """The format with these options; text is turned into the type that the option declares.

    An option of other formats is refused by naming those; one that nobody has, by the nearest of this format's own.
    """
    from pydantic import TypeAdapter, ValidationError

    known = options_of(kind)
    for name in options:
        if name not in known:
            raise SightlineError(_no_option(kind, name))
    values = {**(kind.artifact if profile == "artifact" else {}), **options}
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise SightlineError(f"{known[name].flag} {value} is not a finite number")
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        if first["type"] == "missing":
            raise SightlineError(f"format {kind.name} needs {known[name].flag}=VALUE") from None
        wanted = first["msg"][0].lower() + first["msg"][1:]
        about = ": ".join(filter(None, (f"format {kind.name}", known[name].help.rstrip("."))))
        raise SightlineError(f"{known[name].flag} {values[name]!r}: {wanted} ({about})") from None


def _no_option(kind: type[Format], name: str) -> str:
    owners = {other: options for other, each in FORMATS.items() if name in (options := options_of(each))}
    if owners:
        flag = next(iter(owners.values()))[name].flag
        return f"format {kind.name} has no option {flag}; formats that have it: {', '.join(owners)}"
    own = options_of(kind)
    known = f"known: {', '.join(own) or 'none'}"
    return f"format {kind.name} has no option '{name}'; {nearest(name, own, known)}"
