"""A real server: it answers under the address that it says, stops in one line, and says so where a port is taken."""

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from sightline.errors import SightlineError
from sightline.serving.server import listen

SCRIPT = """
from functools import partial
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from sightline.serving.server import application
from sightline.serving.server import serve
app = application([Route("/", lambda request: PlainTextResponse("hello"))], {})
serve(app, 0, False, say=partial(print, flush=True))
"""


def test_a_server_says_its_address_and_stops_in_one_line(tmp_path: Path) -> None:
    server = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stdout is not None
    found = re.search(r"http://127\.0\.0\.1:\d+/", line := server.stdout.readline())
    assert found, line
    assert server.stdout.readline() == "stop with Ctrl-C\n"  # as a line: communicate() does not see what is buffered
    with pytest.raises(HTTPError, match="403"):
        urlopen(found[0])
    server.send_signal(signal.SIGINT)
    output, errors = server.communicate()
    assert (server.returncode, output, errors) == (0, "stopped\n", "")


def test_a_port_that_is_taken_and_what_cannot_be_listened_on_is_one_line() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(SightlineError, match=f"port {port} is in use; choose another with --port"):
            listen("127.0.0.1", port)
    for host, port in (("0.0.0.0", 0), ("::", 0), ("no.host.invalid", 0), ("127.0.0.1", 70000)):
        with pytest.raises(SightlineError, match=r"choose others|every address") as caught:
            listen(host, port)
        assert "\n" not in str(caught.value)


def test_whoever_connects_and_does_not_finish_asking_is_hung_up_on() -> None:
    impatient = SCRIPT.replace("app =", "from sightline.serving import server; server.PATIENCE_S = 0.5\napp =")
    with subprocess.Popen([sys.executable, "-c", impatient], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = re.search(r":(\d+)/", server.stdout.readline())
        assert port
        with socket.create_connection(("127.0.0.1", int(port[1])), timeout=20) as half:
            half.sendall(b"GET / HTTP/1.1\r\nHost: 127")
            assert half.recv(100) == b"", "the server ends it"
        server.kill()
