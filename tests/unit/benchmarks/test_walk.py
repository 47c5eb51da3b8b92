"""How far a probe walks, held: files that a command enters."""

from __future__ import annotations

import json

from benchmarks.walk import listed

from tests.warm_python import run_python

LONGEST = {"run": 73, "task to disk": 41, "gate": 24, "report": 55, "view --bundle": 38}
"""Source files that each command enters at most."""


def test_commands_enter_no_more_files_than_they_did() -> None:
    code = (
        "import json; from benchmarks.walk import walks\n"
        "print(); print(json.dumps({name: [*map(str, files)] for name, files in walks().items()}))"
    )
    done = run_python(["-c", code])
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert {name: len(files) for name, files in found.items() if len(files) > LONGEST[name]} == {}
    assert sorted(listed()) == sorted(found["run"]), "python -m benchmarks.walk --write"
