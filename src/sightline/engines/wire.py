"""Requests to an endpoint: tried again where that may help, and the key in one header, nowhere else."""

from __future__ import annotations

import json
import math
import os
import random
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx

from sightline.errors import SightlineError, named_line

KEYS = ("SIGHTLINE_API_KEY", "OPENAI_API_KEY")
"""Where a key is read from, the first that is set. The second is sent over https or to this machine only: it is often
set for somebody else than the server that is audited."""
RETRIED = frozenset({408, 409, 429, *range(500, 600)})
SHOWN = 300
"""Characters of a server's own message that an error quotes."""
SECRET = 8
"""Characters from which on a key is one; local servers take any word, which answers may contain."""


class Returned(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """By lower-case names."""
    body: Any
    """Parsed JSON; else the text."""


class Wire:
    """Requests to one URL: tried again where that may help, with a key that nothing which leaves here contains."""

    tries = 6
    first_wait = 0.5
    """Seconds; doubled from try to try, half to one and a half times as long by chance."""
    longest_wait = 120.0
    """Seconds; a server that asks for more is given up."""
    patience = 600.0
    """Seconds without a byte."""

    def __init__(self, url: str) -> None:
        self.base = base_of(url)
        self.host = urlsplit(self.base).netloc
        self._key = key_for(self.base)
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        timeout = httpx.Timeout(self.patience, connect=min(self.patience, 10))
        try:
            # A redirect is never followed: neither key nor image goes where nobody meant to send it.
            self._client = httpx.Client(headers=headers, timeout=timeout, follow_redirects=False)
        except (ImportError, ValueError, OSError) as error:  # proxies and certificates that the environment names
            raise SightlineError(f"{self.host} cannot be asked: {self._hidden(named_line(error))}") from None

    def send(self, method: str, path: str, body: Any = None, again: frozenset[int] = RETRIED) -> Returned:
        """What came back, unless it is a status in ``again`` every time."""
        problem = ""
        for attempt in range(self.tries):
            wait = self.first_wait * 2**attempt * random.uniform(0.5, 1.5)
            try:
                reply = self._read(self._client.request(method, self.base + path, json=body))
            except httpx.TimeoutException as error:
                problem = f"{type(error).__name__}, nothing within {self.patience:g} s"
            except httpx.HTTPError as error:
                problem = self._hidden(named_line(error))
            else:
                problem = f"{reply.status} {message_of(reply)}"
                # Credit that is used up has the status of haste, and no waiting helps.
                if reply.status not in again or "insufficient_quota" in str(reply.body):
                    return reply
                wait = max(wait, asked_wait(reply.headers.get("retry-after", "")))
                if wait > self.longest_wait:
                    raise SightlineError(f"{self.host} asks to wait {wait:.0f} s ({problem}); go on with the run later")
            if attempt + 1 < self.tries:
                time.sleep(wait)
        raise SightlineError(
            f"{self.host} gave no answer to {method} {path} in {self.tries} tries, the last: {problem}; "
            "is the server up? What was answered before stays"
        )

    def _read(self, response: httpx.Response) -> Returned:
        status, headers = response.status_code, self._hidden(dict(response.headers))
        try:
            body = self._hidden(json.loads(response.text, parse_constant=lambda _: None))
        except (ValueError, RecursionError):
            return Returned(status, headers, self._hidden(response.text))
        # Relays answer 200 and put the status of who is behind them into the body.
        if status == 200 and isinstance(body, dict) and body.get("error") and not body.get("choices"):
            code = body["error"].get("code") if isinstance(body["error"], dict) else None
            status = code if isinstance(code, int) and 400 <= code < 600 else 400
        return Returned(status, headers, body)

    def _hidden(self, value: Any) -> Any:
        """The same JSON without the key, should a server repeat it."""
        if len(self._key) < SECRET:
            return value
        if isinstance(value, str):
            return value.replace(self._key, "[key]")
        if isinstance(value, list):
            return [self._hidden(each) for each in value]
        if isinstance(value, dict):
            return {self._hidden(name): self._hidden(each) for name, each in value.items()}
        return value


def base_of(url: str) -> str:
    """``http://HOST:PORT/v1`` of what a user writes; the URL is not quoted, it may hold a secret."""
    how = "write openai:http://HOST:PORT/v1#NAME"
    try:
        parts = urlsplit(url.strip())
        known = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
        httpx.URL(url.strip())
    except (ValueError, httpx.InvalidURL):
        known = False
    if not known:
        raise SightlineError(f"an endpoint has no URL that starts with http:// or https:// and a host; {how}")
    if "@" in parts.netloc or parts.query:
        raise SightlineError(f"the URL of an endpoint holds no user, password or query; {how}, a key in {KEYS[0]}")
    path = parts.path.rstrip("/")
    whole = path.endswith("/chat/completions")
    path = path.removesuffix("/chat/completions")
    if not whole and not re.search(r"/v\d", path):
        path += "/v1"
    return f"{parts.scheme}://{parts.netloc}{path}"


def key_for(base: str) -> str:
    """Empty where there is none."""
    parts = urlsplit(base)
    guarded = parts.scheme == "https" or re.fullmatch(r"localhost|127\.[\d.]+|::1", parts.hostname or "")
    for name in KEYS if guarded else KEYS[:1]:
        key = os.environ.get(name, "").strip()
        if key and not re.fullmatch("[!-~]+", key):
            raise SightlineError(f"{name} holds characters that no header takes; was more copied than the key?")
        if key:
            return key
    return ""


def asked_wait(value: str) -> float:
    """Seconds of a ``Retry-After``, which counts them or names a time; 0 where it says neither."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            then = parsedate_to_datetime(value)
        except ValueError:
            return 0.0
        seconds = (then - datetime.now(then.tzinfo and UTC)).total_seconds()
    return max(seconds, 0.0) if math.isfinite(seconds) else 0.0


def message_of(reply: Returned) -> str:
    """What a server says went wrong, short, in whichever place it says it."""
    body = reply.body
    if isinstance(body, str):
        page = body.lstrip()[:1] == "<"
        return "a web page, no JSON" if page else f"no JSON: {body.strip()[:SHOWN]}" if body.strip() else "nothing"
    for name in ("error", "message", "detail", "msg"):
        if isinstance(body, dict) and body.get(name):
            body = body[name]
            body = body[0] if isinstance(body, list) else body
    said = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    return said.strip()[:SHOWN]
