"""Files and folders that are whole or absent, with one clear line for everything that cannot be written."""

from __future__ import annotations

import errno
import itertools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from sightline.errors import SightlineError
from sightline.places import Place, is_remote
from sightline.places.objects import looks_first, put_absent, put_new, put_whole, refuse_unusable_url
from sightline.store.holders import here, of_a_dead_process

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk on which there is no room."""
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
"""Errors of a file system on which a file cannot have a second name."""
_COUNT = itertools.count()


def write_whole(path: Place, data: bytes) -> None:
    """Writes a file so that a kill at any moment leaves either the old content or the new, never a part."""
    with whole_file(path) as handle:
        handle.write(data)


@contextmanager
def whole_file(path: Place) -> Iterator[BinaryIO]:
    """The same for content that is made bit by bit: a file to write to and to read back, which gets its name when all
    went well. An object is put at the end, from memory."""
    if is_remote(path):
        content = BytesIO()
        yield content
        put_whole(path, content.getvalue())
        return
    temporary = _temporary(path)
    try:
        with create_anew(temporary) as handle:
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


def create_new(path: Place, data: bytes) -> bool:
    """Writes a file that must not exist yet, whole; False where it does. Of several processes that try, one succeeds.

    Where the file system has no links the file is made empty first: another process may see it before its content. A
    store that only looks first is for one process alone.
    """
    if is_remote(path):
        return put_absent(path, data) if looks_first(path) else put_new(path, data)
    temporary = _temporary(path)
    try:
        temporary.unlink(missing_ok=True)
        _write_flushed(temporary, data, "xb")
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


def remove_leftovers(folder: Place, *, alone: bool) -> None:
    """Removes what kills left half-written: of processes known to be dead, or of all where nobody else is at work.

    A store has none: an object is put under its own name.
    """
    if is_remote(folder):
        return
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


def create_anew(path: Path) -> BinaryIO:
    """A new file, open for writing. What stands under the name already is removed, a link itself and never its end."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), "w+b")


def make_folder(path: Place) -> None:
    """Makes a folder and those above it, or says in one line why there can be none. A store has no folders to make."""
    if is_remote(path):
        return
    refuse_unusable_place(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise SightlineError(f"cannot make folder {path}: {_reason(error)}") from error


def make_within(root: Place, path: Place) -> None:
    """Makes a folder of a run that is being written: never the run folder itself, which somebody may have moved."""
    if is_remote(root):
        return
    with suppress(OSError):
        path.mkdir(exist_ok=True)
    if not root.is_dir():
        raise SightlineError(gone(root))
    make_folder(path)


def gone(root: Place) -> str:
    return (
        f"{root} is gone: it was moved or deleted while this command was writing to it; what was finished is in it, "
        "go on with --out where it is now"
    )


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
