"""An S3-compatible server in a process of its own: moto's, behind a door that counts, refuses and holds requests.

``serve`` starts one and gives a ``Store`` that talks to the door. Requests go one at a time to moto, which looks before
it writes and would otherwise let two of them create the same object.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

REPOSITORY = Path(__file__).resolve().parents[1]
DOOR = "/-door-"
"""Path of requests that are about the server itself."""
DENIED = b'<?xml version="1.0"?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>'


@dataclass(frozen=True)
class Store:
    """A running server."""

    address: str

    @property
    def environment(self) -> dict[str, str]:
        """What s3fs and boto read to find the server."""
        return {
            "AWS_ENDPOINT_URL": self.address,
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "NO_PROXY": "127.0.0.1",
        }

    def _ask(self, **what: Any) -> Any:
        words = "&".join(f"{name}={value}" for name, value in what.items())
        with urllib.request.urlopen(f"{self.address}{DOOR}?{words}") as answer:
            return json.load(answer)

    def counted(self) -> dict[str, int]:
        """Requests since the last call, by kind: HEAD, GET, PUT, DELETE, and LIST for listings."""
        return dict(self._ask(count=1))

    def deny(self, method: str, containing: str = "", after: int = 0) -> None:
        """From now on requests of this method, on paths that contain a text, are refused, but for the first so many."""
        self._ask(deny=method, containing=containing, after=after)

    def hold(self, method: str, containing: str = "", after: int = 0) -> None:
        """Likewise the next such request is held, and lost when ``relent`` is called."""
        self._ask(hold=method, containing=containing, after=after)

    def wait_until_held(self, given_up: Callable[[], object]) -> None:
        """Returns when a request is held; ``given_up`` is asked meanwhile and says if nobody will send it any more."""
        while not self._ask(held=1):
            reason = given_up()
            assert reason is None, reason
            time.sleep(0.02)

    def relent(self) -> None:
        """Nothing is refused or held any more."""
        self._ask(relent=1)


@contextmanager
def serve() -> Iterator[Store]:
    """A server on a free port, until the context is left."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.object_store"], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, "the server did not start"
        yield Store(address)
    finally:
        process.kill()
        process.wait()


class Door:
    """What stands in front of moto."""

    def __init__(self, app: Callable[..., Iterable[bytes]]) -> None:
        self.app, self.counts, self.one = app, Counter[str](), threading.Lock()
        self.rule: dict[str, Any] | None = None
        self.held, self.released = threading.Event(), threading.Event()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        asked = {name: values[0] for name, values in parse_qs(environ.get("QUERY_STRING", "")).items()}
        if environ["PATH_INFO"] == DOOR:
            start("200 OK", [("Content-Type", "application/json")])
            return [json.dumps(self._talk(asked)).encode()]
        method = environ["REQUEST_METHOD"]
        kind = "LIST" if method == "GET" and "list-type" in asked else method
        with self.one:
            self.counts[kind] += 1
            caught = self._caught(kind, environ["PATH_INFO"])
        if caught == "hold":
            self.held.set()
            self.released.wait()
        if caught:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start("403 Forbidden", [("Content-Type", "application/xml")])
            return [] if method == "HEAD" else [DENIED]
        with self.one:
            return list(self.app(environ, start))

    def _caught(self, kind: str, path: str) -> str | None:
        rule = self.rule
        if rule is None or kind != rule["kind"] or rule["containing"] not in path:
            return None
        rule["after"] -= 1
        if rule["after"] >= 0 or (rule["what"] == "hold" and self.held.is_set()):
            return None
        return str(rule["what"])

    def _talk(self, asked: dict[str, str]) -> Any:
        if "count" in asked:
            with self.one:
                counts, self.counts = self.counts, Counter()
            return counts
        if "held" in asked:
            return self.held.is_set()
        self.released.set()
        self.held, self.released, self.rule = threading.Event(), threading.Event(), None
        for what in ("deny", "hold"):
            if what in asked:
                containing, after = asked.get("containing", ""), int(asked["after"])
                self.rule = {"what": what, "kind": asked[what], "containing": containing, "after": after}
        return None


def main() -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log(self, type: str, message: str, *args: Any) -> None:
            pass

    app = Door(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
