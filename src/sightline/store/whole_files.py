"""Files and folders that are whole or absent, with one clear line for everything that cannot be written."""

from __future__ import annotations

import errno
import itertools
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sightline.errors import SightlineError
from sightline.store.holders import here, of_a_dead_process

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk on which there is no room."""
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
"""Errors of a file system on which a file cannot have a second name."""
_COUNT = itertools.count()


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file so that a kill at any moment leaves either the old content or the new, never a part."""
    temporary = _temporary(path)
    try:
        _write_flushed(temporary, data, "wb")
        os.replace(temporary, path)
    except (OSError, ValueError) as error:
        with suppress(OSError, ValueError):
            temporary.unlink(missing_ok=True)
        raise SightlineError(f"cannot write {path}: {_reason(error)}") from error


def create_new(path: Path, data: bytes) -> bool:
    """Writes a file that must not exist yet, whole; False where it does. Of several processes that try, one succeeds.

    Where the file system has no links the file is made empty first: another process may see it before its content.
    """
    temporary = _temporary(path)
    try:
        _write_flushed(temporary, data, "wb")
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            _write_flushed(path, data, "xb")
    except FileExistsError:
        return False
    except (OSError, ValueError) as error:
        raise SightlineError(f"cannot write {path}: {_reason(error)}") from error
    finally:
        with suppress(OSError, ValueError):
            temporary.unlink(missing_ok=True)
    return True


def remove_leftovers(folder: Path, *, alone: bool) -> None:
    """Removes what kills left half-written: of processes known to be dead, or of all where nobody else is at work."""
    for place in entries(folder):
        if re.fullmatch(r"\..*\.tmp", place.name):
            owner = re.fullmatch(r"\..+\.([0-9a-f]+-\d+-\d*)-\d+\.tmp", place.name)
            if alone or (owner is not None and of_a_dead_process(owner[1])):
                place.unlink(missing_ok=True)


def entries(folder: Path) -> Iterator[Path]:
    """Everything below a folder; what others remove meanwhile is no error."""
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(place, name)


def _temporary(path: Path) -> Path:
    """A name beside a file that no other process, thread or machine writes to, and that tells whose it is."""
    return path.with_name(f".{path.name}.{here().token}-{next(_COUNT)}.tmp")


def _write_flushed(path: Path, data: bytes, mode: str) -> None:
    with open(path, mode) as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())


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
