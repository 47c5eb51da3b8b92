"""Objects of a store: read in one request, read in part, put whole, created once."""

from __future__ import annotations

import errno
import io
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO
from uuid import uuid4

from sightline.errors import SightlineError
from sightline.places.addresses import S3, Place, is_remote
from sightline.places.store_errors import StoreError, store_code, told_of

if TYPE_CHECKING:
    from upath import UPath

WHOLE_PUTS = (*S3, "memory", "gs", "gcs", "az", "abfs", "abfss")
"""Stores in which an object is whole or absent, whoever dies while it is put."""
CREATES_ONCE = (*S3, "memory")
"""Stores that are asked to create an object only where there is none. Others would look first and put then."""
TRIAL = ".created-once-"
"""How the name of an object begins that is created to see whether it can be created again."""
LINES = 4 << 20
"""Bytes of a text that are fetched at once."""
CONFLICTS = 5
"""How often creation is tried again."""
KEPT = "; what is finished is kept, run the same command again when it works"


SMALL = 64 << 20
"""Characters of a text that somebody wrote by hand: settings, rules, lists."""


def open_file(path: str | Path) -> io.BufferedReader:
    """Opens a file of this machine for reading. A device or pipe, which need not end, is an ``OSError`` at once."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a character that no name has
        raise OSError(errno.EINVAL, str(error)) from None
    kind = stat.S_IFMT(os.fstat(handle).st_mode)
    if kind != stat.S_IFREG:
        os.close(handle)
        if kind == stat.S_IFDIR:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "a pipe or device, not a file; save its content in a file first", str(path))
    return open(handle, "rb")


def read_text(path: str | Path, most: int = SMALL) -> str:
    """A small UTF-8 file, whatever ends its lines; an ``OSError`` where it is larger than anybody writes."""
    with io.TextIOWrapper(open_file(path), encoding="utf-8") as stream:
        text = stream.read(most + 1)
    if len(text) > most:
        raise OSError(errno.EFBIG, f"larger than the {most >> 20} MiB that such a file may have", str(path))
    return text


def read_whole(where: Place) -> bytes:
    """All bytes of a file, or of an object in one request."""
    if not is_remote(where):
        with open_file(where) as stream:
            return stream.read()
    with told_of(where, "read"):
        return bytes(where.fs.cat_file(where.path))


def open_ranges(where: UPath, block: int | None = None) -> IO[bytes]:
    """Opens an object so that only what is read is fetched: each read in a request, or ``block`` bytes at a time.

    On S3 all requests are about the version that was opened: an object that is replaced meanwhile is an error.
    """
    if where.protocol == "memory":  # all who open it share one place in the file
        return io.BytesIO(read_whole(where))
    with told_of(where, "read"):
        ahead: dict[str, Any] = (
            {"cache_type": "none"} if block is None else {"cache_type": "bytes", "block_size": block}
        )
        handle: IO[bytes] = where.fs.open(where.path, "rb", **ahead)
        return handle


def open_lines(where: Place) -> TextIO:
    """Opens a UTF-8 text of any size. Lines end in "\\n" alone: a text may hold other characters that end lines."""
    if not is_remote(where):
        return io.TextIOWrapper(open_file(where), encoding="utf-8", newline="\n")
    return io.TextIOWrapper(open_ranges(where, LINES), encoding="utf-8", newline="\n")


def put_whole(where: UPath, data: bytes) -> None:
    """One put: a kill at any moment leaves either the old object or the new one."""
    try:
        with told_of(where, "write"):
            where.fs.pipe_file(where.path, data)
    except FileNotFoundError as error:
        raise StoreError(f"cannot write {where}: {error}{KEPT}") from error
    except SightlineError as error:
        raise StoreError(f"{error}{KEPT}") from error


def put_new(where: UPath, data: bytes) -> bool:
    """A put that the store carries out only where there is no such object yet; False where there is one."""
    _refuse_look_first(where)
    with told_of(where, "write"):
        for attempt in range(CONFLICTS, -1, -1):
            try:
                where.fs.pipe_file(where.path, data, mode="create")
                return True
            except FileExistsError:
                return False
            except OSError as error:  # S3 could not decide between several, and wants to be asked again
                if store_code(error) != "ConditionalRequestConflict" or not attempt:
                    raise
    return False


def looks_first(where: UPath) -> bool:
    """Whether objects are whole in a store, but cannot be created only where there is none."""
    return where.protocol in WHOLE_PUTS and where.protocol not in CREATES_ONCE


def put_absent(where: UPath, data: bytes) -> bool:
    """The same for a store that looks first, and for one process: two could both find nothing, and both put."""
    with told_of(where, "read"):
        if where.fs.exists(where.path):
            return False
    put_whole(where, data)
    return True


def refuse_without_creation(folder: UPath) -> None:
    """Refuses a store on which several processes could create the same object: tried out with one that goes again."""
    trial = folder / f"{TRIAL}{uuid4().hex}"
    _refuse_look_first(trial)
    try:
        first, second = put_new(trial, b"1"), put_new(trial, b"2")
    finally:
        with suppress(Exception):
            remove(trial)
    if not first or second:
        raise SightlineError(
            f"{folder}: its store puts objects over one another although asked not to, so that processes cannot share "
            "work there; use --launcher inline or a local --out"
        )


def _refuse_look_first(where: UPath) -> None:
    if where.protocol not in CREATES_ONCE:
        raise SightlineError(
            f"{where}: processes cannot share work on {where.protocol}://, which has no creation of an object only "
            "where there is none; use --launcher inline or a local --out"
        )


def remove(where: Place) -> None:
    """Removes a file or object, if it is there."""
    if not is_remote(where):
        where.unlink(missing_ok=True)
        return
    with told_of(where, "remove"), suppress(FileNotFoundError):
        where.fs.rm_file(where.path)


def refuse_unusable_url(where: UPath) -> None:
    """Refuses a URL under which no run can be written, leaving no trace: not whole puts, no such bucket, no permission.

    On S3 an upload in parts is begun and given up: it needs the permission of a put and never becomes an object.
    """
    if where.protocol not in WHOLE_PUTS:
        raise SightlineError(
            f"cannot write to {where}: {where.protocol}:// does not promise that files appear whole; "
            "choose another --out: a local folder, s3://, gs:// or az://"
        )
    if where.protocol not in S3:
        return
    bucket, key, _ = where.fs.split_path(where.path)
    if not key:
        url = str(where).rstrip("/")
        raise SightlineError(f"cannot write to {url}: name a folder in the bucket, such as {url}/runs/first")
    trial = {"Bucket": bucket, "Key": f"{key}/.begun"}
    with told_of(where, "write to"):
        begun = where.fs.call_s3("create_multipart_upload", **trial)
        with suppress(PermissionError):  # to give it up is a permission of its own, which nothing else needs
            where.fs.call_s3("abort_multipart_upload", **trial, UploadId=begun["UploadId"])
