"""The pages of one person's queue: what they may see goes out, what they say is on disk before it is confirmed."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sightline.errors import SightlineError
from sightline.geometry.marks import MARKS
from sightline.probes.regions import ROLES
from sightline.serving.server import application, html_page, picture_bytes
from sightline_annotate.campaign import WorkQueue
from sightline_annotate.items import AnswerError, CampaignKind
from sightline_annotate.journal import JournalEntry, OutdatedError

PAGES = Path(__file__).parent / "pages"
PATIENCE_S = 20
"""How long an answer may take to arrive."""
LONGEST_BODY = 1_000_000
"""Bytes of an answer; a thousand boxes are a tenth of that."""


def annotation_app(queue: WorkQueue) -> Starlette:
    """The application of one person; whoever else annotates has a process of their own."""
    routes = _Routes(queue)
    return application(
        [
            Route("/", routes.page),
            Route("/campaign", routes.campaign),
            Route("/next", routes.next),
            Route("/item/{number}", routes.item),
            Route("/picture/{number}/{view}", routes.picture),
            Route("/save", routes.save, methods=["POST"]),
            Route("/undo", routes.undo, methods=["POST"]),
        ],
        {"annotate": PAGES},
    )


class _Routes:
    """Items are known to the page by their number in the campaign; ids may hold anything, numbers nothing."""

    def __init__(self, queue: WorkQueue) -> None:
        self.queue, self.items = queue, queue.campaign.items
        self.numbers = {item.id: number for number, item in enumerate(self.items)}

    def page(self, request: Request) -> Response:
        return html_page(PAGES / "annotate.html")

    def campaign(self, request: Request) -> Response:
        queue, mine = self.queue, self.queue.items()
        return JSONResponse(
            {
                "who": queue.who,
                "pass": queue.pass_,
                "progress": queue.progress(),
                "first": self.numbers[mine[0].id] if mine else None,
                **_asked(queue.campaign.kind),
            }
        )

    def next(self, request: Request) -> Response:
        """The item to do now; none when all is done."""
        item = self.queue.next_item()
        return JSONResponse({"number": None if item is None else self.numbers[item.id]})

    def item(self, request: Request) -> Response:
        queue, number = self.queue, self._number(request)
        item = self.items[number]
        mine = [each.id for each in queue.items()]
        if item.id not in mine:
            raise SightlineError(f"item {number} is not one of {queue.who}'s in the {queue.pass_} pass")
        queue.campaign.journal.mark_open(item.id, queue.pass_, queue.who)
        place = mine.index(item.id)
        return JSONResponse(
            {
                **item.shown,
                "number": number,
                "place": place + 1,
                "before": self.numbers[mine[place - 1]] if place else None,
                "after": self.numbers[mine[place + 1]] if place + 1 < len(mine) else None,
                "progress": queue.progress(),
                "disagreement": queue.both_judgements(item.id),
                "entry": _entry(queue.own().get(item.id)),
            }
        )

    def picture(self, request: Request) -> Response:
        campaign, item = self.queue.campaign, self.items[self._number(request)]
        view = _counted(request.path_params["view"])
        campaign.picture(item.id, view)  # refuses other pixels than the campaign was made of
        content, media = picture_bytes(campaign.images, item.views[view].image)
        return Response(content, media_type=media)

    async def save(self, request: Request) -> Response:
        said = await _object(request)
        number, supersedes = said.get("number"), said.get("supersedes")
        if type(number) is not int or not 0 <= number < len(self.items):  # bool is an int too
            raise SightlineError("there is no item of this number")
        if supersedes is not None and (type(supersedes) is not int or not 0 <= supersedes < 2**63):
            raise SightlineError("supersedes is the number of an entry or null")
        try:
            entry = await run_in_threadpool(
                self.queue.save,
                self.items[number].id,
                said.get("fields"),
                confirmed=said.get("confirmed") is True,
                supersedes=supersedes,
            )
        except OutdatedError as error:
            return JSONResponse({"error": str(error)}, 409)
        except AnswerError as error:
            return JSONResponse({"error": str(error), "field": error.field}, 400)
        return JSONResponse({"entry": _entry(entry), "progress": await run_in_threadpool(self.queue.progress)})

    async def undo(self, request: Request) -> Response:
        entry = await run_in_threadpool(self.queue.undo)
        return JSONResponse({"number": None if entry is None else self.numbers[entry.item]})

    def _number(self, request: Request) -> int:
        number = _counted(request.path_params["number"])
        if number >= len(self.items):
            raise HTTPException(404)
        return number


def _counted(text: str) -> int:
    """A number in an address; nothing has as many items as one of ten digits."""
    if re.fullmatch("[0-9]{1,9}", text) is None:
        raise HTTPException(404)
    return int(text)


def _asked(kind: CampaignKind) -> dict[str, Any]:
    return {
        "kind": kind.name,
        "title": kind.title,
        "about": kind.about,
        "fields": [asdict(field) for field in kind.fields],
        "decision": kind.decision,
        "remarks": kind.remarks,
        "roles": {role: MARKS[role]._asdict() | {"words": says} for role, says in ROLES.items()}
        if kind.draws_boxes
        else None,
    }


def _entry(entry: JournalEntry | None) -> dict[str, Any] | None:
    """The person's own state of an item."""
    if entry is None:
        return None
    return {"number": entry.number, "fields": entry.fields, "confirmed": entry.confirmed, "at": entry.at}


async def _object(request: Request) -> dict[str, Any]:
    body = b""
    try:
        async with asyncio.timeout(PATIENCE_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > LONGEST_BODY:
                    raise HTTPException(413)
    except TimeoutError:
        raise HTTPException(408) from None
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise SightlineError("an answer is a JSON object")
    return said
