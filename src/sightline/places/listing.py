"""Places: paths and URLs, what lies there, objects of a store, and its errors in words."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO, TypeAlias, TypeGuard
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from sightline.errors import OutageError, SightlineError, first_line

# A path or a URL, from whatever names it. Nothing of an object store is imported before a URL is met.

if TYPE_CHECKING:
    from upath import UPath

    Place: TypeAlias = Path | UPath
else:
    Place = object
    """For whoever reads annotations at runtime: anything but ``Path``, into which a URL would be forced."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_BROKEN_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/[^/]")
LOCAL = ("file", "local")
"""Schemes of paths on this machine."""
S3 = ("s3", "s3a")
_OPTIONS = {"use_listings_cache": False}
"""What others write must be seen: no listing is remembered."""
_S3_OPTIONS = {"max_concurrency": 1}
"""Else s3fs asks for the size of every object before it reads it, to fetch large ones in parts."""
EXTRA = 'pip install "sightline[remote]"'


def is_remote(where: Place) -> TypeGuard[UPath]:
    """Whether it is an object of a store, not a file of this machine."""
    return not isinstance(where, Path)


def place(where: str | Place) -> Place:
    """``Path`` of a path, ``UPath`` of a URL; both join with ``/`` and have ``name``, ``parent``, ``suffix``.

    An unknown scheme, a package that is not installed, a password in the URL and a NUL character are refused.
    """
    if "\0" in str(where):
        raise SightlineError(f"{str(where)!r} is no path: it holds a NUL character")
    if isinstance(where, Path):
        broken = _BROKEN_URL.match(str(where))
        if broken is not None and not Path(where.parts[0]).exists():
            raise SightlineError(f"{where}: Path breaks URLs; give {broken[1]}://... as text")
        return where
    if not isinstance(where, str):
        return where
    if _URL.match(where) is None:
        return Path(where)
    scheme = where.partition("://")[0].lower()
    if scheme in LOCAL:
        return Path(unquote(urlsplit(where).path))
    address = urlsplit(where)
    if address.password is not None:
        hidden = where.replace(f":{address.password}@", ":...@")
        raise SightlineError(f"{hidden}: a URL may not hold a password, which runs would record; set it elsewhere")
    return _opened(where, scheme)


def _opened(url: str, scheme: str) -> Place:
    """The URL with its store's file system at hand."""
    try:
        from fsspec.registry import get_filesystem_class, known_implementations
        from upath import UPath
    except ImportError:
        raise SightlineError(f"{url}: URLs need a package that is not installed: {EXTRA}") from None
    try:
        get_filesystem_class(scheme)
    except ImportError as error:
        known = known_implementations.get(scheme, {}).get("err") or str(error)
        raise SightlineError(f"{url}: {scheme} needs a package that is not installed: {known}") from None
    except ValueError:
        raise SightlineError(f"{url}: nobody knows the scheme {scheme}://; write a path, or s3://BUCKET/...") from None
    try:
        found = UPath(url.rstrip("/"), **_OPTIONS, **(_S3_OPTIONS if scheme in S3 else {}))
        found.fs  # noqa: B018
    except Exception as error:  # every file system refuses in its own way what it cannot make sense of
        raise SightlineError(f"{url}: {first_line(error)}") from None
    return found


# What a store says when it refuses, in one line.

_SPEAKERS = ("botocore", "aiobotocore", "boto3", "aiohttp", "fsspec", "s3fs", "gcsfs", "adlfs", "azure", "google")
"""Packages whose errors are a store's words."""
_UNREACHABLE = {
    "EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError",
    "ClientConnectorError", "HTTPClientError", "ServerDisconnectedError", "ConnectionError", "TimeoutError", "gaierror",
}  # fmt: skip
_UNKNOWN_SELF = {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "TokenRetrievalError"}


class StoreError(OutageError):
    """A store, or the way to it, failed."""


@contextmanager
def store_errors(where: Place, doing: str) -> Iterator[None]:
    """Around requests about a URL: whatever its store says becomes one line, such as ``cannot read URL: reason``.

    That something does not exist, or exists already, stays what it is: whoever asked knows better what it means. About
    a path nothing is changed.
    """
    try:
        yield
    except (FileNotFoundError, FileExistsError) as error:
        if is_remote(where) and store_code(error) == "NoSuchBucket":
            raise StoreError(f"cannot {doing} {where}: {store_reason(error)}") from error
        raise
    except Exception as error:
        of_store = isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _SPEAKERS
        if not is_remote(where) or not of_store:
            raise
        raise StoreError(f"cannot {doing} {where}: {store_reason(error)}") from error


def store_reason(error: BaseException) -> str:
    """In a few words, with the way out where there is one."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    said = (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0].rstrip(".")
    if store_code(error) == "NoSuchBucket":
        return "the bucket does not exist"
    if kinds & _UNKNOWN_SELF:
        return f"no credentials ({said}); set them in the environment, as for any other program that uses the store"
    if "PermissionError" in kinds:
        return f"no permission ({said})"
    if kinds & _UNREACHABLE:
        return f"the store cannot be reached ({said})"
    return said


def store_code(error: BaseException) -> str:
    """The store's own name of the error, where it told one."""
    answer = getattr(error.__cause__, "response", None) or {}
    return str(answer.get("Error", {}).get("Code", ""))


# What lies below a folder: of a store asked once for all files together, on a disk asked every time.

MAGIC = "*?["
NO_SUCH_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)


class Listing:
    """The files below a folder.

    A disk answers at once, so each question goes there. A store is asked for everything at the first question, a
    thousand files to a request, and again after ``refresh``; whoever writes or removes a file says so.
    """

    def __init__(self, folder: Place) -> None:
        self.folder: Any = folder

    @cached_property
    def _names(self) -> dict[str, list[str]]:
        """Folder below this one ("" is itself) -> sorted names of its files."""
        found: dict[str, list[str]] = defaultdict(list)
        root = self.folder.path.rstrip("/")
        try:
            with store_errors(self.folder, "list"):
                entries = self.folder.fs.find(self.folder.path, detail=True)
        except FileNotFoundError:
            return found
        for name, entry in entries.items():
            if entry["type"] == "file" and name.startswith(f"{root}/"):
                below, _, last = name[len(root) + 1 :].rpartition("/")
                found[below].append(last)
        for names in found.values():
            names.sort()
        return found

    def refresh(self) -> None:
        """Forgets what a store said."""
        self.__dict__.pop("_names", None)

    def has(self, file: Place) -> bool:
        if not is_remote(self.folder):
            return os.path.isfile(file)  # False too for a name that no file can have
        below, name = self._split(file)
        return _holds(self._names.get(below, []), name)

    def matching(self, pattern: str) -> list[Place]:
        """Files by a pattern of names, such as ``rows/*/00000.parquet``, sorted."""
        if not is_remote(self.folder):
            return sorted(_found(lambda: self.folder.glob(pattern)))
        below, _, last = pattern.rpartition("/")
        folders = [below]
        if _plain_length(below) < len(below):
            folders = sorted(name for name in self._names if fnmatchcase(name, below))
        return [self.folder / folder / name for folder in folders for name in self._named(folder, last)]

    def _named(self, folder: str, pattern: str) -> Iterator[str]:
        """Names of a folder that match, found by how they begin: a run has a file for every shard."""
        names, begins = self._names.get(folder, []), pattern[: _plain_length(pattern)]
        for name in names[bisect_left(names, begins) :]:
            if not name.startswith(begins):
                return
            if fnmatchcase(name, pattern):
                yield name

    def within(self, below: str) -> list[Place]:
        """Everything in one folder, in any order; nothing where there is no such folder."""
        if is_remote(self.folder):
            return [self.folder / below / name for name in self._names.get(below, [])]
        return _found((self.folder / below).iterdir)

    def everything(self) -> list[str]:
        """The names of all files, as they are called from the folder; on a disk those of links, which end in "@", and
        of folders, which end in "/", too. What others remove meanwhile is no error."""
        if not is_remote(self.folder):
            found = (Path(place, name) for place, folders, files in os.walk(self.folder) for name in (*folders, *files))
            return [
                f"{entry.relative_to(self.folder)}{'@' if entry.is_symlink() else '/' * entry.is_dir()}"
                for entry in found
            ]
        return [f"{below}/{name}".lstrip("/") for below, names in self._names.items() for name in names]

    def added(self, file: Place) -> None:
        """Notes that a file is written."""
        known = self.__dict__.get("_names")
        if known is not None:
            below, name = self._split(file)
            names = known.setdefault(below, [])
            if not _holds(names, name):
                insort(names, name)

    def removed(self, file: Place) -> None:
        """Notes that a file is gone."""
        known = self.__dict__.get("_names")
        if known is not None:
            below, name = self._split(file)
            if _holds(known.get(below, []), name):
                known[below].remove(name)

    def _split(self, file: Any) -> tuple[str, str]:
        below, _, name = file.path[len(self.folder.path.rstrip("/")) + 1 :].rpartition("/")
        return below, name


def _found(entries: Callable[[], Iterable[Path]]) -> list[Place]:
    """What a disk lists; nothing where there is no such folder."""
    try:
        return list(entries())
    except OSError as error:
        if error.errno in NO_SUCH_FOLDER:
            return []
        raise


def _holds(names: list[str], name: str) -> bool:
    at = bisect_left(names, name)
    return at < len(names) and names[at] == name


def _plain_length(pattern: str) -> int:
    """How many characters of a pattern stand for themselves."""
    return next((i for i, letter in enumerate(pattern) if letter in MAGIC), len(pattern))


# Objects of a store: read in one request, read in part, put whole, created once.

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


@contextmanager
def file_errors(said: str, way_out: str = "") -> Iterator[None]:
    """Around work on a file that somebody named: what the system says of it becomes one line, behind what is said."""
    try:
        yield
    except OSError as error:
        raise SightlineError(f"{said}: {error.strerror or error}{way_out}") from None


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
    """A small UTF-8 file, whatever ends its lines, without the mark that some editors begin it with.

    An ``OSError`` where it is larger than anybody writes.
    """
    with io.TextIOWrapper(open_file(path), encoding="utf-8-sig") as stream:
        text = stream.read(most + 1)
    if len(text) > most:
        raise OSError(errno.EFBIG, f"larger than the {most >> 20} MiB that such a file may have", str(path))
    return text


def read_whole(where: Place) -> bytes:
    """All bytes of a file, or of an object in one request."""
    if not is_remote(where):
        with open_file(where) as stream:
            return stream.read()
    with store_errors(where, "read"):
        return bytes(where.fs.cat_file(where.path))


def open_ranges(where: UPath, block: int | None = None) -> IO[bytes]:
    """Opens an object so that only what is read is fetched: each read in a request, or ``block`` bytes at a time.

    On S3 all requests are about the version that was opened: an object that is replaced meanwhile is an error.
    """
    if where.protocol == "memory":  # all who open it share one place in the file
        return io.BytesIO(read_whole(where))
    with store_errors(where, "read"):
        ahead: dict[str, Any] = {"cache_type": "none"}
        if block is not None:
            ahead = {"cache_type": "bytes", "block_size": block}
        handle: IO[bytes] = where.fs.open(where.path, "rb", **ahead)
        return handle


def open_lines(where: Place) -> TextIO:
    """Opens a UTF-8 text of any size. Lines end in "\\n" alone: a text may hold other characters that end lines."""
    stream = open_ranges(where, LINES) if is_remote(where) else open_file(where)
    return io.TextIOWrapper(stream, encoding="utf-8", newline="\n")


def put_whole(where: UPath, data: bytes) -> None:
    """One put: a kill at any moment leaves either the old object or the new one."""
    try:
        with store_errors(where, "write"):
            where.fs.pipe_file(where.path, data)
    except FileNotFoundError as error:
        raise StoreError(f"cannot write {where}: {error}{KEPT}") from error
    except SightlineError as error:
        raise StoreError(f"{error}{KEPT}") from error


def put_new(where: UPath, data: bytes) -> bool:
    """A put that the store carries out only where there is no such object yet; False where there is one."""
    _refuse_look_first(where)
    with store_errors(where, "write"):
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


def cannot_create_once(where: UPath) -> bool:
    """Whether objects are whole in a store, but cannot be created only where there is none."""
    return where.protocol in WHOLE_PUTS and where.protocol not in CREATES_ONCE


def put_absent(where: UPath, data: bytes) -> bool:
    """The same for a store that looks first, and for one process: two could both find nothing, and both put."""
    with store_errors(where, "read"):
        if where.fs.exists(where.path):
            return False
    put_whole(where, data)
    return True


def refuse_without_creation(folder: UPath) -> None:
    """Refuses a store on which several processes could create the same object: tried out with one that goes again."""
    trial = folder / f"{TRIAL}{uuid4().hex}"
    _refuse_look_first(folder)
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
    with store_errors(where, "remove"), suppress(FileNotFoundError):
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
    with store_errors(where, "write to"):
        begun = where.fs.call_s3("create_multipart_upload", **trial)
        with suppress(PermissionError):  # to give it up is a permission of its own, which nothing else needs
            where.fs.call_s3("abort_multipart_upload", **trial, UploadId=begun["UploadId"])
