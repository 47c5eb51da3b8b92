"""Forks that stand in for new Python processes differ from them in what is imported, and in nothing else."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.warm_python import SOURCES, Popen, run_python, warm_children

SHOWS_ITSELF = """
import dataclasses, os, sys
@dataclasses.dataclass
class Defined:
    value: "int" = 1
print(sys.argv, os.getcwd(), os.environ.get("WORD"), Defined(2), __name__)
print(sorted(name for name in sys.modules if name.startswith("sightline")))
"""


@pytest.mark.parametrize(
    "words",
    [
        ["-c", SHOWS_ITSELF, "--option", "a word"],
        ["-c", "import sys; print('said'); print('complained', file=sys.stderr); sys.exit(3)"],
        ["-c", "import sys; sys.exit('a sentence')"],
        ["-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"],
        ["-c", "import atexit; atexit.register(print, 'at last'); print('first')"],
        ["-c", "import elsewhere; print(elsewhere.__file__)"],
        ["-m", "elsewhere", "x"],
        ["elsewhere.py", "y"],
        ["-m", "sightline", "--version"],
    ],
)
def test_a_fork_says_and_ends_as_a_new_process_does(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text("import sys; print(__name__, sys.argv[1:], sys.path[0])", encoding="utf-8")
    paths = os.pathsep.join([str(tmp_path), *map(str, SOURCES)])
    where: dict[str, Any] = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": paths, "WORD": "mine"}}
    new = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, **where)
    fork = run_python(words, **where)
    assert (fork.returncode, fork.stdout, fork.stderr) == (new.returncode, new.stdout, new.stderr)


def test_forks_do_not_see_each_other_and_show_errors_with_tracebacks() -> None:
    changes = "import sightline.core.registry, sys, torch; torch.mine = 1; print('torch' in sys.modules)"
    assert run_python(["-c", changes]).stdout == "True\n"
    looks = "import sys, torch; print(hasattr(torch, 'mine'), 'sightline' in sys.modules)"
    assert run_python(["-c", looks]).stdout == "False False\n"
    done = run_python(["-c", "1 / 0"])
    assert done.returncode == 1
    assert re.fullmatch(r"Traceback.*\nZeroDivisionError: division by zero\n", done.stderr, re.DOTALL)
    with warm_children():
        assert subprocess.run(["echo", "said"], capture_output=True, text=True, check=True).stdout == "said\n"
        cold = [sys.executable, "-I", "-c", "import sys; print('torch' in sys.modules)"]
        assert subprocess.run(cold, capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_fork_is_a_child_and_what_it_starts_are_forks_too(tmp_path: Path) -> None:
    """All of one session, if the first is asked to lead one; a worker that is killed dies as any process does."""
    (tmp_path / "inner.py").write_text("import os, sys; sys.stdin.read(); print('torch' in sys.modules, os.getsid(0))")
    outer = (
        "import os, subprocess, sys\n"
        "made = [subprocess.Popen([sys.executable, '-m', 'inner'], stdin=-1, stdout=-1, text=True) for _ in 'ab']\n"
        "print(os.getppid(), [open(f'/proc/{each.pid}/stat').read().split()[3] for each in made])\n"
        "made[0].kill()\n"
        "print(made[0].wait(), made[1].communicate()[0], made[1].returncode, os.getpid())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    asked = Popen(
        [sys.executable, "-c", outer], stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    said = asked.communicate()[0]
    me, pid = os.getpid(), asked.pid
    assert said == f"{me} ['{pid}', '{pid}']\n-9 True {pid}\n 0 {pid}\n"
    assert asked.returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="forks are used on Linux only")
def test_the_process_that_forks_ends_with_whoever_started_it() -> None:
    script = (
        "import os, signal; from tests.warm_python import start\n"
        "start(())\n"
        "print('started', flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    # The process that forks holds standard output and error as well: both come to their end when it does.
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=REPOSITORY, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "started\n")
