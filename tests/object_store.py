"""An S3-compatible server in a process of its own: moto's, behind a door that counts, refuses and holds requests.

``serve`` starts one and gives a ``Store`` that talks to the door. Requests go one at a time to moto, which looks before
it writes and would otherwise let two of them create the same object.
"""

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
FOREVER = 1_000_000
STATUS = {"AccessDenied": "403 Forbidden", "ConditionalRequestConflict": "409 Conflict"}


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
            "AWS_SECRET_ACCESS_KEY": "which-nobody-records",
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

    def deny(
        self, method: str, containing: str = "", after: int = 0, times: int = FOREVER, code: str = "AccessDenied"
    ) -> None:
        """From now on requests of this method, on paths that contain a text, are refused, but for the first so many."""
        self._ask(what="deny", kind=method, containing=containing, after=after, times=times, code=code)

    def hold(self, method: str, containing: str = "", after: int = 0) -> None:
        """Likewise one such request is held, and lost when ``relent`` is called."""
        self._ask(what="hold", kind=method, containing=containing, after=after, times=1, code="AccessDenied")

    def ignore_conditions(self) -> None:
        """Objects are put whether or not they may exist already, as by stores that do not know of such conditions."""
        self._ask(careless=1)

    def wait_until_held(self, given_up: Callable[[], object]) -> None:
        """Returns when a request is held; ``given_up`` is asked meanwhile and says if nobody will send it any more."""
        while not self._ask(held=1):
            reason = given_up()
            assert reason is None, reason
            time.sleep(0.02)

    def relent(self) -> None:
        """Nothing is refused, held or ignored any more."""
        self._ask(relent=1)


@contextmanager
def serve() -> Iterator[Store]:
    """A server on a free port, until the context is left."""
    command = [sys.executable, "-m", "tests.object_store"]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
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
        self.careless = False
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
        if caught is not None:
            if caught["what"] == "hold":
                self.held.set()
                self.released.wait()
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            code = caught["code"]
            start(STATUS[code], [("Content-Type", "application/xml")])
            words = "Access Denied" if code == "AccessDenied" else code
            answer = f"<Error><Code>{code}</Code><Message>{words}</Message></Error>"
            return [] if method == "HEAD" else [answer.encode()]
        if self.careless:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        with self.one:
            return list(self.app(environ, start))

    def _caught(self, kind: str, path: str) -> dict[str, Any] | None:
        """The rule that a request falls under, of which there is one at a time."""
        rule = self.rule
        if rule is None or kind != rule["kind"] or rule["containing"] not in path:
            return None
        rule["after"] -= 1
        return rule if -rule["times"] <= rule["after"] < 0 else None

    def _talk(self, asked: dict[str, str]) -> Any:
        if "count" in asked:
            with self.one:
                counts, self.counts = self.counts, Counter()
            return counts
        if "held" in asked:
            return self.held.is_set()
        self.released.set()
        self.held, self.released = threading.Event(), threading.Event()
        self.careless, self.rule = "careless" in asked, None
        if "kind" in asked:
            numbers = {name: int(asked[name]) for name in ("after", "times")}
            self.rule = {"containing": "", **asked, **numbers}  # what is empty does not arrive
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
