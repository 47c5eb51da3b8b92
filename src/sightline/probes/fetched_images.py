"""Images of a URL as files of this machine: fetched once and whole, kept until others need the room.

A file is named after the URL and the version of its object, so that a changed object is another file. Whoever uses one
holds a lock on it; files that nobody holds make room, least recently used first.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from uuid import uuid4

from sightline.core.cache import cache_folder
from sightline.errors import SightlineError
from sightline.places.listing import Place, StoreError, is_remote, open_ranges, place, store_errors
from sightline.places.writing import write_whole

if TYPE_CHECKING:
    from upath import UPath


try:
    import fcntl
except ImportError:  # where there are no such locks a file that is open cannot be removed either
    fcntl = None  # type: ignore[assignment]

LIMIT, USUAL_GB = "SIGHTLINE_CACHE_GB", 20.0
"""Environment variable with the most gigabytes that fetched images take, and what holds without it."""
RASTER_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Raster formats only: some of the others hand the file to external programs."""
NO_IMAGE = f"it is no image of a kind that is read ({', '.join(RASTER_FORMATS)})"
HEADER_BYTES = 32 * 1024
"""Of an image in which its header is expected: one request."""
ATTEMPTS = 10
"""How often an image is fetched that others remove before it can be held."""
ROOM, STEP = 0.9, 0.01
"""What is left of the limit when room was made; after how much of it, newly fetched, one looks whether it is time."""
VERSION = ("ETag", "etag", "VersionId", "generation", "LastModified", "last_modified", "mtime", "created")
"""What stores call that which changes with an object."""


@dataclass(frozen=True)
class HeldImage:
    """A fetched file that stays where it is until it is let go."""

    path: Path
    lock: int

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        os.close(self.lock)


def hold_image(url: UPath) -> HeldImage:
    """The object as a file of this machine, fetched if it is not there in its present version."""
    for _ in range(ATTEMPTS):
        with _opened(url) as (remote, facts):
            file = _file_of(url, facts)
            held = _held(file)
            if held is None:
                _keep(url, file, facts, _read(url, remote))
                held = _held(file)
        if held is not None:  # else somebody short of room has removed it already
            return held
    raise StoreError(f"cannot keep image {url} in {images_folder()}: there is no room; {LIMIT} gives it more")


def first_bytes(url: UPath) -> bytes:
    """How the object begins, in most cases its header; from the fetched file where there is one."""
    with _opened(url) as (remote, facts):
        file = _file_of(url, facts)
        held = _held(file)
        if held is None:
            data = _read(url, remote, HEADER_BYTES)
            if facts.get("size") == len(data):
                _keep(url, file, facts, data)
            return data
    with held as path, open(path, "rb") as local:
        return local.read(HEADER_BYTES)


@contextmanager
def _opened(url: UPath) -> Iterator[tuple[IO[bytes], Mapping[str, Any]]]:
    """The object, of which nothing has been read yet, and what the store says of it: its size, what tells versions."""
    with _existing(url):
        remote = open_ranges(url)
        facts: Mapping[str, Any] = getattr(remote, "details", None) or url.fs.info(url.path)
    with remote:
        yield remote, facts


def _read(url: UPath, remote: IO[bytes], most: int = -1) -> bytes:
    with _existing(url):
        return remote.read(most)


@contextmanager
def _existing(url: UPath) -> Iterator[None]:
    try:
        with store_errors(url, "read"):
            yield
    except FileNotFoundError:
        raise SightlineError(f"image {url} does not exist") from None


def images_folder() -> Path:
    """Where fetched images lie."""
    return cache_folder() / "images"


def _file_of(url: UPath, facts: Mapping[str, Any]) -> Path:
    """One file for one version of an object; for no other where the store does not tell versions apart."""
    told = [str(facts[name]) for name in VERSION if facts.get(name) is not None] or [uuid4().hex]
    name = sha256("\n".join([str(url), str(facts.get("size")), *told]).encode()).hexdigest()
    ending = url.suffix.lower() if re.fullmatch(r"\.[A-Za-z0-9]{1,5}", url.suffix) else ""
    return images_folder() / name[:2] / f"{name}{ending}"


def _held(file: Path) -> HeldImage | None:
    """The file under a lock that others can share; None where there is no such file."""
    try:
        lock = os.open(file, os.O_RDONLY)
    except OSError:  # whatever else is wrong is said when it is written
        return None
    if fcntl is not None:
        fcntl.flock(lock, fcntl.LOCK_SH)
    try:
        if os.path.samestat(os.fstat(lock), os.stat(file)):  # it may have been removed before it was locked
            os.utime(file)
            return HeldImage(file, lock)
    except FileNotFoundError:
        pass
    os.close(lock)
    return None


def _keep(url: UPath, file: Path, facts: Mapping[str, Any], data: bytes) -> None:
    """Writes a fetched file under another name first: whole or absent, whoever else fetches it too."""
    if facts.get("size") not in (None, len(data)):
        raise StoreError(f"cannot read {url}: {len(data)} bytes came, it has {facts['size']}; run the command again")
    most = _most_bytes()
    try:
        write_whole(file, data, make_parent=True)
    except SightlineError as error:
        raise StoreError(
            f"cannot keep image {url} in {images_folder()}: {error}; "
            f"SIGHTLINE_CACHE moves that folder, {LIMIT} limits it"
        ) from None
    if _is_time(len(data), most):
        make_room(most)


_one = threading.Lock()
_fetched = float("inf")
"""Bytes that this process fetched since it last looked through the folder, which it does not for every image."""


def _is_time(more: int, most: float) -> bool:
    global _fetched
    with _one:
        _fetched += more
        due = _fetched >= STEP * most
        _fetched = 0.0 if due else _fetched
        return due


def make_room(most: float) -> None:
    """Removes files that nobody holds, least recently used first, where all together are larger than ``most`` bytes."""
    files = []
    for file in images_folder().glob("*/*"):
        with suppress(OSError):
            facts = file.stat()
            files.append((facts.st_mtime_ns, facts.st_size, file))
    total = sum(size for _, size, _ in files)
    if total <= most:
        return
    for _, size, file in sorted(files):
        if total <= ROOM * most:
            return
        if _removed(file):
            total -= size


def _removed(file: Path) -> bool:
    """Whether nobody held the file, which is gone now."""
    try:
        lock = os.open(file, os.O_RDONLY)
    except OSError:
        return False
    try:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.unlink()
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def _most_bytes() -> float:
    text = os.environ.get(LIMIT, str(USUAL_GB))
    try:
        most = float(text) * 1e9
    except ValueError:
        most = -1.0
    if not 0 <= most < float("inf"):
        raise StoreError(f"{LIMIT}={text}: write the most gigabytes that fetched images may take, such as 20")
    return most


# File names that come from data: they must stay inside the image root.

_DRIVE = re.compile(r"^[A-Za-z]:")


def check_image_name(name: object) -> str:
    """Returns ``name`` if joining it to any root stays below that root, judged by the name alone.

    Both slashes count as separators, so that a name harmless here is harmless on every platform.
    """
    if not isinstance(name, str) or not name.strip():
        raise SightlineError(f"image name {name!r} is empty or not text")
    if "\0" in name:
        raise SightlineError(f"image name {name!r} contains a null character")
    if name[0] in "/\\" or _DRIVE.match(name):
        raise SightlineError(
            f"image name {name!r} is absolute; it must be relative to the image root (strip its prefix)"
        )
    if ".." in re.split(r"[\\/]", name):
        raise SightlineError(f"image name {name!r} leaves the image root")
    return name


def strip_image_prefix(name: str, prefix: str) -> str:
    """Removes the leading folder ``prefix``, which another machine's image root left in the name."""
    folder = prefix.rstrip("/")
    if not name.startswith(f"{folder}/"):
        raise SightlineError(f"image name {name!r} does not start with the prefix {prefix!r}")
    return name[len(folder) + 1 :].lstrip("/")


def resolve_image(root: str | Place, name: str) -> Path:
    """Joins an image name to the root. Neither the name nor a link on the way may lead out of the root.

    Below a URL the image is fetched; the file may go when others need its room, so open it at once, or use
    ``image_file``.
    """
    where = place(root)
    if is_remote(where):
        with hold_image(image_url(where, name)) as fetched:
            return fetched
    path = where / check_image_name(name)
    try:
        inside = path.resolve().is_relative_to(where.resolve())
    except (OSError, RuntimeError):  # which of the two depends on the version of Python
        raise SightlineError(f"image {name!r} is reached through links that lead in a circle") from None
    if not inside:
        raise SightlineError(f"image {name!r} is reached through a link that leaves the image root {root}")
    return path


def image_url(root: UPath, name: str) -> UPath:
    """Joins an image name to the URL of a root, which it may not leave."""
    url = root.joinpath(*check_image_name(name).split("/"))
    # A store decides for itself what a name with other signs of URLs in it means.
    if not url.path.startswith(f"{root.path.rstrip('/')}/"):
        raise SightlineError(f"image {name!r} leaves the image root {root}")
    return url
