"""File names that come from data: they must stay inside the image root."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from sightline.errors import SightlineError
from sightline.places import Place, is_remote, place
from sightline.probes.fetched_images import hold_image

if TYPE_CHECKING:
    from upath import UPath

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


def resolve_image(root: str | Place, name: str, *, strip_prefix: str | None = None) -> Path:
    """Joins an image name to the root. Neither the name nor a link on the way may lead out of the root.

    Below a URL the image is fetched; the file may go when others need its room, so open it at once, or use
    ``image_file``.
    """
    if strip_prefix:
        name = strip_image_prefix(name, strip_prefix)
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
