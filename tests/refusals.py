"""Refusals are checked by what they are about; their sentences stand in one snapshot, ``tests/refusals.yaml``.

A test says ``refused("what it is about", call, *arguments)``: the call must end with a ``SightlineError`` in whose
sentence these words stand, and the whole sentence must be the one of the snapshot. After a sentence was changed on
purpose ``pytest --write-refusals FILES`` writes those of the files that ran anew, and the change shows as a diff.
"""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import __version__

from sightline.errors import SightlineError

HERE = Path(__file__).parent
SNAPSHOT = HERE / "refusals.yaml"

REGISTERED = re.compile(r"known: .*", re.DOTALL)
"""What is registered is not what a refusal is about, and another test may have added to it."""

BUCKET = re.compile(r"bucket-[0-9a-f]{12}|(?<=memory://)[0-9a-f]{32}")
PORT = re.compile(r"(?<=127\.0\.0\.1:)\d{4,5}")
"""What a test has for itself alone: another name, another port every time."""

Refused = Callable[..., str]
"""(about, call, *arguments, **options) -> the sentence."""

_written: dict[str, dict[str, str]] = {}
"""Sentences by test file and subject, met in a session that writes."""


@cache
def recorded() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = yaml.safe_load(SNAPSHOT.read_text(encoding="utf-8")) or {}
    return found


@pytest.fixture
def refused(request: pytest.FixtureRequest, tmp_path: Path) -> Refused:
    """Calls what must be refused, and holds its sentence against the snapshot."""
    file = request.path.relative_to(HERE).as_posix()
    writes = request.config.getoption("--write-refusals")

    def check(about: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> str:
        with pytest.raises(SightlineError) as caught:
            call(*arguments, **options)
        # Folders of this test and of fixtures that serve several: both lie below that of the session.
        sentence = re.sub(rf"{re.escape(str(tmp_path.parent))}/[\w-]+", "TMP", str(caught.value))
        sentence = PORT.sub("PORT", BUCKET.sub("BUCKET", sentence.replace(str(HERE.parent), "REPOSITORY")))
        assert about in sentence
        sentence = REGISTERED.sub("known: ...", sentence).replace(f"transformers {__version__}", "transformers V")
        if writes:
            _written.setdefault(file, {})[about] = sentence
        else:
            assert sentence == recorded().get(file, {}).get(about), "changed on purpose? pytest --write-refusals"
        return sentence

    return check


def write_snapshot() -> None:
    """The sentences of the files that ran in the place of those files' former ones."""
    if _written:
        merged = recorded() | {file: dict(sorted(found.items())) for file, found in _written.items()}
        whole = {file: merged[file] for file in sorted(merged) if (HERE / file).exists()}
        SNAPSHOT.write_text(yaml.safe_dump(whole, sort_keys=False, width=110, allow_unicode=True), encoding="utf-8")
