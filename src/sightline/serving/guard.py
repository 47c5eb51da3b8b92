"""Around every application: a request is refused or let in, and what goes out says what a browser may do with it."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sightline.serving.door import SAFE, Door

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
    """An application behind a door."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self.app, self.door = app, door

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

        refusal = self.door.refusal(scope)
        if refusal:
            await PlainTextResponse(f"Refused: {refusal}.\n", 403)(scope, receive, send_marked)
        elif scope["method"] in SAFE and self.door.given_token(scope):
            await self._let_in(scope, receive, send_marked)
        else:
            await self.app(scope, receive, send_marked)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Takes the token out of the address; with a stale one and a good cookie too."""
        headers = {"set-cookie": self.door.cookie_header}
        await RedirectResponse(self.door.without_token(scope), 303, headers)(scope, receive, send)
