from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from sightline.auditing.config import AuditConfig, read_config
from sightline.errors import SightlineError
from sightline.places import is_remote, place
from tests.warm_python import run_python

PLACES = ("probes", "images", "out")


def config(**changes: Any) -> AuditConfig:
    return AuditConfig(**{"model": "m", "arms": ["full"], "device": "cpu", **dict.fromkeys(PLACES, "local"), **changes})


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("given", [str, place])
def test_a_field_takes_a_url_and_keeps_it(name: str, given: Any) -> None:
    settings = config(**{name: given("memory://b/x")})
    found = getattr(settings, name)
    assert is_remote(found)
    assert str(found) == "memory://b/x"
    assert json.loads(settings.model_dump_json())[name] == "memory://b/x"
    assert str(settings.model_dump()[name]) == "memory://b/x"
    assert getattr(pickle.loads(pickle.dumps(settings)), name) == found
    assert getattr(AuditConfig(**settings.model_dump()), name) == found


@pytest.mark.parametrize("name", PLACES)
def test_a_path_stays_a_path(name: str) -> None:
    assert getattr(config(), name) == Path("local")
    assert getattr(config(**{name: Path("a/b")}), name) == Path("a/b")
    with pytest.raises(SightlineError, match=f"^--{name}: Input is not a valid path"):
        read_config(None, {"model": "m", "arms": ["full"], **dict.fromkeys(PLACES, "local"), name: 5})


def test_a_config_file_may_name_urls(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("model: m\narms: [full]\nprobes: memory://b/p.jsonl\nimages: memory://b/i\nout: runs/first\n")
    settings = read_config(file, {"out": "memory://b/runs"})
    assert [str(getattr(settings, name)) for name in PLACES] == [
        "memory://b/p.jsonl",
        "memory://b/i",
        "memory://b/runs",
    ]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["run", "--out", "nowhere://b/x"], "error: nowhere://b/x: nobody knows the scheme nowhere://"),
        (["report", "nowhere://b/x"], "error: nowhere://b/x: nobody knows the scheme nowhere://"),
        (["rows", "memory://b/none"], "error: memory://b/none is not a run folder: it has no run.json"),
        (["gate", "runs", "memory://b/none", "--rule", "accuracy(full) >= 0"], "error: "),
    ],
)
def test_a_place_that_cannot_be_is_one_line_on_the_command_line(words: list[str], line: str) -> None:
    done = run_python(["-m", "sightline", *words])
    assert done.returncode == 2
    assert done.stderr.startswith(line)
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_help_says_that_a_url_will_do() -> None:
    done = run_python(["-m", "sightline", "run", "--help"])
    assert done.stdout.count("PATH_OR_URL") == len(PLACES)
