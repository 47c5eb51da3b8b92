"""Who is let in, and who is not: other hosts, other origins, no token, paths that lead outside."""

from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from sightline.errors import SightlineError
from sightline.serving.server import Address, Guard, application, file_inside
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
