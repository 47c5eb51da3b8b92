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

import pytest

from tests.command_line import sightline
from tests.refusals import Refused


@pytest.fixture(scope="module")
def commands(small_run: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Commands that write one file, without the name of it; two that always print something as well."""
    first, second = (tmp_path_factory.mktemp("annotated") / f"{name}.csv" for name in ("first", "second"))
    first.write_text("probe_id,seen\n" + "".join(f"p{n},{'yes' if n % 2 else 'no'}\n" for n in range(8)))
    second.write_text(first.read_text())
    gate = ["gate", str(small_run), "--rule", "posecr(full) > 0", "--least-n", "1", "--draws", "100"]
    return {
        "rows": ["rows", str(small_run), "--columns", "probe_id,arm,correct", "--out"],
        "masks": ["masks", "export", str(small_run), "--arm", "target:0.3", "--out"],
        "agreement": ["annotate", "agreement", str(first), str(second), "--draws", "100", "--csv"],
        "junit": [*gate, "--junit"],
        "markdown": [*gate, "--markdown"],
    }


def read_from(pipe: Path) -> tuple[threading.Thread, list[bytes]]:
    """A reader that is there before anybody writes."""
    os.mkfifo(pipe)
    handle, found = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), []
    os.set_blocking(handle, True)

    def read() -> None:
        select.select([handle], [], [])  # nothing to read is not the end before somebody has begun to write
        with os.fdopen(handle, "rb") as stream:
            found.append(stream.read())

    reader = threading.Thread(target=read)
    reader.start()
    return reader, found


def timeless(data: bytes) -> bytes:
    return re.sub(rb'(time|timestamp)="[^"]*"', b"", data)


every_command = pytest.mark.parametrize("name", ["rows", "masks", "agreement", "junit", "markdown"])


@every_command
def test_devices_and_pipes_are_written_through_and_a_dash_is_standard_output(
    commands: dict[str, list[str]], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    sightline(*commands[name], "file")
    written = timeless(Path("file").read_bytes())
    printed = sightline(*commands[name], "-")
    assert timeless(printed.stdout_bytes) == written != b"", "and nothing else is said there"
    assert os.listdir() == ["file"]

    os.mknod(tmp_path / "nothing", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    sightline(*commands[name], tmp_path / "nothing")
    assert stat.S_ISCHR((tmp_path / "nothing").stat().st_mode)
    reader, found = read_from(tmp_path / "pipe")
    sightline(*commands[name], tmp_path / "pipe")
    reader.join(10)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert timeless(found[0]) == written


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
    former = b"old " if name == "markdown" else b""  # which is added to what is there
    sightline(*commands[name], tmp_path / "plain")
    assert timeless(end.read_bytes()) == former + timeless((tmp_path / "plain").read_bytes())
    assert os.listdir(end.parent) == ["file"]


@every_command
def test_sockets_folders_and_links_to_nothing_are_refused_before_any_work(
    commands: dict[str, list[str]], name: str, tmp_path: Path, refused: Refused
) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        (tmp_path / "nowhere").symlink_to("no-such-file")
        os.mknod(tmp_path / "disk", stat.S_IFBLK | 0o600, os.makedev(259, 4000))
        kinds = {"socket": "a socket", "disk": "a block device", ".": "a folder", "nowhere": "a link to nothing"}
        for place, why in kinds.items():
            refused(why, sightline, *commands[name], tmp_path / place)
    assert sorted(os.listdir(tmp_path)) == ["disk", "nowhere", "socket"]


def test_a_pipe_that_nobody_reads_is_not_waited_for(commands: dict[str, list[str]], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("rows", "markdown"):  # in a process of its own, which can be ended
        asked = [sys.executable, "-m", "sightline", *commands[name], str(tmp_path / "pipe")]
        ended = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 2
        assert ended.stderr.splitlines()[-1].endswith("nobody reads from this pipe; start its reader first")


def test_what_standard_output_goes_to_already_is_added_to(commands: dict[str, list[str]], tmp_path: Path) -> None:
    script = f"echo before; {sys.executable} -m sightline {' '.join(commands['rows'])} /proc/self/fd/1"
    with open(tmp_path / "all.csv", "wb") as output:
        subprocess.run(["sh", "-c", script], stdout=output, check=True)
    lines = (tmp_path / "all.csv").read_text().splitlines()
    assert lines[:2] == ["before", "probe_id,arm,correct"]


def test_rows_have_the_format_that_the_name_ends_in_through_a_pipe_too(small_run: Path, tmp_path: Path) -> None:
    for ending in ("csv", "jsonl", "parquet"):
        named, asked = tmp_path / f"named.{ending}", tmp_path / "asked"
        sightline("rows", small_run, "--out", named)
        sightline("rows", small_run, "--format", ending, "--out", asked)
        assert named.read_bytes() == asked.read_bytes()
    reader, found = read_from(tmp_path / "pipe.parquet")
    sightline("rows", small_run, "--out", tmp_path / "pipe.parquet")
    reader.join(10)
    assert (found[0][:4], found[0][-4:]) == (b"PAR1", b"PAR1")


def test_a_name_that_ends_like_another_format_or_is_no_folders_is_refused(
    small_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.chdir(tmp_path)
    for asked, why in (
        (["rows", "--format", "csv", "--out", "x.parquet"], "but --format is csv"),
        (["rows", "--out", "x.xlsx"], "no format ends in .xlsx"),
        (["masks", "export", "--arm", "target:0.3", "--out", "x.npz"], "end the name in .jsonl"),
        (["gate", "--rule", "posecr(full) > 0", "--junit", "x.md"], "end the name in .xml"),
        (["report", "--draws", "100", "--out", "-"], "name a folder"),
    ):
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


@pytest.mark.parametrize("kind", ["device", "pipe"])
def test_what_need_not_end_is_refused_where_a_file_is_asked_for(
    small_run: Path, tmp_path: Path, kind: str, refused: Refused
) -> None:
    given, out = tmp_path / "given", tmp_path / "out"
    if kind == "pipe":
        os.mkfifo(given)
    else:
        os.mknod(given, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # zeros without end
    for about, asked in (
        ("given: cannot be read", ["verify", given]),
        ("given: cannot be read", ["probes", "build", given, "--out", out]),
        ("cannot read config", ["run", "--config", given]),
        ("cannot read the probe list", ["report", small_run, "--out", out, "--only", given]),
        ("cannot read the rules in", ["gate", small_run, "--rules", given]),
        ("cannot read cost card", ["report", "--cost", given, "--out", out]),
        ("cannot read TMP/given", ["annotate", "agreement", given, given]),
    ):
        assert "a pipe or device, not a file" in refused(about, sightline, *asked)
        assert not out.exists(), asked
