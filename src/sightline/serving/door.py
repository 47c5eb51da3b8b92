"""Who may come in: requests for this address, from its own pages, of whoever knows the token.

A page of another site can make a browser send requests to a loopback address, and a name under its control can be made
to point there. Neither helps it: the first names a foreign origin and has no cookie, the second a foreign host.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers
from starlette.types import Scope

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""Names of this machine that no other machine can answer to."""
TOKEN = "token"
"""The parameter of an address that carries the token, until a cookie does."""
SAFE = ("GET", "HEAD")
"""Methods that change nothing."""


@dataclass(frozen=True)
class Door:
    """One address with its token."""

    port: int
    host: str = LOOPBACK[0]
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    @property
    def address(self) -> str:
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
        if not self.knows(self._shown(headers)) and not self.knows(self.given_token(scope)):
            return "open the address that the command printed: it holds a token that this request lacks"
        return ""

    def knows(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self.token.encode())

    def _shown(self, headers: Headers) -> str:
        """The token in the cookie."""
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return ""
        return "" if cookie is None else cookie.value

    @staticmethod
    def given_token(scope: Scope) -> str:
        """The token in the address."""
        return dict(_parameters(scope)).get(TOKEN, "")

    @staticmethod
    def without_token(scope: Scope) -> str:
        """The same address once the cookie is set: nothing to be seen over a shoulder or copied with a link."""
        rest = urlencode([(name, value) for name, value in _parameters(scope) if name != TOKEN])
        # One slash: two would name another host.
        return f"/{scope['path'].lstrip('/')}" + (f"?{rest}" if rest else "")


def _parameters(scope: Scope) -> list[tuple[str, str]]:
    return parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
