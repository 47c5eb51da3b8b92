"""Files and folders that are whole or absent, with one clear line for everything that cannot be written."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from sightline.errors import SightlineError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk on which there is no room."""


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file so that a kill at any moment leaves either the old content or the new, never a part."""
    with whole_file(path) as handle:
        handle.write(data)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """The same for content that is too large to hold: a file to write to and to read back, which gets its name when
    all went well."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w+b") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except Exception as error:
        with suppress(OSError, ValueError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError | ValueError):
            raise SightlineError(f"cannot write {path}: {_reason(error)}") from error
        raise


def make_folder(path: Path) -> None:
    """Makes a folder and those above it, or says in one line why there can be none."""
    refuse_unusable_place(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise SightlineError(f"cannot make folder {path}: {_reason(error)}") from error


def refuse_unusable_place(path: Path) -> None:
    """Refuses a path that cannot become a folder to write to, without touching anything: a file, something below a
    file, a link to nothing, a place that may not be written to."""
    try:
        for place in (path, *path.parents):
            if place.is_symlink() and not place.exists():
                raise SightlineError(f"cannot write to {path}: {place} is a link to nothing; choose another --out")
            if place.exists():
                if not place.is_dir():
                    raise SightlineError(f"cannot write to {path}: {place} is a file; choose another --out")
                if not os.access(place, os.W_OK | os.X_OK):
                    raise SightlineError(f"cannot write to {path}: {place} is not writable; choose another --out")
                return
    except (OSError, ValueError) as error:
        raise SightlineError(f"cannot write to {path}: {_reason(error)}; choose another --out") from error


def _reason(error: OSError | ValueError) -> str:
    """In a few words, with the way out where the disk is full."""
    if isinstance(error, ValueError):
        return str(error)
    room = "; what is finished is kept, free some space and run the same command again" if error.errno in FULL else ""
    return f"{error.strerror or error}{room}"
