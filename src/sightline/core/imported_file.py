"""Python files that register something without being an installed package: ``sightline run --import my.py``."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from sightline.errors import SightlineError
from sightline.places import read_whole

_digests: dict[str, str] = {}
"""Of the content of every imported file, by the name of its module."""


def import_files(paths: Iterable[Path]) -> dict[str, str]:
    """Runs each file, so that its decorators register what it defines; returns digests by file name.

    A file is run once per process, however often it is named.
    """
    digests: dict[str, str] = {}
    for path in paths:
        digest = _import(path)
        if digests.setdefault(path.name, digest) != digest:
            raise SightlineError(f"--import: two files are called {path.name}; rename one of the two")
    return digests


def imported_digest(kind: type) -> str | None:
    """Of the imported file that a class was defined in; None for one of a package."""
    return _digests.get(kind.__module__)


def _import(path: Path) -> str:
    try:
        digest = f"sha256:{sha256(read_whole(path)).hexdigest()}"
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise SightlineError(f"--import {path}: cannot be read: {reason}") from None
    name = f"sightline_imported_{path.stem}_{digest.removeprefix('sha256:')[:12]}"
    if name in _digests:
        return digest
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SightlineError(f"--import {path}: it is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _digests[name] = digest
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever somebody's file does
        del sys.modules[name], _digests[name]
        if isinstance(error, SightlineError):
            raise SightlineError(f"--import {path}: {error}") from error
        said = str(error).strip().splitlines()
        reason = f"{type(error).__name__}: {said[0]}" if said else type(error).__name__
        raise SightlineError(f"--import {path}: {reason}; sightline --debug shows where") from error
    return digest
