"""Endpoints: a real server on this machine plays what servers do: what is heard, refused and written."""

import base64
import contextlib
import io
import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sightline.engines import Question, engine_of
from sightline.engines.openai import Endpoint, Returned, Wire, asked_wait, base_of, key_for
from sightline.errors import OutageError, SightlineError
from tests.refusals import Refused

KEY = "sk-never/written-1234567890"
DROPPED = 0
"""In the place of a status: the connection is closed without a word."""


def completion(text: Any = "8.87", *, finish: str = "stop", usage: Any = (803, 5), **choice: Any) -> dict[str, Any]:
    counted = {"usage": dict(zip(("prompt_tokens", "completion_tokens"), usage, strict=True))} if usage else {}
    message = choice.pop("message", {"role": "assistant", "content": text})
    return {"choices": [{"message": message, "finish_reason": finish, **choice}], **counted}


def told(*tokens: tuple[str, float]) -> dict[str, Any]:
    """Log-probabilities as servers write them."""
    each = [{"token": text, "logprob": value, "bytes": list(text.encode())} for text, value in tokens]
    return {"content": [{**token, "top_logprobs": each} for token in each]}


Play = tuple[int, Any] | tuple[int, Any, dict[str, str]]


class Server(ThreadingHTTPServer):
    """Answers with one play after the other, the last again and again, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self, plays: tuple[Play, ...], slow: float) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.plays, self.slow, self.lock = list(plays), slow, threading.Lock()
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.busy = self.busiest = 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with server.lock:
            server.asked.append(body)
            server.keys.append(self.headers["Authorization"])
            server.busy += 1
            server.busiest = max(server.busiest, server.busy)
            play = server.plays.pop(0) if len(server.plays) > 1 else server.plays[0]
        time.sleep(server.slow)
        with server.lock:
            server.busy -= 1
        self.say(*play)

    def do_GET(self) -> None:
        self.say(200, {"data": [{"id": "one"}, {"id": "two"}]}, {"Server": f"toy {self.headers['Authorization']}"})

    def say(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        if status == DROPPED:
            return
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response_only(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[Server, Endpoint]]]:
    """``serve(*plays)`` -> a server and the endpoint that asks it, which waits for little and for short."""
    for name in ("SIGHTLINE_API_KEY", "SIGHTLINE_PARALLEL_REQUESTS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"NO_PROXY": "127.0.0.1", "OPENAI_API_KEY": KEY}.items():
        monkeypatch.setenv(name, value)
    for name, seconds in {"first_wait": 0.01, "longest_wait": 2.0, "patience": 1.0}.items():
        monkeypatch.setattr(Wire, name, seconds)
    servers: list[Server] = []

    def start(*plays: Play, slow: float = 0.0) -> tuple[Server, Endpoint]:
        servers.append(Server(plays, slow))
        threading.Thread(target=servers[-1].serve_forever, args=(0.01,), daemon=True).start()
        engine = engine_of(f"openai:{servers[-1].url}#reader")
        assert isinstance(engine, Endpoint)
        return servers[-1], engine

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


SURE = told(("8", -0.5), (".87", -0.1))
HEARD: dict[str, tuple[list[Play], dict[str, Any], int]] = {
    "all told": (
        [(200, completion(logprobs=SURE))],
        {"text": "8.87", "prompt_tokens": 803, "tokens": 2, "loss": 0.3, "first": {"8": -0.5, ".87": -0.1}}, 1),
    "a stop token": ([(200, completion(logprobs=told(("8.87", -0.5), ("<s>", -0.1))))], {"tokens": 1, "loss": 0.3}, 1),
    "of no letters": ([(200, completion(logprobs=told(("8.87", -0.5), ("", -0.1))))], {"tokens": 1, "loss": 0.3}, 1),
    "nothing told": ([(200, completion(usage=None))], {"prompt_tokens": None, "tokens": None, "loss": None}, 1),
    "impossible": ([(200, completion(logprobs=told(("8.87", -float("inf")))))], {"tokens": 5, "loss": None}, 1),
    "cut off": ([(200, completion(finish="length"))], {"cut_off": True, "tokens": 5}, 1),
    "parts": ([(200, completion([{"type": "text", "text": " 8."}, {"text": "87\n"}]))], {"text": "8.87"}, 1),
    "refusal": ([(200, completion(message={"content": None, "refusal": "I cannot."}))], {"text": "I cannot."}, 1),
    "500": ([(500, "oops"), (200, completion())], {"text": "8.87"}, 2),
    "429": ([(429, {}, {"Retry-After": "0.3"}), (200, completion())], {"text": "8.87"}, 2),
    "other letters": (
        [(200, json.dumps(completion("8 €"), ensure_ascii=False), {"Content-Type": "text/html; charset=latin-1"})],
        {"text": "8 €"}, 1),
    "dropped": ([(DROPPED, ""), (200, completion())], {"text": "8.87"}, 2),
    "relay": ([(200, {"error": {"code": 503, "message": "busy"}}), (200, completion())], {"text": "8.87"}, 2),
    "few alternatives": (
        [(400, {"error": {"message": "top_logprobs is at most 5"}}), (200, completion(logprobs=SURE))],
        {"loss": 0.3}, 2),
    "no alternatives": ([*[(422, {"detail": [{"msg": "logprobs?"}]})] * 2, (200, completion())], {"loss": None}, 3),
    "other limit": (
        [(400, {"error": "no max_tokens, use 'max_completion_tokens'"}), (200, completion())], {"text": "8.87"}, 2),
}  # fmt: skip


@pytest.mark.parametrize("case", HEARD)
def test_what_is_heard(serve: Any, case: str) -> None:
    plays, expected, requests = HEARD[case]
    server, engine = serve(*plays)
    started = time.monotonic()
    heard = engine.ask(Question("How much?", likely=True))
    assert time.monotonic() - started > 0.3 * (case == "429")
    for name, value in expected.items():
        assert getattr(heard, name) == (pytest.approx(value) if isinstance(value, float) else value), name
    assert heard.cut_off in (None, case == "cut off")
    assert len(server.asked) == requests
    assert engine.ask(Question("Again?")).text == heard.text
    assert len(server.asked) == requests + 1, "what a server refuses is asked for once"
    assert ("answer_loss" in engine.untold) == (heard.loss is None)
    assert ("sequence_pruned" in engine.untold) == (heard.prompt_tokens is None)
    tops = {"few alternatives": [20, 5, None], "no alternatives": [20, 5, None, None]}
    if case in tops:
        assert [body.get("top_logprobs") for body in server.asked[: requests + 1]] == tops[case]
    limit = "max_completion_tokens" if case == "other limit" else "max_tokens"
    assert server.asked[-1][limit] == 1, "the last is the greeting"
    json.dumps(heard.raw, allow_nan=False)


REFUSED: dict[str, tuple[Play, tuple[str, ...], int]] = {
    "its own words": ((400, {"error": {"message": "image\x1b[2J too large"}}), ("400: image\\x1b[2J too large",), 1),
    "unknown": ((404, {"detail": "no model 'reader'"}), ("404: no model 'reader'",), 1),
    "key": ((401, {"error": {"message": f"wrong key {KEY}"}}), ("wrong key [key]", "OPENAI_API_KEY the key"), 1),
    "page": ((403, "<html><h1>Sign in</h1>"), ("a web page, no JSON",), 1),
    "credit": ((429, {"error": {"code": "insufficient_quota", "message": "pay"}}), ("429: pay",), 1),
    "long wait": ((429, {"message": "later"}, {"Retry-After": "99"}), ("asks to wait 99 s", "later"), 1),
    "always": ((503, {"error": "loading"}), ("in 6 tries, the last: 503: loading", "is the server up"), 6),
    "gone": ((DROPPED, ""), ("in 6 tries, the last: RemoteProtocolError",), 6),
    "gone for good": ((404, "gone"), ("404: no JSON: gone",), 1),
    "no JSON": ((200, '{"choices": [{"mess'), ("no JSON: {", "is http://127.0.0.1"), 1),
    "deep": ((200, "[" * 100_000), ("no JSON",), 1),
    "a web page": ((200, "<!doctype html>"), ("a web page, no JSON",), 1),
    "empty": ((200, ""), ("but an empty answer",), 1),
    "no choices": ((200, {"choices": []}), ('{"choices": []}',), 1),
    "no message": ((200, {"choices": [{"text": "8.87"}]}), ("no chat completion",), 1),
}
ABOUT_THE_QUESTION = {"its own words", "no choices", "no message"}
"""Refusals after which an image is left out; any other ends the run, which goes on when the server is well."""


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(serve: Any, case: str) -> None:
    play, words, requests = REFUSED[case]
    server, engine = serve(play)
    with pytest.raises(SightlineError) as caught:
        engine.ask(Question("How much?"))
    for word in words:
        assert word in str(caught.value)
    assert isinstance(caught.value, OutageError) == (case not in ABOUT_THE_QUESTION)
    assert str(caught.value).isprintable()
    assert KEY not in str(caught.value)
    assert len(server.asked) == requests


def test_a_server_that_is_too_slow_is_given_up_and_one_that_is_not_there(serve: Any, refused: Refused) -> None:
    server, _ = serve((200, completion()), slow=0.4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Wire, "patience", 0.1)
        patch.setattr(Wire, "tries", 2)
        engine = Endpoint(f"{server.url}#reader")
    engine.wire.tries = 2
    refused("in 2 tries, the last: nothing within 0.1 s", engine.ask, Question("How much?"))
    server.shutdown()
    server.server_close()
    with pytest.raises(SightlineError, match="in 2 tries, the last: ConnectError"):
        engine.ask(Question("How much?"))


def test_a_key_goes_into_its_header_and_nowhere_else(serve: Any) -> None:
    server, engine = serve((200, {**completion(f"it is {KEY}"), KEY: [KEY]}))
    heard = engine.ask(Question("What is the key?"))
    assert server.keys == [f"Bearer {KEY}"]
    written = json.dumps([heard.text, heard.raw, engine.facts(), engine.model, dict(engine.untold)])
    assert KEY not in written
    assert KEY.replace("/", "\\/") not in written
    told = {"host": server.url[7:], "served_model": "reader", "server": "toy Bearer [key]", "greeting_tokens": 803}
    assert engine.facts() == told


def test_no_redirect_is_followed(serve: Any, refused: Refused) -> None:
    server, _ = serve((200, completion()))
    away, engine = serve((307, "", {"Location": f"{server.url}/v1/chat/completions?token=x"}))
    refused("v1/chat/completions, and no redirect", engine.ask, Question("How much?"))
    assert (len(away.asked), len(server.asked)) == (1, 0)


def test_no_more_requests_at_a_time_than_allowed(serve: Any, monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    for bound in (1, 3):
        monkeypatch.setenv("SIGHTLINE_PARALLEL_REQUESTS", str(bound))
        server, engine = serve((200, completion()), slow=0.05)
        assert engine.parallel == bound
        with ThreadPoolExecutor(8) as pool:
            assert len(list(pool.map(engine.ask, [Question("How much?")] * 9))) == 9
        assert server.busiest == bound
    monkeypatch.setenv("SIGHTLINE_PARALLEL_REQUESTS", "many")
    refused("SIGHTLINE_PARALLEL_REQUESTS=many is no whole number from 1 to 256", Endpoint, f"{server.url}#reader")


def test_what_a_request_holds(serve: Any) -> None:
    server, engine = serve((200, completion()))
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 60, 3), dtype=np.uint8))
    fields = {"extra.seed": "1", "extra.mm.a": "[1]", "extra.mm.b": "low"}
    for switches in ({}, {"max_side": "30", "detail": "low"}, fields):
        engine.ask(Question("How much?", image, "Be short.", switches, 7))
    plain, small, more = server.asked
    assert plain["messages"][0] == {"role": "system", "content": "Be short."}
    assert plain["messages"][1]["content"][1] == {"type": "text", "text": "How much?"}
    assert {name: plain[name] for name in ("model", "temperature", "max_tokens", "logprobs")} == {
        "model": "reader", "temperature": 0, "max_tokens": 7, "logprobs": True,
    }  # fmt: skip
    shown = []
    for body in (plain, small):
        kind, _, data = body["messages"][-1]["content"][0]["image_url"]["url"].partition(";base64,")
        shown.append(Image.open(io.BytesIO(base64.b64decode(data))))
        assert (kind, shown[-1].format) == ("data:image/png", "PNG")
    assert np.array_equal(np.asarray(shown[0]), np.asarray(image))
    assert shown[1].size == (30, 10)
    assert small["messages"][1]["content"][0]["image_url"]["detail"] == "low"
    assert (more["seed"], more["mm"]) == (1, {"a": [1], "b": "low"})


SWITCHES = [
    ({"detail": "some"}, "none of low, high, auto"),
    ({"max_side": "0"}, "from 1 to 100000"),
    ({"extra.model": "other"}, "one that a question has itself"),
    ({"extra.": "1"}, "extra. cannot be set: it names no field"),
    ({"extra": "1"}, "extra cannot be set: it names no field"),
    ({"pruning_ratio": "30"}, "it has detail, max_side, extra.NAME"),
    ({"extra.mm": "1", "extra.mm.a": "2"}, "a value and holds fields"),
]
PLACES = {
    "http://localhost:8000": "http://localhost:8000/v1",
    "http://localhost:8000/v1/": "http://localhost:8000/v1",
    "http://[::1]:8000/v1/chat/completions": "http://[::1]:8000/v1",
    "https://host/proxy/8000": "https://host/proxy/8000/v1",
    "https://host/v1beta/openai/": "https://host/v1beta/openai",
    "https://host/any/chat/completions": "https://host/any",
}
NO_PLACES = (
    "https://user:secret@host/v1", "https://host/v1?key=secret", "ftp://host/v1", "host:8000", "http://host:port/v1",
    "http://", "",
)  # fmt: skip


def test_switches_that_it_does_not_have_are_refused(serve: Any, refused: Refused) -> None:
    _, engine = serve((200, completion()))
    for switches, words in SWITCHES:
        refused(words, engine.check, switches)


def test_places_that_are_none_are_refused(refused: Refused) -> None:
    assert {url: base_of(url) for url in PLACES} == PLACES
    for url in NO_PLACES:
        words = "holds no user, password or query" if "secret" in url else "has no URL that starts with http://"
        assert "secret" not in refused(words, Endpoint, f"{url}#reader")


def test_a_model_is_called_as_its_server_calls_it(serve: Any, refused: Refused) -> None:
    server, engine = serve((200, completion()))
    assert engine.model == "reader"
    assert Endpoint(f"{server.url}#org/reader:7b").model == "org/reader:7b"
    assert Endpoint(f"{server.url}#/models/of/reader").model == "reader"
    refused("names no model; it has one, two", Endpoint, server.url)


def test_which_key_goes_where(monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    for url, own, usual, sent in (
        ("https://host/v1", "", KEY, KEY),
        ("http://127.0.0.1:8000/v1", "", KEY, KEY),
        ("http://host/v1", "", KEY, ""),
        ("http://host/v1", f" {KEY}\n", "other", KEY),
        ("https://host/v1", "own", KEY, "own"),
    ):
        monkeypatch.setenv("SIGHTLINE_API_KEY", own)
        monkeypatch.setenv("OPENAI_API_KEY", usual)
        assert key_for(url) == sent
    monkeypatch.setenv("SIGHTLINE_API_KEY", "two words")
    assert "two words" not in refused("SIGHTLINE_API_KEY holds characters", key_for, "https://host/v1")


def test_how_long_a_server_asks_to_wait() -> None:
    waits = {"3": 3, "-1": 0, "nan": 0, "": 0, "soon": 0, "Thu, 01 Jan 1970 00:00:00 GMT": 0}
    assert {value: asked_wait(value) for value in waits} == waits
    assert 3e8 < asked_wait("Tue, 01 Jan 2080 00:00:00 GMT") < 3e9


FIELDS = ("choices", "message", "content", "logprobs", "logprob", "token", "bytes", "usage", "prompt_tokens", "refusal")
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)
)
nobody = cache(lambda: Endpoint("http://127.0.0.1:9#reader"))


@given(choice=TREES, message=TREES, logprobs=TREES, usage=TREES)
@settings(max_examples=150, database=None)
def test_whatever_comes_back_is_heard_or_refused(choice: Any, message: Any, logprobs: Any, usage: Any) -> None:
    content = {"content": [logprobs, {"logprob": -1, "token": "a", "top_logprobs": logprobs, "bytes": message}]}
    whole = {"message": {"content": message}, "logprobs": content, "finish_reason": message}
    for body in (choice, {"choices": choice}, {"choices": [choice]}, {"choices": [whole], "usage": usage}):
        with contextlib.suppress(SightlineError):
            heard = nobody()._heard(Returned(200, {}, body))
            assert isinstance(heard.text, str)
            assert heard.loss is None or math.isfinite(heard.loss)
