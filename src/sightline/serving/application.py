"""An application: its own routes, its own pages as files, and the look that all share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from sightline.errors import SightlineError

LOOK = {
    "report.css": Path(str(files("sightline.report").joinpath("report.css"))),
    "serving.css": Path(__file__).parent / "serving.css",
}
"""What every page links under ``/look/``: the report's sheet, and what a page needs that is kept open."""


def application(routes: Sequence[BaseRoute], pages: Mapping[str, Path]) -> Starlette:
    """``pages`` are folders of plain files: one called ``view`` is served under ``/view/``.

    A ``SightlineError`` in a route is answered with its line, as ``{"error": ...}`` and status 400.
    """
    mounts = [Mount(f"/{name}", StaticFiles(directory=folder)) for name, folder in pages.items()]
    return Starlette(
        routes=[*routes, Route("/look/{name}", _look), *mounts],
        exception_handlers={SightlineError: _in_words, HTTPException: _missing},
    )


def html_page(file: Path) -> FileResponse:
    """A page as it lies on disk."""
    return FileResponse(file, media_type="text/html; charset=utf-8")


def _look(request: Request) -> Response:
    file = LOOK.get(request.path_params["name"])
    if file is None:
        raise HTTPException(404)
    return FileResponse(file)


def _in_words(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error)}, 400)


def _missing(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)
