"""Python processes that start with torch and transformers imported: forks of one process that has done nothing else.

A new process spends about five seconds on such imports before it comes to what a test is about. ``Popen`` asks a
process that has them in memory, the nursery, for a fork, which is as new as any: Sightline itself, the packages of
``PYTHONPATH`` and everything that is registered are imported by the fork, in the order and with the errors of a process
of its own. It is a child of whoever asked, so that all that one does with processes is done to it: signals, sessions,
waiting. Each fork has a nursery of its own, from before it became anything, for the Python processes that it starts.

Where the start is itself the point (what ``--help`` imports, how a measurement begins), tests start one as users do.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn
from unittest.mock import patch

from tests.kept_memory import keep_freed_memory

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCES = (REPOSITORY / "src", REPOSITORY / "packages")
"""Folders below which the packages lie."""
PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 15, 36
"""Operations of Linux' ``prctl``."""
LONGEST_NAME = 15
"""Bytes that Linux keeps of a process' name."""
_NUMBER = struct.Struct("!q")

IMPORTED = (
    "numpy", "pandas", "PIL.Image", "PIL.ImageDraw", "pyarrow.dataset", "pyarrow.parquet", "pydantic", "rich.progress",
    "scipy.optimize", "scipy.stats", "tokenizers", "torch", "torch._inductor.compile_fx", "typer", "yaml",
    "transformers.models.auto.modeling_auto", "transformers.models.auto.processing_auto",
    "transformers.models.clip.image_processing_pil_clip", "transformers.models.clip.modeling_clip",
    "transformers.models.got_ocr2.image_processing_pil_got_ocr2", "transformers.models.internvl.modeling_internvl",
    "transformers.models.llama.modeling_llama", "transformers.models.llava.modeling_llava",
    "transformers.models.qwen2.tokenization_qwen2", "transformers.models.qwen2_vl.image_processing_pil_qwen2_vl",
    "transformers.models.qwen3.modeling_qwen3", "transformers.models.qwen3_vl.modeling_qwen3_vl",
)  # fmt: skip
"""Other people's modules that a fork finds imported. Nothing of Sightline's: its imports are part of what is tested."""


@dataclass(frozen=True)
class Request:
    """What a fork is to become: ``python WORDS`` in a folder, with an environment."""

    words: Sequence[str]
    folder: str
    environment: Mapping[str, str]
    new_session: bool = False


class Nursery:
    """The near end of the line to a process that forks."""

    def __init__(self, line: socket.socket) -> None:
        self._line, self._lock = line, threading.Lock()
        _prctl(PR_SET_CHILD_SUBREAPER, 1)  # a fork, whose parent ends at once, becomes this process' child

    def fork(self, request: Request, streams: Sequence[int]) -> int:
        """The process id of a new child with these standard streams."""
        content = json.dumps(asdict(request)).encode()
        with self._lock:
            socket.send_fds(self._line, [_NUMBER.pack(len(content))], streams)
            self._line.sendall(content)
            return int(_NUMBER.unpack(_received(self._line, _NUMBER.size))[0])

    def close(self) -> None:
        """Without a line the process at its other end has no reason to be."""
        self._line.close()


_nursery: Nursery | None = None
"""Of this process."""


def nursery() -> Nursery:
    global _nursery
    if _nursery is None:
        _nursery = start(IMPORTED)
    return _nursery


def start(modules: Sequence[str]) -> Nursery:
    """A process that has these modules imported and forks until this one ends."""
    near, far = socket.socketpair()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTHONPATH", None)  # forks bring their own
    with far:
        script = "import sys; from tests.warm_python import main; main(int(sys.argv[1]), sys.argv[2:])"
        server = subprocess.Popen(
            [sys.executable, "-c", script, str(far.fileno()), *modules],
            stdin=subprocess.DEVNULL,
            env=environment,
            cwd=REPOSITORY,
            pass_fds=(far.fileno(),),
        )
    made = Nursery(near)
    atexit.register(server.wait)
    atexit.register(made.close)  # called first
    return made


class Popen(subprocess.Popen[str]):
    """``subprocess.Popen`` whose Python processes are forks, if they are started by ``-m``, ``-c`` or a file."""

    def _execute_child(
        self, args: Any, executable: Any, before: Any, close_fds: Any, pass_fds: Any, cwd: Any, env: Any, *more: Any
    ) -> None:
        is_ours = isinstance(args, list) and args[0] == sys.executable and not before and not pass_fds
        if not is_ours or sys.platform != "linux" or (args[1][:1] == "-" and args[1] not in ("-m", "-c")):
            super()._execute_child(args, executable, before, close_fds, pass_fds, cwd, env, *more)  # type: ignore[misc]
            return
        pipes, new_session = more[3:9], bool(more[14])
        streams = [own if given == -1 else given for own, given in enumerate((pipes[0], pipes[3], pipes[5]))]
        environment = dict(os.environ if env is None else env)
        request = Request([str(word) for word in args[1:]], str(cwd or Path.cwd()), environment, new_session)
        self.pid = nursery().fork(request, streams)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def run_python(
    words: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """``python WORDS`` to its end, with what it printed; WORDS begin with ``-m MODULE``, ``-c SCRIPT`` or a file."""
    watched, held = os.pipe()  # standard input that ends with this process
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as complained:
        try:
            process = Popen(
                [sys.executable, *words], stdin=watched, stdout=printed, stderr=complained, cwd=cwd, env=env
            )
            code = process.wait()
        finally:
            os.close(watched)
            os.close(held)
        return subprocess.CompletedProcess(process.args, code, _whole(printed.fileno()), _whole(complained.fileno()))


@contextlib.contextmanager
def warm_children() -> Iterator[None]:
    """Whatever Python processes this one starts meanwhile are forks."""
    with patch("subprocess.Popen", Popen):
        yield


def _whole(file: int) -> str:
    os.lseek(file, 0, os.SEEK_SET)
    with open(file, encoding="utf-8", errors="replace", closefd=False) as text:
        return text.read()


def _received(line: socket.socket, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        some = line.recv(size - len(content))
        if not some:
            raise EOFError("the process that forks is gone")
        content += some
    return bytes(content)


def _serve(line: socket.socket) -> Request:
    """Forks until whoever asks is gone. Returns in forks, with what is asked of them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; it is meant for those who work
    while True:
        size, streams, _, _ = socket.recv_fds(line, _NUMBER.size, 3)
        if not size:
            os._exit(0)
        request = Request(**json.loads(_received(line, _NUMBER.unpack(size)[0])))
        read, write = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid:
                os.write(write, _NUMBER.pack(pid))
                os._exit(0)
            for file in (read, write):
                os.close(file)
            line.close()
            for number, file in enumerate(streams):
                os.dup2(file, number)
            for file in streams:
                os.close(file)
            return request
        os.waitpid(between, 0)  # from now on the fork is a child of whoever asked
        line.sendall(os.read(read, _NUMBER.size))
        for file in (read, write, *streams):
            os.close(file)


def _leave_a_nursery() -> Request | None:
    """One more fork, which serves this process as it is now; returns None here, a request in forks of that one."""
    global _nursery
    near, far = socket.socketpair()
    pid = os.fork()
    if pid:
        far.close()
        _nursery = Nursery(near)
        atexit.register(os.waitpid, pid, 0)
        atexit.register(near.close)  # called first
        return None
    near.close()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):  # whoever reads what this process prints waits for nobody else
        os.dup2(nowhere, number)
    os.close(nowhere)
    return _serve(far)


def _prctl(operation: int, value: Any) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(operation, value, 0, 0, 0)


def _become(request: Request) -> None:
    """What ``python WORDS`` does after its start. The first of this process' paths is its own folder."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.folder)
    by_lines = bool(request.environment.get("PYTHONUNBUFFERED"))
    for number, (name, lines) in enumerate({"stdin": False, "stdout": by_lines, "stderr": True}.items()):
        vars(sys)[name] = vars(sys)[f"__{name}__"] = _stream(number, getattr(sys, name), lines)
    paths = [path for path in request.environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [request.folder, *paths, *sys.path[1:]]
    importlib.invalidate_caches()
    if any(Path(path, "sitecustomize.py").is_file() for path in paths):
        sys.modules.pop("sitecustomize", None)
        importlib.import_module("sitecustomize")
    first, *rest = request.words
    if first == "-m":
        _prctl(PR_SET_NAME, rest[0][-LONGEST_NAME:].encode())
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv, sys.path[0] = [first, *rest[1:]], ""
        sys.modules["__main__"] = script = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(script))
    else:
        sys.argv = [first, *rest]
        sys.path[0] = str(Path(first).resolve().parent)
        runpy.run_path(first, run_name="__main__")


def _stream(number: int, like: Any, by_lines: bool) -> io.TextIOWrapper:
    """A standard stream, over what is there now: those of before remember what they were opened on."""
    raw = open(number, "wb" if number else "rb", closefd=False)  # noqa: SIM115
    return io.TextIOWrapper(raw, like.encoding, like.errors, line_buffering=by_lines)


def _end(code: int) -> NoReturn:
    """As an interpreter ends, without taking apart module by module what the fork shares with others."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main(line: int, modules: Sequence[str]) -> NoReturn:
    for module in modules:
        importlib.import_module(module)
    keep_freed_memory()
    gc.freeze()  # a collection in a fork would copy every page it looks at
    asked: Request | None = _serve(socket.socket(fileno=line))
    while asked is not None:
        request = asked
        if request.new_session:
            os.setsid()
        asked = _leave_a_nursery()
    subprocess.Popen = Popen  # type: ignore[misc,assignment]
    try:
        _become(request)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        _end(end.code if isinstance(end.code, int) else 0 if end.code is None else 1)
    except BaseException:
        traceback.print_exc()
        _end(1)
    _end(0)
