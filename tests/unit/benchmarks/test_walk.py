"""How far a probe walks, held: files that a command enters, modules that serve one other alone."""

import json

from benchmarks.walk import imported_once, imports, listed

from tests.warm_python import run_python

LONGEST = {"run": 56, "task to disk": 35, "gate": 20, "report": 54, "view --bundle": 34}
"""Source files that each command enters at most."""
IMPORTED_ONCE = 40
"""Modules that one other alone imports, at most; plug-ins among them."""


def test_commands_enter_no_more_files_than_they_did() -> None:
    code = (
        "import json; from benchmarks.walk import walks\n"
        "print(); print(json.dumps({name: [*map(str, files)] for name, files in walks().items()}))"
    )
    done = run_python(["-c", code])
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert sorted(listed()) == sorted(found["run"]), "python -m benchmarks.walk --write"
    assert {name: len(files) for name, files in found.items() if len(files) > LONGEST[name]} == {}


def test_few_modules_serve_one_other_alone() -> None:
    assert len(imported_once(imports())) <= IMPORTED_ONCE
