"""Arguments and options that name a place: a path, or a URL of an object store."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sightline.places import Place, place


def place_argument(metavar: str, help: str) -> Any:
    """An argument that is read as text: ``Path`` would take a slash from every URL."""
    return typer.Argument(metavar=metavar, help=help, parser=place)


def place_option(help: str, **more: Any) -> Any:
    """Likewise an option."""
    return typer.Option(metavar="PATH_OR_URL", help=help, parser=place, **more)


RunArgument = Annotated[Place, place_argument("RUN", "Run folder: a path or a URL.")]
