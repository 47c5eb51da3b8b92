"""``sightline list`` names everything that can be named."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from sightline.cli import app
from sightline.commands.methods import KINDS, idea_of, registry_of
from tests.warm_python import run_python


@pytest.mark.parametrize("kind", KINDS)
def test_every_entry_of_a_kind_is_listed_with_its_idea(kind: str) -> None:
    done = CliRunner().invoke(app, ["list", kind], env={"COLUMNS": "250"})
    assert done.exit_code == 0, done.output
    entries = dict(registry_of(kind).items())
    assert entries
    for name, entry in entries.items():
        line = next(line for line in done.output.splitlines() if line.split()[:1] == [name])
        assert idea_of(entry)[:60] in line


def test_no_registry_of_the_package_is_left_out() -> None:
    code = (
        "import sys; sys.path.insert(0, 'docs')\n"
        "from registry_homes import homes\n"
        "from sightline.commands.methods import KINDS, registry_of\n"
        "missing = {home.registry.kind for home in homes()} - {registry_of(kind).kind for kind in KINDS}\n"
        "assert not missing, missing\n"
    )
    done = run_python(["-c", code])
    assert done.returncode == 0, done.stderr


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    done = CliRunner().invoke(app, ["list", "colours"])
    assert "unknown kind 'colours'; choose one of selectors" in str(done.exception)
