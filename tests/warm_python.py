"""Python processes that start with torch and transformers imported: forks of one process that has done nothing else.

A new process spends about five seconds on such imports before it comes to what a test is about. ``run_python`` asks a
process that has them in memory for a fork, which is as new as any: Sightline itself, the packages of ``PYTHONPATH`` and
everything that is registered are imported by the fork, in the order and with the errors of a process of its own.
Forks of forks come from the same process, whose socket they find in their environment.

Where the start is itself the point (what ``--help`` imports, how a measurement begins), tests start one as users do.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from tests.kept_memory import keep_freed_memory

REPOSITORY = Path(__file__).resolve().parents[1]
ADDRESS = "SIGHTLINE_TESTS_WARM_PYTHON"
"""Environment variable with the path of the socket on which forks are asked for."""

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


def run_python(
    words: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """``python WORDS`` to its end, with what it printed; WORDS begin with ``-m MODULE``, ``-c SCRIPT`` or a file."""
    if sys.platform != "linux":  # where forks are not safe with every library
        return subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=cwd, env=env, check=False)
    address = os.environ.get(ADDRESS) or start(IMPORTED)
    environment = {**(os.environ if env is None else env), ADDRESS: address}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        request = Request(words, str(cwd or Path.cwd()), environment)
        connection.sendall(json.dumps(asdict(request)).encode() + b"\n")
        with connection.makefile(encoding="utf-8") as answer:
            code, stdout, stderr = json.loads(answer.read())
    return subprocess.CompletedProcess([sys.executable, *words], code, stdout, stderr)


@cache
def start(modules: tuple[str, ...]) -> str:
    """The socket of a process that has these modules imported and serves forks until this one ends."""
    address = str(Path(tempfile.mkdtemp(), "socket"))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTHONPATH", None)  # forks bring their own
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()  # whoever connects from now on waits until the modules are there
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.warm_python", str(listener.fileno()), *modules],
            stdin=subprocess.PIPE,
            env=environment,
            cwd=REPOSITORY,
            pass_fds=(listener.fileno(),),
        )
    assert server.stdin is not None
    atexit.register(server.wait)
    atexit.register(server.stdin.close)  # called first
    return address


def _serve(listener: socket.socket) -> Request:
    """Answers requests until whoever started this process is gone. Returns in forks, with what is asked of them."""
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass  # forks that have ended since
        if sys.stdin in ready:
            shutil.rmtree(Path(listener.getsockname()).parent)
            sys.exit()
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return _attended(connection)
        connection.close()


def _attended(connection: socket.socket) -> Request:
    """One more fork, which returns; this one waits for its end and sends its exit code and what it printed."""
    with connection.makefile(encoding="utf-8") as lines:
        request = Request(**json.loads(lines.readline()))
    printed, complained = os.memfd_create("stdout"), os.memfd_create("stderr")
    watched, held = os.pipe()  # standard input that ends with the attending process, which alone holds its other end
    pid = os.fork()
    if pid == 0:
        connection.close()
        os.close(held)
        for number, file in enumerate((watched, printed, complained)):
            os.dup2(file, number)
        return request
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    connection.sendall(json.dumps([code, _whole(printed), _whole(complained)]).encode())
    os._exit(0)


def _whole(file: int) -> str:
    os.lseek(file, 0, os.SEEK_SET)
    with open(file, encoding="utf-8", errors="replace") as text:
        return text.read()


def _become(request: Request) -> None:
    """What ``python WORDS`` does after its start. The first of this process' paths is its own folder."""
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.folder)
    paths = request.environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [request.folder, *filter(None, paths), *sys.path[1:]]
    importlib.invalidate_caches()
    first, *rest = request.words
    if first == "-m":
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


def _end(code: int) -> NoReturn:
    """As an interpreter ends, without taking apart module by module what the fork shares with others."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main(listener: int, modules: Sequence[str]) -> NoReturn:
    for module in modules:
        importlib.import_module(module)
    keep_freed_memory()
    gc.freeze()  # a collection in a fork would copy every page it looks at
    request = _serve(socket.socket(fileno=listener))
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


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
