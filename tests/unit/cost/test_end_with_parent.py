"""Whoever asked for a measurement is killed: the measuring process goes too, and a killed one is said in a sentence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sightline.cost import measure as measuring
from sightline.cost.benchmarks.prefill import PrefillRequest
from sightline.errors import SightlineError

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
ENDLESS = "--shape tiny-llava --random-weights --device cpu --arm full --batch 1 --execution eager --repeats 100000000"
PATIENCE = 60.0


def children(process: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def running(process: int) -> bool:
    """Whether it still does anything: one that ended and waits to be collected does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def measures(process: int) -> bool:
    """Whether the process has come as far as loading its libraries."""
    return "libtorch" in Path(f"/proc/{process}/maps").read_text()


@LINUX
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=lambda how: how.name)
def test_a_measuring_process_ends_with_whoever_asked_for_it(how: signal.Signals) -> None:
    asking = subprocess.Popen(
        [sys.executable, "-m", "sightline", "bench", "prefill", *ENDLESS.split()],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    measured: list[int] = []
    try:
        deadline = time.monotonic() + PATIENCE
        while not (measured and measures(measured[0])):
            assert time.monotonic() < deadline, "no measuring process was started"
            assert asking.poll() is None, "the command ended by itself"
            time.sleep(0.1)
            measured = children(asking.pid)
        asking.send_signal(how)
        asking.wait(PATIENCE)
        while running(measured[0]):
            assert time.monotonic() < deadline, "the measuring process outlived the command"
            time.sleep(0.1)
    finally:
        asking.kill()
        asking.wait()
        for process in measured:
            if running(process):
                os.kill(process, signal.SIGKILL)


def test_without_help_of_the_system_the_end_of_the_pipe_ends_it() -> None:
    """As on a system that cannot be asked to kill a child: the reading thread alone."""
    watching = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from sightline.cost.measure import end_with_parent; sys.platform = 'elsewhere';"
            "end_with_parent(0); print('watching', flush=True); time.sleep(600)",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watching.stdin is not None
    assert watching.stdout is not None
    try:
        assert watching.stdout.readline() == "watching\n"
        time.sleep(0.5)
        assert watching.poll() is None
        watching.stdin.close()
        assert watching.wait(PATIENCE) == 1
    finally:
        watching.kill()
        watching.wait()
        watching.stdout.close()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("SIGKILL", "killed from outside, most likely because memory ran out; use a smaller model, dtype"),
        ("SIGSEGV", "the measuring process was ended by SIGSEGV"),
    ],
)
def test_a_process_that_is_killed_is_one_sentence(how: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = measuring._run
    kills_itself = f"import os, signal; os.kill(os.getpid(), signal.{how})"
    monkeypatch.setattr(measuring, "_run", lambda _: run([sys.executable, "-c", kills_itself]))
    with pytest.raises(SightlineError, match=words) as refused:
        measuring.measure(PrefillRequest("prefill", config="tiny-llava"))
    assert "\n" not in str(refused.value)
