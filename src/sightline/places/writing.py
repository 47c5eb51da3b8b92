"""Files and folders that are whole or absent, with one clear line for everything that cannot be written."""

from __future__ import annotations

import errno
import itertools
import os
import re
import shutil
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from sightline.errors import SightlineError
from sightline.places.listing import (
    Place,
    cannot_create_once,
    is_remote,
    put_absent,
    put_new,
    put_whole,
    refuse_unusable_url,
)

STANDARD_OUTPUT = "-"
"""What stands for it among names of files."""
NO_FILES = {
    stat.S_IFDIR: "a folder", stat.S_IFCHR: "a device", stat.S_IFBLK: "a block device", stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}  # fmt: skip
"""What may stand under a name that is not a file."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk on which there is no room."""
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
"""Errors of a file system on which a file cannot have a second name."""
PROCESSES = Path("/proc")
_COUNT = itertools.count()
_set_aside: TextIO | None = None
"""Standard output, while all but ``-`` goes elsewhere."""


def write_whole(path: Place, data: bytes, *, make_parent: bool = False) -> None:
    """Writes a file so that a kill at any moment leaves either the old content or the new, never a part."""
    with whole_file(path, make_parent=make_parent) as handle:
        handle.write(data)


@contextmanager
def whole_file(path: Place, *, make_parent: bool = False) -> Iterator[BinaryIO]:
    """The same for content that is made bit by bit: a file to write to and to read back, which gets its name when all
    went well. An object is put at the end, from memory.

    What is no file is never replaced by one: a terminal, another character device or a pipe is written to as it is, so
    is what standard output goes to already, ``-`` is standard output itself, and all else is refused. A link stays, and
    the file at its end is what is replaced.
    """
    if is_remote(path):
        content = BytesIO()
        yield content
        put_whole(path, content.getvalue())
        return
    if _is_output(path):  # whoever reads it may go away, which is no error of the file
        output = _output_bytes()
        yield output
        output.flush()
        return
    with _told(path):
        through = _written_through(path)
    if through is None:
        with whole_path(path, make_parent=make_parent) as temporary, create_anew(temporary) as handle:
            yield handle
        return
    with _told(path), through as handle:
        yield handle
        handle.flush()


@contextmanager
def whole_path(path: Path, *, make_parent: bool = False) -> Iterator[Path]:
    """For whoever writes by name alone: a temporary path beside a file, whose content is the file's when all went
    well. Nothing of it is left otherwise."""
    with _told(path):
        if make_parent:
            path.parent.mkdir(parents=True, exist_ok=True)
        end = Path(os.path.realpath(path)) if path.is_symlink() else path
        temporary = _temporary(end)
        try:
            yield temporary
            with open(temporary, "rb") as written:
                os.fsync(written.fileno())
            os.replace(temporary, end)
        finally:
            with suppress(OSError, ValueError):
                temporary.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """A folder to fill, beside ``path`` and named so when all went well; nothing of it is left otherwise.

    A folder of that name must be empty by then, unless the new one is to ``replace`` it. What kills left of earlier
    tries is removed first.
    """
    with _told(path):
        for left in path.parent.iterdir():
            if left.name.startswith(f".{path.name}.") and _left_by_the_dead(left.name):
                shutil.rmtree(left, ignore_errors=True)
        temporary = _temporary(path)
        temporary.mkdir()
        try:
            yield temporary
            if replace:
                shutil.rmtree(path, ignore_errors=True)
            elif path.exists():
                path.rmdir()
            os.rename(temporary, path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def append(path: Path, data: bytes) -> None:
    """Adds to the end of a file; to what is no file as ``whole_file`` does."""
    if _is_output(path):
        _output_bytes().write(data)
        return
    with _told(path), _written_through(path) or open(path, "ab") as handle:
        handle.write(data)


FORMATS = {".csv", ".tsv", ".json", ".jsonl", ".parquet", ".md", ".html", ".xml", ".yaml", ".npz"}
"""Endings of names that promise something about what is in the file."""


def refuse_other_ending(path: Path, *endings: str) -> None:
    """Refuses a name that ends like another format than is written; ``.gz`` may follow."""
    ending = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if ending in FORMATS - set(endings):
        raise SightlineError(f"{path}: what is written there is not {ending}; end the name in {' or '.join(endings)}")


def is_replaced(path: Path) -> bool:
    """Whether writing again takes the place of what was written: so with files, not with what is written through."""
    with _told(path):
        return str(path) != STANDARD_OUTPUT and _kind(path) == stat.S_IFREG


def refuse_unusable_file(path: Place) -> None:
    """Refuses a path under which no file can be written, before any work and without touching anything."""
    if is_remote(path):
        refuse_unusable_url(path)
    elif str(path) != STANDARD_OUTPUT:
        with _told(path):
            _kind(path)
        refuse_unusable_place(path.parent)


def refuse_binary_on_terminal(path: Path, what: str) -> None:
    """Refuses to pour bytes that are no text on somebody's screen."""
    if str(path) == STANDARD_OUTPUT:
        shown = (_set_aside or sys.stdout).isatty()
    else:
        with _told(path):
            shown = _kind(path) == stat.S_IFCHR and _is_terminal(path)
    if shown:
        raise SightlineError(f"{what} is binary, which a terminal does not show: name a file with --out")


@contextmanager
def output_set_aside() -> Iterator[None]:
    """Within it standard output is for ``-`` alone; whatever else is said goes to standard error."""
    global _set_aside
    before, output = _set_aside, sys.stdout
    _set_aside, sys.stdout = output, sys.stderr
    try:
        yield
    finally:
        _set_aside, sys.stdout = before, output


def _output_bytes() -> BinaryIO:
    output = _set_aside or sys.stdout
    output.flush()
    if not hasattr(output, "buffer"):  # a notebook's
        raise SightlineError("standard output takes no bytes here; name a file")
    return output.buffer


def _is_output(path: Path) -> bool:
    """Whether a name is ``-``, or that of the file which standard output goes to already."""
    with suppress(OSError, ValueError):
        return str(path) == STANDARD_OUTPUT or os.path.samestat(os.stat(path), os.fstat(1))
    return False


def _kind(path: Path) -> int:
    """What stands under a name, links followed: a file or nothing yet (``S_IFREG``), a device or pipe to write to."""
    try:
        kind = stat.S_IFMT(os.stat(path).st_mode)
    except FileNotFoundError:
        if path.is_symlink():
            raise SightlineError(f"cannot write {path}: it is a link to nothing; name the file itself") from None
        return stat.S_IFREG
    if kind not in (stat.S_IFREG, stat.S_IFCHR, stat.S_IFIFO):
        raise SightlineError(f"cannot write {path}: it is {NO_FILES.get(kind, 'no file')}; name a file")
    return kind


def _written_through(path: Path) -> BinaryIO | None:
    """Open for writing what is never replaced; None for a file."""
    if _kind(path) == stat.S_IFREG:
        return None
    try:
        handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise SightlineError(f"cannot write {path}: nobody reads from this pipe; start its reader first") from None
        raise
    os.set_blocking(handle, True)  # a reader may be slow
    return os.fdopen(handle, "wb")


def _is_terminal(path: Path) -> bool:
    handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        return os.isatty(handle)
    finally:
        os.close(handle)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What a disk says, in one line that names the file."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise SightlineError(f"cannot write {path}: {_reason(error)}") from error


def create_new(path: Place, data: bytes) -> bool:
    """Writes a file that must not exist yet, whole; False where it does. Of several processes that try, one succeeds.

    Where the file system has no links the file is made empty first: another process may see it before its content. A
    store that only looks first is for one process alone.
    """
    if is_remote(path):
        return put_absent(path, data) if cannot_create_once(path) else put_new(path, data)
    temporary = _temporary(path)
    try:
        temporary.unlink(missing_ok=True)
        _write_flushed(temporary, data, "xb")
        try:
            os.link(temporary, path)
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
    for place, folders, files in os.walk(folder):  # what others remove meanwhile it passes over
        for name in (*folders, *files):
            if _left_by_the_dead(name) or (alone and re.fullmatch(r"\..*\.tmp", name)):
                Path(place, name).unlink(missing_ok=True)


def _left_by_the_dead(name: str) -> bool:
    """Whether a name was given by ``_temporary``, in a process of this machine that is no more."""
    owner = re.fullmatch(r"\..+\.([0-9a-f]+-\d+-\d*)-\d+\.tmp", name)
    return owner is not None and of_a_dead_process(owner[1])


def _temporary(path: Path) -> Path:
    """A name beside a file that no other process, thread or machine writes to, and that tells whose it is."""
    return path.with_name(f".{path.name}.{this_process().token}-{next(_COUNT)}.tmp")


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
        raise SightlineError(folder_gone(root))
    make_folder(path)


def folder_gone(root: Place) -> str:
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
    if str(path) == STANDARD_OUTPUT:
        raise SightlineError("cannot write to -: several files are written, so name a folder with --out")
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
    """In a few words, with the way out where there is one."""
    if isinstance(error, ValueError):
        return str(error)
    way_out = ""
    if error.errno in FULL:
        way_out = "; what is finished is kept, free some space and run the same command again"
    elif error.errno == errno.ENOTEMPTY:
        way_out = "; name another folder"
    return f"{error.strerror or error}{way_out}"


# Which process holds something, told so that others on the same machine can see whether it still lives: names of
# temporary files end in it, and leases of run folders say it.


@dataclass(frozen=True)
class Holder:
    """One process of one boot of one machine; a number that is given to another process later is not taken for it."""

    host: str
    boot: str
    """A digest of the boot and of the namespace of process ids: within one, the same number is the same process."""
    pid: int
    started: str
    """The process' start on the kernel's clock; "" where the system does not tell."""

    @property
    def token(self) -> str:
        """A short name for file names, of no other process anywhere."""
        return f"{self.boot[:8]}-{self.pid}-{self.started}"

    def lives(self) -> bool | None:
        """Whether the process is there; None for one of another machine, which cannot be asked."""
        if (self.host, self.boot) != (this_process().host, this_process().boot):
            return None
        if PROCESSES.is_dir():
            return _started(self.pid) == self.started
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except OSError:  # there, and somebody else's
            pass
        return True

    def as_record(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def this_process() -> Holder:
    """This process."""
    return _holder(os.getpid())


@cache
def _holder(pid: int) -> Holder:
    return Holder(socket.gethostname(), _boot(), pid, _started(pid) or "")


def holder_of(record: Any) -> Holder | None:
    """What ``as_record`` wrote; None for anything else."""
    try:
        return Holder(str(record["host"]), str(record["boot"]), int(record["pid"]), str(record["started"]))
    except (KeyError, TypeError, ValueError):
        return None


def of_a_dead_process(token: str) -> bool:
    """Whether a token names a process of this machine and boot that is no more."""
    boot, _, rest = token.partition("-")
    pid, _, started = rest.partition("-")
    if boot != this_process().boot[:8] or not pid.isdigit() or not PROCESSES.is_dir():
        return False
    return _started(int(pid)) != started


@cache
def _boot() -> str:
    """Containers share a kernel and may share a name, but not the numbers of their processes."""
    try:
        boot = (PROCESSES / "sys/kernel/random/boot_id").read_text(encoding="ascii")
        space = os.readlink(PROCESSES / "self/ns/pid")
    except OSError:
        boot, space = socket.gethostname(), ""
    return sha256(f"{boot}{space}".encode()).hexdigest()[:16]


def _started(pid: int) -> str | None:
    """The start of a living process; None when there is none, or only what its parent has not collected yet."""
    try:
        line = (PROCESSES / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    state, *fields = line.rpartition(")")[2].split()
    return None if state in "ZX" else fields[18]
