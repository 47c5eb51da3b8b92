"""The viewer as an application: pages, and what they ask under ``/api``. Nothing can be written through it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from sightline.serving.application import application, html_page
from sightline.view.answers_to_pages import AnswersToPages
from sightline.view.taken_along import FORMATS

PAGES = Path(__file__).parent / "pages"
KEPT = {"cache-control": "private, max-age=3600"}
"""Pictures of a case do not change while it is looked at."""


def viewer(answers: AnswersToPages) -> Starlette:
    """An application over some runs; only ``GET`` is answered."""

    def in_json(name: str) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            found = answers.names[name](request.query_params)
            body = json.dumps(found, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
            return Response(body, media_type="application/json")

        return answer

    def index(request: Request) -> Response:
        return html_page(PAGES / "index.html")

    def image(request: Request) -> Response:
        content, media = answers.image(request.query_params)
        return Response(content, media_type=media, headers=KEPT)

    def take(request: Request) -> Response:
        words = answers.take(request.query_params)
        return PlainTextResponse(words, media_type=FORMATS[request.query_params.get("format", "csv")])

    own = [Route(f"/api/{name}", in_json(name)) for name in answers.names]
    return application([Route("/", index), *own, Route("/api/image", image), Route("/api/take", take)], {"view": PAGES})
