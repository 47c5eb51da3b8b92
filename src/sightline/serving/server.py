"""A server for one person at a time: who may ask, how it listens, and the look that all pages share."""

from __future__ import annotations

import asyncio
import errno
import hmac
import secrets
import socket
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlencode

import uvicorn
from PIL import Image
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request, cookie_parser
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from sightline.errors import SightlineError
from sightline.probes.images import open_image, stored_as

# Who may come in: requests for this address, from its own pages, of whoever knows the token.
#
# A page of another site can make a browser send requests to a loopback address, and a name under its control can be
# made to point there. Neither helps it: the first names a foreign origin and has no cookie, the second a foreign host.

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""Names of this machine that no other machine can answer to."""
TOKEN = "token"
"""The parameter of an address that carries the token, until a cookie does."""
SAFE = ("GET", "HEAD")
"""Methods that change nothing."""


@dataclass(frozen=True)
class Address:
    """One address with its token."""

    port: int
    host: str = LOOPBACK[0]
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    @property
    def url(self) -> str:
        """What a person opens first."""
        return f"http://{self.host}:{self.port}/?{urlencode({TOKEN: self.token})}"

    @property
    def cookie(self) -> str:
        """The cookie's name: cookies of one machine are shared by all its ports."""
        return f"sightline-{self.port}"

    @property
    def cookie_header(self) -> str:
        return f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"

    @property
    def hosts(self) -> set[str]:
        names = {self.host, *LOOPBACK} if self.host in LOOPBACK else {self.host}
        return {f"{name}:{self.port}" for name in names} | ({*names} if self.port == 80 else set())

    def refusal(self, scope: Scope) -> str:
        """Why a request is not answered; "" for one that is. Says nothing that a stranger does not know."""
        headers = Headers(scope=scope)
        if headers.get("host", "").lower() not in self.hosts:
            return "this server answers under its own address only"
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in {f"http://{host}" for host in self.hosts}:
            return "this server answers its own pages only"
        # Every browser names the origin of a request that may change something.
        if scope["method"] not in SAFE and origin is None:
            return "a request that changes something must say which page it comes from"
        shown = cookie_parser(headers.get("cookie", "")).get(self.cookie, "")
        if not self.knows(shown) and not self.knows(self.given_token(scope)):
            return "open the address that the command printed: it holds a token that this request lacks"
        return ""

    def knows(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.token.encode())

    @staticmethod
    def given_token(scope: Scope) -> str:
        """The token in the address."""
        return QueryParams(scope.get("query_string", b"")).get(TOKEN, "")

    @staticmethod
    def without_token(scope: Scope) -> str:
        """The same address once the cookie is set: nothing to be seen over a shoulder or copied with a link."""
        given = QueryParams(scope.get("query_string", b"")).multi_items()
        rest = urlencode([(name, value) for name, value in given if name != TOKEN])
        # One slash: two would name another host.
        return f"/{scope['path'].lstrip('/')}" + (f"?{rest}" if rest else "")


# Around every application: a request is refused or let in, and what goes out says what a browser may do with it.

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob: data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
"""Own files alone: nothing inline, nothing from elsewhere, in no frame."""
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class Guard:
    """An application that answers under one address, to whoever knows its token."""

    def __init__(self, app: ASGIApp, address: Address) -> None:
        self.app, self.address = app, address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # nothing else is served
            return

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self.address.refusal(scope)
        if refusal:
            await PlainTextResponse(f"Refused: {refusal}.\n", 403)(scope, receive, send_marked)
        elif scope["method"] in SAFE and self.address.given_token(scope):
            await self._let_in(scope, receive, send_marked)
        else:
            await self.app(scope, receive, send_marked)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Takes the token out of the address; with a stale one and a good cookie too."""
        headers = {"set-cookie": self.address.cookie_header}
        await RedirectResponse(self.address.without_token(scope), 303, headers)(scope, receive, send)


# Serving until Ctrl-C: a free port first, one line with the address, one line at the end.

GRACE_S = 2
"""How long answers under way may take after Ctrl-C."""
PATIENCE_S = 20
"""How long a connection may take to say what it wants."""
EVERYWHERE = ("0.0.0.0", "::", "[::]", "")


class TimeoutProtocol(H11Protocol):
    """Hangs up on whoever connects and never finishes asking, so that such connections do not pile up."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(PATIENCE_S, self._hang_up)

    def _hang_up(self) -> None:
        asked = getattr(self, "cycle", None)  # None until a whole request has come
        if asked is None and not self.transport.is_closing():
            self.transport.close()


def serve(
    app: ASGIApp, port: int, open_browser: bool, *, host: str = LOOPBACK[0], say: Callable[[str], None] = print
) -> None:
    """Serves an application under an address of its own until Ctrl-C; ``port`` 0 takes any that is free.

    ``say`` gets the address, a warning where other machines reach it, and that it has stopped.
    """
    with listen(host, port) as listener:
        address = Address(listener.getsockname()[1], host)
        if host not in LOOPBACK:
            say(f"warning: other machines reach {host}, and what they exchange with it is not encrypted")
        say(f"open {address.url}")
        say("stop with Ctrl-C")
        if open_browser:
            webbrowser.open(address.url)
        config = uvicorn.Config(
            Guard(app, address),
            lifespan="off",
            log_level="error",
            access_log=False,
            server_header=False,
            ws="none",
            http=TimeoutProtocol,
            timeout_graceful_shutdown=GRACE_S,
        )
        with suppress(KeyboardInterrupt):  # raised again once all answers are out, or not, as it came
            uvicorn.Server(config).run(sockets=[listener])
        say("stopped")


def listen(host: str, port: int) -> socket.socket:
    """A socket that holds the port; one line where that is not possible."""
    if host in EVERYWHERE:
        raise SightlineError(f"--host {host or repr('')} is every address; name the one that this machine is called by")
    bare = host.strip("[]")
    listener = socket.socket(socket.AF_INET6 if ":" in bare else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((bare, port))
        listener.listen()
    except (OSError, OverflowError) as error:
        listener.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise SightlineError(
                f"port {port} is in use; choose another with --port, or --port 0 for any free one"
            ) from None
        raise SightlineError(f"cannot listen on {host}, port {port}: {error}; choose others") from None
    return listener


# An application: its own routes, its own pages as files, and the look that all share.

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


# Files that a request may name: those inside one folder, wherever links lead; pictures as they were audited.

SHOWN_AS_THEY_ARE = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp", "GIF": "image/gif"}
"""Formats of files that every browser shows."""
ORIENTATION = 0x0112
"""The mark in a file by which browsers turn a picture; annotations refer to stored pixels."""


def file_inside(folder: Path, name: str) -> Path:
    """The file of this name; refused in one line where it is not inside the folder once all links are followed."""
    root = folder.resolve()
    try:
        file = (root / name).resolve()
        found = file.is_relative_to(root) and file.is_file()
    except (OSError, ValueError):  # a name that no file can have
        found = False
    if not found:
        raise SightlineError(f"{folder.name} has no file {name!r}")
    return file


def picture_bytes(images: Path, name: str) -> tuple[bytes, str]:
    """A picture with the pixels that probes and boxes are about, and its media type: the file itself where a browser
    shows it so, else a PNG. A browser would turn a photograph that asks for it (EXIF), and boxes with it."""
    file = file_inside(images, name)
    try:
        with Image.open(file) as stored:
            media = SHOWN_AS_THEY_ARE.get(stored.format or "")
            turned = stored.getexif().get(ORIENTATION, 1) != 1
    except (OSError, ValueError, SyntaxError):
        raise SightlineError(f"{name} is no picture that can be shown") from None
    if media and not turned:
        return file.read_bytes(), media
    return stored_as(open_image(images, name), "PNG", compress_level=1), "image/png"
