"""Files that commands write and read: devices, pipes, sockets and links stay what they are, ``-`` is standard output,
and what need not end is not read."""

import os
import pty
import re
import select
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import typer

from sightline.cli import app
from sightline.errors import SightlineError
from tests.command_line import sightline
from tests.refusals import Refused

ROWS = "--columns probe_id,arm,correct"


@pytest.fixture(scope="module")
def commands(small_run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Commands that write one file, without the name of it; two that always print something as well."""
    first, second = (tmp_path_factory.mktemp("annotated") / f"{name}.csv" for name in ("first", "second"))
    first.write_text("probe_id,seen\n" + "".join(f"p{n},{'yes' if n % 2 else 'no'}\n" for n in range(8)))
    second.write_text(first.read_text())
    gate = ["gate", str(small_run), "--rule", "posecr(full) > 0", "--least-n", "1", "--draws", "100"]
    return {
        "rows": ["rows", str(small_run), *ROWS.split(), "--out"],
        "masks": ["masks", "export", str(small_run), "--arm", "target:0.3", "--out"],
        "agreement": ["annotate", "agreement", str(first), str(second), "--draws", "100", "--csv"],
        "junit": [*gate, "--junit"],
        "markdown": [*gate, "--markdown"],
    }


NAMES = ("rows", "masks", "agreement", "junit", "markdown")
every_command = pytest.mark.parametrize("name", NAMES)


def read_from(pipe: Path) -> tuple[threading.Thread, list[bytes]]:
    """A reader that is there before anybody writes."""
    handle, found = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), []
    os.set_blocking(handle, True)

    def read() -> None:
        select.select([handle], [], [])  # nothing to read is not the end before somebody has begun to write
        with os.fdopen(handle, "rb") as stream:
            found.append(stream.read())

    return threading.Thread(target=read), found


@every_command
def test_a_device_stays_a_device(commands: dict[str, list[str]], name: str, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    os.mknod(nothing, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    sightline(*commands[name], nothing)
    assert stat.S_ISCHR(nothing.stat().st_mode)


@every_command
def test_a_pipe_is_written_through(commands: dict[str, list[str]], name: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    sightline(*commands[name], tmp_path / "file")
    reader, found = read_from(pipe)
    reader.start()
    sightline(*commands[name], pipe)
    reader.join(10)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert _timeless(found[0]) == _timeless((tmp_path / "file").read_bytes()) != b""


def _timeless(data: bytes) -> bytes:
    return re.sub(rb'(time|timestamp)="[^"]*"', b"", data)


@pytest.mark.parametrize("name", ["rows", "markdown"])  # in a process of its own, which can be ended
def test_a_pipe_that_nobody_reads_is_one_line_and_nobody_waits(
    commands: dict[str, list[str]], name: str, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    asked = [sys.executable, "-m", "sightline", *commands[name], str(tmp_path / "pipe")]
    ended = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].endswith("nobody reads from this pipe; start its reader first")


@every_command
def test_a_link_stays_and_the_file_at_its_end_is_replaced(
    commands: dict[str, list[str]], name: str, tmp_path: Path
) -> None:
    (tmp_path / "far").mkdir()
    end, link = tmp_path / "far" / "file", tmp_path / "link"
    end.write_text("old ")
    link.symlink_to("far/file")
    sightline(*commands[name], link)
    assert link.is_symlink()
    assert end.read_text() != "old "
    assert [entry.name for entry in end.parent.iterdir()] == ["file"]


@every_command
def test_sockets_folders_and_links_to_nothing_are_refused_before_any_work(
    commands: dict[str, list[str]], name: str, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        (tmp_path / "nowhere").symlink_to("no-such-file")
        os.mknod(tmp_path / "disk", stat.S_IFBLK | 0o600, os.makedev(259, 4000))
        kinds = {"socket": "a socket", "disk": "a block device", ".": "a folder", "nowhere": "a link to nothing"}
        for place, why in kinds.items():
            with pytest.raises(SightlineError, match=why):
                sightline(*commands[name], tmp_path / place)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["disk", "nowhere", "socket"]


@every_command
def test_a_dash_is_standard_output_and_nothing_else_is_said_there(
    commands: dict[str, list[str]], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sightline(*commands[name], "file")
    printed = sightline(*commands[name], "-")
    assert _timeless(printed.stdout_bytes) == _timeless((tmp_path / "file").read_bytes())
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_what_standard_output_goes_to_already_is_added_to(commands: dict[str, list[str]], tmp_path: Path) -> None:
    script = f"echo before; {sys.executable} -m sightline {' '.join(commands['rows'])} /proc/self/fd/1"
    with open(tmp_path / "all.csv", "wb") as output:
        subprocess.run(["sh", "-c", script], stdout=output, check=True)
    lines = (tmp_path / "all.csv").read_text().splitlines()
    assert lines[:2] == ["before", "probe_id,arm,correct"]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_rows_are_written_in_the_format_that_the_name_ends_in(small_run: Path, tmp_path: Path, ending: str) -> None:
    named, asked = tmp_path / f"named.{ending}", tmp_path / "asked"
    sightline("rows", small_run, "--out", named)
    sightline("rows", small_run, "--format", ending, "--out", asked)
    assert named.read_bytes() == asked.read_bytes()


def test_rows_through_a_pipe_may_be_parquet(small_run: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.parquet")
    reader, found = read_from(tmp_path / "pipe.parquet")
    reader.start()
    sightline("rows", small_run, "--out", tmp_path / "pipe.parquet")
    reader.join(10)
    assert found[0].startswith(b"PAR1")
    assert found[0].endswith(b"PAR1")


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (["rows", "--format", "csv", "--out", "x.parquet"], "but --format is csv"),
        (["rows", "--out", "x.xlsx"], "no format ends in .xlsx"),
        (["masks", "export", "--arm", "target:0.3", "--out", "x.npz"], "end the name in .jsonl"),
        (["gate", "--rule", "posecr(full) > 0", "--junit", "x.md"], "end the name in .xml"),
        (["report", "--draws", "100", "--out", "-"], "name a folder"),
    ],
)
def test_a_name_that_ends_like_another_format_or_is_no_folders_is_refused(
    small_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused, asked: list[str], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(why, sightline, *asked, small_run)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("out", [[], ["--out", "-"], ["--out", "TERMINAL"]])
def test_parquet_is_not_poured_on_a_terminal(small_run: Path, out: list[str]) -> None:
    ours, theirs = pty.openpty()
    named = [os.ttyname(theirs) if word == "TERMINAL" else word for word in out]
    asked = [sys.executable, "-m", "sightline", "rows", str(small_run), "--format", "parquet", *named]
    ended = subprocess.run(asked, stdout=theirs, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(ours)
    os.close(theirs)
    assert ended.returncode == 2
    assert "parquet is binary" in ended.stderr


def test_every_option_that_names_a_file_to_write_says_what_a_dash_is() -> None:
    """So that a new one is not forgotten: whatever names a file to write is made by one function."""
    writes = re.compile(r"\b(to write|Write|Append|[Ff]ile for|Cost card: JSON|Table with|with every sample)\b")
    forgotten = []

    def look(command: Any, path: str) -> None:
        for name in command.list_commands(None) if hasattr(command, "commands") else ():
            look(command.get_command(None, name), f"{path} {name}")
        for option in getattr(command, "params", ()):
            says = getattr(option, "help", None) or ""
            if writes.search(says) and not re.search("older|into|- is standard output", says):
                forgotten.append(f"{path} {option.name}: {says}")

    look(typer.main.get_command(app), "sightline")
    assert forgotten == []


@pytest.mark.parametrize("kind", ["device", "pipe"])
@pytest.mark.parametrize(
    "asked",
    [
        ["verify", "GIVEN"],
        ["probes", "build", "GIVEN", "--out", "OUT"],
        ["run", "--config", "GIVEN"],
        ["report", "RUN", "--out", "OUT", "--only", "GIVEN"],
        ["gate", "RUN", "--rules", "GIVEN"],
        ["report", "--cost", "GIVEN", "--out", "OUT"],
        ["annotate", "agreement", "GIVEN", "GIVEN"],
    ],
    ids=" ".join,
)
def test_what_need_not_end_is_refused_at_once_where_a_file_is_asked_for(
    small_run: Path, tmp_path: Path, asked: list[str], kind: str
) -> None:
    given = tmp_path / "given"
    if kind == "pipe":
        os.mkfifo(given)
    else:
        os.mknod(given, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # zeros without end
    names = {"GIVEN": str(given), "RUN": str(small_run), "OUT": str(tmp_path / "out")}
    words = [names.get(word, word) for word in asked]
    with pytest.raises(SightlineError, match="a pipe or device, not a file"):
        sightline(*words)
    assert not (tmp_path / "out").exists()
