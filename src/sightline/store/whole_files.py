"""Files and folders that are whole or absent, with one clear line for everything that cannot be written."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress

from sightline.errors import SightlineError
from sightline.places import Place, is_remote
from sightline.places.objects import put_new, put_whole, refuse_unusable_url

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk on which there is no room."""


def write_whole(path: Place, data: bytes) -> None:
    """Writes a file so that a kill at any moment leaves either the old content or the new, never a part."""
    if is_remote(path):
        put_whole(path, data)
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except (OSError, ValueError) as error:
        with suppress(OSError, ValueError):
            temporary.unlink(missing_ok=True)
        raise SightlineError(f"cannot write {path}: {_reason(error)}") from error


def create_new(path: Place, data: bytes) -> bool:
    """Writes a file that must not exist yet, whole; False where it does. Of several that try, one succeeds."""
    if is_remote(path):
        return put_new(path, data)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        temporary.write_bytes(data)
        os.link(temporary, path)
    except FileExistsError:
        return False
    except (OSError, ValueError) as error:
        raise SightlineError(f"cannot write {path}: {_reason(error)}") from error
    finally:
        with suppress(OSError, ValueError):
            temporary.unlink(missing_ok=True)
    return True


def make_folder(path: Place) -> None:
    """Makes a folder and those above it, or says in one line why there can be none. A store has no folders to make."""
    if is_remote(path):
        return
    refuse_unusable_place(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise SightlineError(f"cannot make folder {path}: {_reason(error)}") from error


def refuse_unusable_place(path: Place) -> None:
    """Refuses a path that cannot become a folder to write to, without touching anything: a file, something below a
    file, a link to nothing, a place that may not be written to."""
    if is_remote(path):
        refuse_unusable_url(path)
        return
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
