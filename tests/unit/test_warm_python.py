"""Forks that stand in for new Python processes differ from them in what is imported, and in nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.warm_python import run_python

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
    paths = os.pathsep.join([str(tmp_path), str(REPOSITORY / "src")])
    environment = {**os.environ, "PYTHONPATH": paths, "WORD": "mine"}
    new = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    fork = run_python(words, cwd=tmp_path, env=environment)
    assert (fork.returncode, fork.stdout, fork.stderr) == (new.returncode, new.stdout, new.stderr)


def test_what_one_fork_imports_and_changes_the_next_does_not_see() -> None:
    changes = "import sightline.core.registry, sys, torch; torch.mine = 1; print('torch' in sys.modules)"
    assert run_python(["-c", changes]).stdout == "True\n"
    looks = "import sys, torch; print(hasattr(torch, 'mine'), 'sightline' in sys.modules)"
    assert run_python(["-c", looks]).stdout == "False False\n"


def test_an_error_is_shown_with_its_traceback() -> None:
    done = run_python(["-c", "1 / 0"])
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_a_fork_of_a_fork_comes_from_the_same_process() -> None:
    asks = "import os; from tests.warm_python import run_python; print(os.environ['SIGHTLINE_TESTS_WARM_PYTHON'])\n"
    script = f"{asks}print(run_python(['-c', {asks!r}], cwd={str(REPOSITORY)!r}).stdout)"
    first, second = run_python(["-c", script], cwd=REPOSITORY).stdout.split()
    assert first == second


@pytest.mark.skipif(sys.platform != "linux", reason="forks are used on Linux only")
def test_the_process_that_forks_ends_with_whoever_started_it() -> None:
    script = (
        "import os, signal; from tests.warm_python import start\n"
        "print(start(()), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    # The process that forks holds standard output and error as well: both come to their end when it does.
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=REPOSITORY, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL
    socket = Path(done.stdout.strip())
    assert socket.name == "socket"
    assert not socket.parent.exists(), "nothing is left behind"
