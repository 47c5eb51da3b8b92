"""Serving until Ctrl-C: a free port first, one line with the address, one line at the end."""

from __future__ import annotations

import asyncio
import errno
import socket
import webbrowser
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from sightline.errors import SightlineError
from sightline.serving.door import LOOPBACK, Door
from sightline.serving.guard import Guard

GRACE_S = 2
"""How long answers under way may take after Ctrl-C."""
PATIENCE_S = 20
"""How long a connection may take to say what it wants."""
EVERYWHERE = ("0.0.0.0", "::", "[::]", "")


class Impatient(H11Protocol):
    """Hangs up on whoever connects and never finishes asking, so that such connections do not pile up."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(PATIENCE_S, self._hang_up)

    def _hang_up(self) -> None:
        asked = getattr(self, "cycle", None)  # None until a whole request has come
        if asked is None and not self.transport.is_closing():
            self.transport.close()


def serve(
    app: ASGIApp,
    port: int,
    open_browser: bool,
    *,
    host: str = LOOPBACK[0],
    say: Callable[[str], None] = print,
) -> None:
    """Serves an application behind a door of its own until Ctrl-C; ``port`` 0 takes any that is free.

    ``say`` gets the address, a warning where other machines reach it, and that it has stopped.
    """
    with listen(host, port) as listener:
        door = Door(listener.getsockname()[1], host)
        if host not in LOOPBACK:
            say(f"warning: other machines reach {host}, and what they exchange with it is not encrypted")
        say(f"open {door.address}")
        say("stop with Ctrl-C")
        if open_browser:
            webbrowser.open(door.address)
        config = uvicorn.Config(
            Guard(app, door),
            lifespan="off",
            log_level="error",
            access_log=False,
            server_header=False,
            ws="none",
            http=Impatient,
            timeout_graceful_shutdown=GRACE_S,
        )
        try:
            uvicorn.Server(config).run(sockets=[listener])
        except KeyboardInterrupt:  # raised again once all answers are out
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
