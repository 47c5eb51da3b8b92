"""Who is let in and who is not; a server answers under the address that it says and stops in one line."""

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from sightline.errors import SightlineError
from sightline.serving.server import Address, Guard, application, file_inside, listen
from tests.runs.pages import missing

ADDRESS = Address(7447, token="right")
HERE = "http://127.0.0.1:7447"


async def echo(request: Request) -> JSONResponse:
    if request.query_params.get("fail"):
        raise SightlineError("no such thing; choose another")
    return JSONResponse({"method": request.method})


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "page.js").write_text("export {};")
    (tmp_path / "secret.txt").write_text("secret")
    app = application([Route("/echo", echo, methods=["GET", "POST"])], {"pages": tmp_path / "pages"})
    return TestClient(Guard(app, ADDRESS), base_url=HERE, follow_redirects=False)


@pytest.fixture
def inside(client: TestClient) -> TestClient:
    client.cookies.set(ADDRESS.cookie, "right", domain="127.0.0.1")
    return client


def test_a_token_becomes_a_cookie_and_without_one_nothing_is_answered(client: TestClient) -> None:
    answer = client.get("/echo?arm=full&token=right")
    assert (answer.status_code, answer.headers["location"]) == (303, "/echo?arm=full")
    cookie = answer.headers["set-cookie"]
    assert missing(cookie, "HttpOnly", "SameSite=Strict") == []
    assert client.get("/echo", headers={"cookie": cookie.split(";")[0]}).json() == {"method": "GET"}
    client.cookies.clear()
    for path in ("/echo", "/echo?token=wrong", "/echo?token=", "/pages/page.js", "/look/report.css"):
        answer = client.get(path)
        assert answer.status_code == 403, "without the token nothing is answered"
        assert "address that the command printed" in answer.text
    for cookie in (f"{ADDRESS.cookie}=wrong", "a[]={b=c; ;;"):
        assert client.get("/echo", headers={"cookie": cookie}).status_code == 403


def test_other_hosts_and_origins_are_refused_token_or_not(inside: TestClient) -> None:
    headers = {"cookie": f"{ADDRESS.cookie}=right"}
    for host in ("localhost:7447", "[::1]:7447", "127.0.0.1:7447"):
        assert inside.get("/echo", headers={**headers, "host": host}).status_code == 200, "a name of this machine"
    assert Address(80, "box.example").hosts == {"box.example:80", "box.example"}, "of one's own choice: the only one"
    for host in ("evil.example:7447", "127.0.0.1", "127.0.0.1:80", "127.0.0.1.evil.example:7447", ""):
        assert inside.get("/echo?token=right", headers={"host": host}).status_code == 403
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9999", "https://127.0.0.1:7447"):
        for method in ("GET", "POST"):
            assert inside.request(method, "/echo", headers={"origin": origin}).status_code == 403


def test_a_change_needs_an_origin_pages_may_do_little_and_look_like_reports(inside: TestClient) -> None:
    assert inside.post("/echo").status_code == 403
    assert inside.post("/echo", headers={"origin": HERE}).json() == {"method": "POST"}
    for path in ("/echo", "/pages/page.js", "/nothing"):
        policy = inside.get(path).headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
    assert "--paper" in inside.get("/look/report.css").text
    assert inside.get("/look/guard.py").status_code == 404
    answer = inside.get("/echo?fail=1")
    assert (answer.status_code, answer.json()) == (400, {"error": "no such thing; choose another"})
    assert inside.get("//evil.example/?token=right").headers["location"] in ("/evil.example/", "/")


def test_pages_end_at_their_folder_and_a_file_outside_is_no_file(inside: TestClient, tmp_path: Path) -> None:
    for path in ("/pages/../secret.txt", "/pages/%2e%2e/secret.txt", "/pages/..%2fsecret.txt"):
        answer = inside.get(path)
        assert answer.status_code == 404
        assert "secret" not in answer.text
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "linked").symlink_to(tmp_path)
    for name in ("../secret.txt", "/etc/passwd", "link.txt", "linked/secret.txt", "a\0b", "x" * 999):
        with pytest.raises(SightlineError, match="images has no file"):
            file_inside(folder, name)
    (folder / "good.txt").write_text("good")
    assert file_inside(folder, "good.txt").read_text() == "good"


# A real server.


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
