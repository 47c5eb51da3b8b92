"""Somebody else's package: built by pip into a folder of its own, used by processes that see that folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.warm_python import run_python


def copy_of_example(name: str, folder: Path) -> Path:
    """Building writes beside the sources, which must stay as they are."""
    source = REPOSITORY / "examples" / name
    return Path(shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.egg-info", "build", "__pycache__")))


def install(source: Path, target: Path) -> None:
    """Without network: build with the setuptools that is here, and put the result in a folder of its own."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*command, "--disable-pip-version-check", "--target", str(target), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def python_with(target: Path, *arguments: str, bare: bool = False) -> subprocess.CompletedProcess[str]:
    """``python ARGUMENTS`` where the folder's packages are installed; ``bare`` if nothing may be imported before."""
    path = os.pathsep.join(filter(None, [str(target), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    environment["SIGHTLINE_CACHE"] = str(target.parent / "cache")
    if not bare:
        return run_python(arguments, env=environment, cwd=target)
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment, cwd=target, check=False
    )


def run_with(target: Path, script: str, *, bare: bool = False) -> str:
    """What a script prints."""
    done = python_with(target, "-c", script, bare=bare)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def sightline_with(target: Path, *arguments: str, code: int = 0) -> str:
    """What ``sightline ARGUMENTS`` prints; it must end with ``code``."""
    done = python_with(target, "-m", "sightline", *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout
