"""How commands take a run that lies in several folders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from sightline.errors import SightlineError
from sightline.places import Place

AsOneOption = Annotated[
    bool, typer.Option("--as-one", help="The folders are parts of one run: sightline run --part, or arms divided.")
]


def as_one_run(folders: Sequence[Place], *, as_one: bool) -> Place | tuple[Place, ...]:
    """The one run that a command takes: a folder, or several that are one."""
    if len(folders) == 1:
        return folders[0]
    if as_one:
        return tuple(folders)
    raise SightlineError(f"{len(folders)} run folders given where one is taken; --as-one joins parts of one run")


def runs_or_one(folders: Sequence[Place], *, as_one: bool) -> list[Place | tuple[Place, ...]]:
    """The runs that a command takes: each folder one, or all together one."""
    return [tuple(folders)] if as_one and len(folders) > 1 else list(folders)
