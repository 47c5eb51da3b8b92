"""The packages that serving needs and the rest of Sightline does not."""

from __future__ import annotations

from importlib.util import find_spec

from sightline.errors import SightlineError

NEEDED = ("starlette", "uvicorn")


def need_extra(command: str) -> None:
    """One line that names the extra, before anything is read, where it is not installed."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise SightlineError(
            f"`sightline {command}` needs {' and '.join(missing)}; install them with: pip install 'sightline[view]'"
        )
