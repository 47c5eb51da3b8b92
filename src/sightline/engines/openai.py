"""Endpoints that speak OpenAI's chat completions: vLLM, SGLang, llama.cpp, ``transformers serve``, hosted models.

A place is ``URL#NAME``. What a server does not tell is found out once, with the first answer, and stays null.
"""

from __future__ import annotations

import base64
import json
import math
import os
import random
import re
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from threading import BoundedSemaphore
from typing import Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

import httpx
from PIL import Image

from sightline.engines.base import ENGINES, Engine, Heard, Question
from sightline.errors import OutageError, SightlineError, named_line
from sightline.probes.images import stored_as

PARALLEL = "SIGHTLINE_PARALLEL_REQUESTS"


@ENGINES.register("openai")
class Endpoint(Engine):
    """One model of a server. Images travel as PNG, so that no pixel changes on the way; decoding is greedy."""

    name = "openai"
    switches: ClassVar[Mapping[str, str]] = {
        "detail": "low, high or auto: how closely the server is asked to look, where it offers that.",
        "max_side": "The image is shown with its longer side at most so many pixels.",
        "extra.NAME": "A further field of the request, JSON or a word: extra.seed=1; extra.NAME.FIELD=1 one within it.",
    }

    def __init__(self, place: str) -> None:
        super().__init__(place)
        url, _, self._name = place.partition("#")
        self.wire = Wire(url)
        most = os.environ.get(PARALLEL, "4")
        if not most.isdecimal() or not 1 <= int(most) <= 256:
            raise SightlineError(f"{PARALLEL}={most} is no whole number from 1 to 256")
        self.parallel = int(most)
        self._places = BoundedSemaphore(self.parallel)
        self._shape = Shape()
        self._silent: dict[str, str] = {}
        if not self._name:
            raise SightlineError(f"openai:{self.wire.base} names no model; {self._offered()}")

    @property
    def model(self) -> str:
        """Servers call a local checkpoint by its path: the folder's name is enough."""
        return re.split(r"[\\/]", self._name)[-1] if re.match(r"[\\/~.]|\w:", self._name) else self._name

    def facts(self) -> dict[str, Any]:
        # A server that was started with another size of images, or pruning, counts other tokens of the same image.
        told = {"server": self._models.headers.get("server"), "greeting_tokens": self._greeting.prompt_tokens}
        return {"host": self.wire.host, "served_model": self.model, **told}

    def load(self) -> None:
        """Asks once, so that a wrong name or key, or a model that takes no image, is known now, and what the server
        does not tell."""
        _ = self._greeting

    @cached_property
    def _greeting(self) -> Heard:
        return self.ask(Question("What is this?", Image.new("RGB", (1024, 768)), longest=1, likely=True))

    @cached_property
    def _models(self) -> Returned:
        # Whatever the status: some servers have no such list, or fail over it, and answer questions all the same.
        reply = self.wire.send("GET", "/models", again=frozenset())
        if reply.status in (401, 403):
            raise self._refusal(reply)
        return reply

    def _offered(self) -> str:
        body = self._models.body
        listed = body.get("data") if isinstance(body, dict) else None
        names = [str(each.get("id")) for each in listed or () if isinstance(each, dict)]
        there = f"it has {', '.join(names)}" if names else "which it has, the server does not say"
        return f"{there}; write openai:{self.wire.base}#NAME"

    @property
    def untold(self) -> Mapping[str, str]:
        """Whoever wants to know makes the server speak once."""
        self.load()
        hidden = "an endpoint shows neither what it rescales nor which part of an image a token is made from"
        weights = "an endpoint does not say what it runs on"
        return {
            **dict.fromkeys(("ecr", "kept_mask", "legibility"), hidden),
            **dict.fromkeys(("weight_digest", "dtype", "device"), weights),
            **self._silent,
        }

    def check(self, switches: Mapping[str, str]) -> None:
        for name, value in switches.items():
            kind, *path = name.split(".")
            if kind == "extra":
                if not path or not all(path) or path[0] in OWN_FIELDS:
                    raise SightlineError(f"{name} cannot be set: it names no field, or one that a question has itself")
                if any(other.startswith(f"{name}.") for other in switches):
                    raise SightlineError(f"{name} is a value and holds fields: set one of the two")
            elif name == "detail":
                if value not in ("low", "high", "auto"):
                    raise SightlineError(f"detail={value} is none of low, high, auto")
            elif name == "max_side":
                if not value.isdecimal() or not 1 <= int(value) <= 100_000:
                    raise SightlineError(f"max_side={value} is no whole number from 1 to 100000")
            else:
                super().check({name: value})

    def ask(self, question: Question) -> Heard:
        self.check(question.switches)
        with self._places:
            while True:
                shape = self._shape
                reply = self.wire.send("POST", "/chat/completions", self._request(question, shape))
                if reply.status < 300:
                    return self._heard(reply)
                without = shape.without(reply)
                if without is None:
                    raise self._refusal(reply)
                self._shape = without
                if without.alternatives is None:
                    self._silent["answer_loss"] = "the server refuses to tell log-probabilities"

    def stream(self, question: Question) -> Generator[None, None, int]:
        asked = self._request(question, self._shape._replace(alternatives=None))
        return self._pieces({**asked, "stream": True} | USAGE)

    def _pieces(self, asked: dict[str, Any]) -> Generator[None, None, int]:
        """Where the server counts no tokens, a piece is one. Nothing is tried again: nobody would see that time."""
        pieces, told, whole = 0, None, False
        for event in self.wire.stream("/chat/completions", asked):
            if event is None:
                whole = True
                continue
            if event.status >= 300:
                raise self._refusal(event)
            told = count(event.body.get("usage"), "completion_tokens") or told
            choice = first_choice(event.body)
            delta, whole = choice.get("delta"), whole or bool(choice.get("finish_reason"))
            if isinstance(delta, dict) and any(delta.get(part) for part in SPOKEN):
                pieces += 1
                yield
        if not whole:
            raise OutageError(
                f"{self.wire.host} ended a stream after {pieces} pieces without saying that it is whole; "
                "was it stopped, or does it not stream?"
            )
        return pieces if told is None else told

    def _request(self, question: Question, shape: Shape) -> dict[str, Any]:
        content: Any = question.text
        if question.image is not None:
            longest = question.switches.get("max_side")
            shown = {"url": data_url(question.image, None if longest is None else int(longest))}
            if "detail" in question.switches:
                shown["detail"] = question.switches["detail"]
            content = [{"type": "image_url", "image_url": shown}, {"type": "text", "text": question.text}]
        system = [] if question.system is None else [{"role": "system", "content": question.system}]
        asked = extra_fields(question.switches)
        asked |= {"model": self._name, "messages": [*system, {"role": "user", "content": content}]}
        asked |= {"temperature": 0, shape.limit: question.longest}
        if shape.alternatives is not None:
            asked["logprobs"] = True
            if question.likely:
                asked["top_logprobs"] = shape.alternatives
        return asked

    def _heard(self, reply: Returned) -> Heard:
        body = reply.body
        choice = first_choice(body)
        message = choice.get("message")
        if not isinstance(message, dict):
            wrong = SightlineError if isinstance(body, dict) else OutageError  # a page that stands before the server
            raise wrong(
                f"{self.wire.host} gave no chat completion but {message_of(reply)}; is {self.wire.base} its URL?"
            )
        text, told = spoken(message), tokens_told(choice)
        usage = body.get("usage")
        prompt, generated = count(usage, "prompt_tokens"), count(usage, "completion_tokens")
        finish = choice.get("finish_reason")
        if told is None:
            self._silent.setdefault("answer_loss", "the server tells no log-probabilities")
        if prompt is None:
            self._silent["sequence_pruned"] = "the server does not count the tokens of a prompt"
        if told:
            generated = len(told) - ends_with_stop(told, text)
        return Heard(
            text.strip(),
            body,
            prompt_tokens=prompt,
            tokens=generated,
            cut_off=finish == "length" if isinstance(finish, str) else None,
            loss=-math.fsum(each["logprob"] for each in told) / len(told) if told else None,
            first=likeliest(told[0]) if told else None,
        )

    def _refusal(self, reply: Returned) -> SightlineError:
        line = f"{self.wire.host} refuses with {reply.status}: {message_of(reply)}"
        if reply.status in ABOUT_THE_QUESTION:
            return SightlineError(line)
        if reply.status in (401, 403):
            line += f"; is {' or '.join(KEYS)} the key for it?"
        if 300 <= reply.status < 400:
            where = reply.headers.get("location", "elsewhere").partition("?")[0]
            line += f"; it points to {where}, and no redirect is followed: name that URL instead"
        return OutageError(line)


OWN_FIELDS = (
    "model", "messages", "temperature", "stream", "n", "logprobs", "top_logprobs", "max_tokens",
    "max_completion_tokens",
)  # fmt: skip
USAGE = {"stream_options": {"include_usage": True}}
"""A stream ends with the counts that an answer in one piece has."""


class Shape(NamedTuple):
    """What a server takes in a request."""

    limit: str = "max_tokens"
    alternatives: int | None = 20
    """Most tokens to tell for one place; None: it refuses to tell any probability."""

    def without(self, reply: Returned) -> Shape | None:
        """What to ask next after a refusal; None where nothing can be left out."""
        words = message_of(reply).lower()
        if reply.status not in (400, 422):
            return None
        if self.limit == "max_tokens" and "max_completion_tokens" in words:
            return self._replace(limit="max_completion_tokens")
        if self.alternatives is not None and "logprob" in words:
            return self._replace(alternatives=5 if self.alternatives > 5 else None)
        return None


def data_url(image: Image.Image, longest: int | None) -> str:
    """PNG, pixel by pixel the image, its longer side at most ``longest``."""
    if longest is not None and max(image.size) > longest:
        width, height = (max(1, round(side * longest / max(image.size))) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    plain = image if image.mode == "RGB" else image.convert("RGB")
    return f"data:image/png;base64,{base64.b64encode(stored_as(plain, 'PNG')).decode('ascii')}"


def extra_fields(switches: Mapping[str, str]) -> dict[str, Any]:
    """``extra.NAME.FIELD=VALUE`` as JSON: values in an arm have no commas, so objects are set by field."""
    fields: dict[str, Any] = {}
    for name, value in switches.items():
        kind, *path = name.split(".")
        if kind == "extra":
            inner = fields
            for each in path[:-1]:
                inner = inner.setdefault(each, {})
            try:
                inner[path[-1]] = json.loads(value, parse_constant=str)
            except ValueError:
                inner[path[-1]] = value
    return fields


SPOKEN = ("content", "reasoning_content", "reasoning", "refusal")
"""Fields of a stream's pieces in which tokens come."""


def first_choice(body: Any) -> Mapping[str, Any]:
    """Empty where there is none."""
    choices = body.get("choices") if isinstance(body, dict) else None
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


def spoken(message: Mapping[str, Any]) -> str:
    """The text of an answer, or of a refusal to answer, which is one as well."""
    content = message.get("content") or message.get("refusal") or ""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content)


def count(usage: Any, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and 0 <= value < 2**31 else None


def tokens_told(choice: Mapping[str, Any]) -> list[Mapping[str, Any]] | None:
    """Generated tokens with their log-probabilities; None where a server gives none."""
    logprobs = choice.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    return content if isinstance(content, list) and all(map(likely, content)) else None


def likely(token: Any) -> bool:
    """Whether this is a token with its log-probability."""
    value = token.get("logprob") if isinstance(token, dict) else None
    return isinstance(value, int | float) and abs(value) < 1e9


def ends_with_stop(told: list[Mapping[str, Any]], text: str) -> bool:
    """Whether the last token is the stop token, which some servers tell: it is no part of the text."""
    last = told[-1]
    try:
        letters = bytes(last.get("bytes") or ()) or str(last.get("token", "")).encode()
        return not letters or not text.encode().endswith(letters)
    except (TypeError, ValueError):
        return False


def likeliest(token: Mapping[str, Any]) -> dict[str, float] | None:
    """Log-probabilities of what might have stood there, by text; of equal texts the likelier."""
    told, found = token.get("top_logprobs"), dict[str, float]()
    for each in filter(likely, told if isinstance(told, list) else ()):
        text = str(each.get("token"))
        found[text] = max(float(each["logprob"]), found.get(text, -math.inf))
    return found or None


# Requests: tried again where that may help, and the key in one header, nowhere else.

KEYS = ("SIGHTLINE_API_KEY", "OPENAI_API_KEY")
"""Where a key is read from, the first that is set. The second is sent over https or to this machine only: it is often
set for somebody else than the server that is audited."""
RETRIED = frozenset({408, 409, 429, *range(500, 600)})
ABOUT_THE_QUESTION = frozenset({400, 413, 415, 422})
"""Statuses that would come again; after any other the same question may be answered later."""
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
            # As many connections as there are requests: waiting for one would be billed to the server.
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
            self._client = httpx.Client(headers=headers, timeout=timeout, limits=limits, follow_redirects=False)
        except (ImportError, ValueError, OSError) as error:  # proxies and certificates that the environment names
            raise SightlineError(f"{self.host} cannot be asked: {self._hidden(named_line(error))}") from None

    def send(self, method: str, path: str, body: Any = None, again: frozenset[int] = RETRIED) -> Returned:
        """What came back, unless it is a status in ``again`` every time."""
        problem = ""
        for attempt in range(self.tries):
            wait = self.first_wait * 2**attempt * random.uniform(0.5, 1.5)
            try:
                reply = self._read(self._client.request(method, self.base + path, json=body))
            except httpx.ConnectTimeout:
                problem = f"no connection within {self._client.timeout.connect:g} s"
            except httpx.TimeoutException:
                problem = f"nothing within {self._client.timeout.read:g} s"
            except httpx.HTTPError as error:
                problem = self._hidden(named_line(error))
            else:
                problem = f"{reply.status}: {message_of(reply)}"
                # Credit that is used up has the status of haste, and no waiting helps.
                if reply.status not in again or "insufficient_quota" in str(reply.body):
                    return reply
                wait = max(wait, asked_wait(reply.headers.get("retry-after", "")))
                if wait > self.longest_wait:
                    raise OutageError(f"{self.host} asks to wait {wait:.0f} s ({problem}); go on with the run later")
            if attempt + 1 < self.tries:
                time.sleep(wait)
        raise OutageError(
            f"{self.host} gave no answer to {method} {path} in {self.tries} tries, the last: {problem}; "
            "is the server up? What was answered before stays"
        )

    def stream(self, path: str, body: Any) -> Iterator[Returned | None]:
        """Every event of a stream as it comes, None where it says that it is over, or the one reply that says why
        there is none."""
        try:
            with self._client.stream("POST", self.base + path, json=body) as response:
                if response.status_code >= 300:
                    response.read()
                    yield self._read(response)
                    return
                for line in lines_of(response.iter_bytes()):
                    if line.startswith(b"data:"):
                        data = line.removeprefix(b"data:").strip()
                        yield None if data == b"[DONE]" else self._event(data.decode("utf-8", "replace"))
        except httpx.HTTPError as error:
            raise SightlineError(f"{self.host} broke off a stream: {self._hidden(named_line(error))}") from None

    def _event(self, data: str) -> Returned:
        try:
            body = self._hidden(json.loads(data, parse_constant=lambda _: None))
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict) or body.get("error"):
            return Returned(400, {}, body if isinstance(body, dict) else self._hidden(data))
        return Returned(200, {}, body)

    def _read(self, response: httpx.Response) -> Returned:
        status, headers = response.status_code, self._hidden(dict(response.headers))
        try:
            # JSON is UTF-8, whatever a header says of it.
            body = json.loads(response.content.decode("utf-8", "replace"), parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            return Returned(status, headers, self._hidden(response.text))
        body = self._hidden(body)
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


def lines_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Lines as a stream of events has them; JSON may hold separators that end a line elsewhere."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    yield rest


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
        if key := os.environ.get(name, "").strip():
            if not re.fullmatch("[!-~]+", key):
                raise SightlineError(f"{name} holds characters that no header takes; was more copied than the key?")
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
        if not body.strip():
            return "an empty answer"
        page = body.lstrip()[:1] == "<"
        return "a web page, no JSON" if page else f"no JSON: {body.strip()[:SHOWN]}"
    for name in ("error", "message", "detail", "msg"):
        if isinstance(body, dict) and body.get(name):
            body = body[name]
            body = body[0] if isinstance(body, list) else body
    said = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    return said.strip()[:SHOWN]
