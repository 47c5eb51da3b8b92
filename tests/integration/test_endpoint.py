"""A real server over the shipped LLaVA-form reader answers through the endpoint what the library answers by itself."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from sightline import SightlineError, load_backbone, load_run
from sightline.answering.answerer import Answerer
from sightline.answering.scorers.spoken import OpenAnswer
from sightline.arms.arm import parse_arm
from sightline.engines import Question, engine_of
from sightline.engines.openai import Endpoint
from sightline.probes.images import open_image
from sightline.probes.probe_file import read_probes
from tests.conftest import REPOSITORY

ASSETS = REPOSITORY / "src" / "sightline" / "assets"
SCENES = ASSETS / "scenes" / "confirmation"
LOGS: dict[str, Path] = {}
"""Of servers, by the place of their endpoint."""
MARKERS = 2
"""Tokens that this reader's template writes around an image."""


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """The server calls a local checkpoint by its path: from the folder above, that is a name."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log"
    words = ["serve", "reader-llava", "--device", "cpu", "--host", "127.0.0.1", "--port", str(port)]
    script = "from transformers.cli.transformers import main; main()"
    # One thread: two processes that share two cores wait for one another five times as long.
    surroundings = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "NO_PROXY": "127.0.0.1"}
    with log.open("wb") as written, pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        server = subprocess.Popen(
            [sys.executable, "-c", script, *words], cwd=ASSETS, env=surroundings, stdout=written, stderr=written
        )
        try:
            wait_for(server, f"http://127.0.0.1:{port}/health", log)
            engine = engine_of(f"openai:http://127.0.0.1:{port}#reader-llava")
            assert isinstance(engine, Endpoint)
            LOGS[engine.place] = log
            yield engine
        finally:
            server.kill()
            server.wait()


def wait_for(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=1).close()
            return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"the server did not start: {log.read_text(errors='replace')[-2000:]}")


def test_a_server_answers_what_the_library_answers(endpoint: Endpoint) -> None:
    endpoint.load()
    backbone = load_backbone(str(ASSETS / "reader-llava"), device="cpu")
    answerer, full = Answerer(backbone, OpenAnswer()), parse_arm("full")
    for probe in read_probes(SCENES / "open_probes.jsonl").probes[:4]:
        image = open_image(SCENES / "open_images", probe.image)
        encoded = backbone.encode([backbone.preprocess(image)])
        (own,) = answerer.answer(full, [probe], encoded)
        asked = Question(backbone.asked(probe.question, in_words=True), image, backbone.open_system or backbone.system)
        heard = endpoint.ask(asked)
        assert heard.text == own.values["answer"] != ""
        prompt = backbone.prompt(probe.question, in_words=True)
        assert heard.prompt_tokens == len(prompt.head) + encoded[0].full_n + len(prompt.tail)
        assert heard.tokens == own.values["answer_tokens"] + 1, "it counts the stop token"
        assert heard.cut_off is False
        text = endpoint.ask(Question(asked.text, system=asked.system, longest=1))
        assert text.cut_off is True
        assert text.prompt_tokens == heard.prompt_tokens - encoded[0].full_n - MARKERS
    assert endpoint.untold["answer_loss"] == "the server tells no log-probabilities"
    assert "sequence_pruned" not in endpoint.untold


def test_a_killed_run_goes_on_and_asks_nothing_twice(endpoint: Endpoint, tmp_path: Path) -> None:
    out = tmp_path / "run"
    asked = ["--probes", str(SCENES / "open_probes.jsonl"), "--images", str(SCENES / "open_images"), "--limit", "2"]
    arms = ["--arm", "full", "--arm", "engine:jpeg=30"]
    words = ["run", "--model", f"openai:{endpoint.place}", *asked, *arms, "--out", str(out)]
    command = [sys.executable, "-m", "sightline", *words]
    alone = {**os.environ, "SIGHTLINE_PARALLEL_REQUESTS": "1", "OMP_NUM_THREADS": "1"}
    before = asked_so_far(endpoint)
    first = subprocess.Popen(command, env=alone, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 90
        while len(kept_requests(out)) < 5 and time.monotonic() < until and first.poll() is None:
            time.sleep(0.05)
    finally:
        first.kill()
        first.wait()
    kept = kept_requests(out)
    assert 5 <= len(kept) < 18
    done = subprocess.run(command, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    every = kept_requests(out)
    assert every[: len(kept)] == kept
    assert len(set(every)) == len(every)
    rows = load_run(out).frame()
    assert rows.groupby("arm").size().to_dict() == {"full": 4, "engine:jpeg=30": 4}
    # Beside what is kept: how each of the two commands greets the server, and the one request that was under way.
    answered = asked_so_far(endpoint) - before
    print(f"killed after {len(kept)} of {len(every)} requests; {len(rows)} rows; the server answered {answered}")
    assert 0 <= answered - len(every) - 2 <= 1


def kept_requests(out: Path) -> list[str]:
    """Keys of what was answered, oldest file first; a line that was not finished counts for nothing."""
    files = sorted((out / "requests").glob("*.jsonl"), key=lambda file: file.stat().st_mtime)
    lines = [line for file in files for line in file.read_text("utf-8").splitlines(keepends=True)]
    return [json.loads(line)["key"] for line in lines if line.endswith("\n")]


def asked_so_far(endpoint: Endpoint) -> int:
    return LOGS[endpoint.place].read_text(errors="replace").count("POST /v1/chat/completions")


def test_a_real_server_says_itself_what_it_refuses(endpoint: Endpoint) -> None:
    with pytest.raises(SightlineError, match=r"422: Unexpected fields in the request: \{'mm_processor_kwargs'\}"):
        endpoint.ask(Question("What is this?", switches={"extra.mm_processor_kwargs": "{}"}))
    other = Endpoint(f"{endpoint.wire.base}#other")
    with pytest.raises(SightlineError, match="400: Server is pinned to 'reader-llava'; requested 'other'"):
        other.load()
    assert endpoint.facts()["server"] == "uvicorn"
