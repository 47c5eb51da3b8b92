"""A path or a URL, from whatever names it. Nothing of an object store is imported before a URL is met."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeGuard
from urllib.parse import unquote, urlsplit

from sightline.errors import SightlineError

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
    if not isinstance(where, str):
        return _unbroken(where) if isinstance(where, Path) else where
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
        raise SightlineError(f"{url}: {str(error).splitlines()[0] if str(error) else type(error).__name__}") from None
    return found


def _unbroken(path: Path) -> Path:
    """A path as it is, unless it was a URL before ``Path`` took one of its slashes."""
    broken = _BROKEN_URL.match(str(path))
    if broken is not None and not Path(path.parts[0]).exists():
        raise SightlineError(f"{path}: Path breaks URLs; give {broken[1]}://... as text")
    return path
