"""How a broken promise is said."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sightline.errors import SightlineError


def promise(kept: bool, sentence: str) -> None:
    """Raises where a promise is not kept. Not ``assert``: that is silent under ``python -O``."""
    if not kept:
        raise AssertionError(sentence)


@contextmanager
def as_promises() -> Iterator[None]:
    """What the framework itself refuses during a run is a broken promise too."""
    try:
        yield
    except SightlineError as refused:
        raise AssertionError(str(refused)) from refused
