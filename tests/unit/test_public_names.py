"""The names at the package root are what they say, however often they are asked for."""

from __future__ import annotations

import sightline
from tests.warm_python import run_python


def test_a_name_stays_itself_when_its_home_has_been_imported() -> None:
    code = (
        "import sightline\n"
        "first = {name: getattr(sightline, name) for name in sightline.__all__}\n"
        "assert all(getattr(sightline, name) is value for name, value in first.items())\n"
        "assert callable(sightline.audit)\n"
    )
    done = run_python(["-c", code])
    assert done.returncode == 0, done.stderr


def test_the_names_are_listed() -> None:
    assert {"audit", "load_run", "SELECTORS", "Selector", "AuditConfig"} <= set(dir(sightline))
    assert sorted(sightline.__all__) == sorted(set(dir(sightline)) - {"__version__"})
