"""Benchmarks whose measuring processes are forks with torch imported, for tests of what is made of a measurement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sightline.cost import measure
from tests.warm_python import run_python


@contextmanager
def warm_measuring() -> Iterator[None]:
    """Still a process per measurement. ``tests/unit/cost/test_measure.py`` starts one as users do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "_run", lambda command: run_python(command[1:]))
        yield
