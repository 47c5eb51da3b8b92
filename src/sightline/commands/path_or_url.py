"""Arguments and options that name a place: a path, or a URL of an object store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sightline.places import Place, place
from sightline.places.writing import STANDARD_OUTPUT, output_set_aside, refuse_other_ending, refuse_unusable_file


def place_argument(metavar: str, help: str) -> Any:
    """An argument that is read as text: ``Path`` would take a slash from every URL."""
    return typer.Argument(metavar=metavar, help=help, parser=place)


def place_option(help: str, **more: Any) -> Any:
    """Likewise an option."""
    return typer.Option(metavar="PATH_OR_URL", help=help, parser=place, **more)


def file_option(help: str, *names: str, endings: tuple[str, ...] = (), **more: Any) -> Any:
    """An option that names one file to write, a pipe or device to write through, or ``-``, standard output.

    What cannot be written to is refused before any work, and so is a name that ends like another format than
    ``endings``. With ``-`` everything else that the command says goes to standard error.
    """

    def checked(ctx: typer.Context, value: Path | None) -> Path | None:
        if value is None or ctx.resilient_parsing:
            return value
        if endings:
            refuse_other_ending(value, *endings)
        refuse_unusable_file(value)
        if str(value) == STANDARD_OUTPUT:
            ctx.with_resource(output_set_aside())
        return value

    return typer.Option(*names, help=f"{help} - is standard output.", callback=checked, **more)


RunArgument = Annotated[Place, place_argument("RUN", "Run folder: a path or a URL.")]
