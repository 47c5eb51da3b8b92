"""Open questions on disk: written and read back whole, and refused where they contradict themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.probes import lock_probes, read_probes, verify_lock, write_probes

PROBE = Probe(
    "docvqa:1", "a.png", "a", "Who sold the mill?", "open", "mill", "", ((0.1, 0.1, 0.2, 0.2), (0.3, 0.1, 0.4, 0.2)),
    answers=("Ada", "Ada", "ada l."), roles=("answer_value", "field_label"), task="docvqa", decoy="Bob",
)  # fmt: skip
ROW = {
    "id": "docvqa:1", "image": "a.png", "image_id": "a", "question": "Who sold the mill?", "label": "open",
    "target_text": "mill", "source_text": "", "regions": [[0.1, 0.1, 0.2, 0.2], [0.3, 0.1, 0.4, 0.2]],
    "answers": ["Ada", "Ada", "ada l."], "roles": ["answer_value", "field_label"], "task": "docvqa", "decoy": "Bob",
}  # fmt: skip


def test_an_open_question_is_written_and_read_back_whole(tmp_path: Path) -> None:
    written = write_probes(tmp_path / "p.jsonl", [PROBE])
    assert json.loads((tmp_path / "p.jsonl").read_text().splitlines()[1]) == ROW
    found = read_probes(tmp_path / "p.jsonl")
    assert found.probes == (PROBE,)
    assert found.digest == written.digest


@pytest.mark.parametrize("key", ["answers", "roles", "task", "decoy"])
def test_a_lock_notices_every_field_of_an_open_question(tmp_path: Path, key: str) -> None:
    path = tmp_path / "p.jsonl"
    lock_probes(path, write_probes(path, [PROBE]))
    changed: dict[str, Any] = {
        "answers": ["Ada"], "roles": ["answer_value", "context"], "task": "textvqa", "decoy": "Carl",
    }  # fmt: skip
    path.write_text('{"sightline_probes": 1}\n' + json.dumps({**ROW, key: changed[key]}))
    with pytest.raises(SightlineError, match=rf"1 changed \(docvqa:1: {key}\)"):
        verify_lock(path, read_probes(path))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"answers": []}, "label 'open' with 0 answers"),
        ({"label": "yes"}, "label 'yes' with 3 answers: open questions, and only they, have some"),
        ({"label": "maybe"}, "unknown label: label is 'maybe'"),
        ({"roles": ["answer_value"]}, "1 roles for 2 regions; give each region one, or none"),
        ({"target_text": "Ada"}, "target_text 'Ada' is not in the question; selectors must not be told the answer"),
        ({"answers": "Ada"}, "answers is 'Ada', expected a list of texts"),
        ({"answers": ["Ada", " "]}, "answers.1. is ' ', expected non-empty text"),
    ],
)
def test_a_question_that_contradicts_itself_is_refused_with_its_line(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"sightline_probes": 1}\n' + json.dumps({**ROW, **changes}))
    with pytest.raises(SightlineError, match=f"line 2: .*{says}"):
        read_probes(path)


def test_the_artifacts_layout_cannot_hold_an_open_question(tmp_path: Path) -> None:
    with pytest.raises(
        SightlineError, match="probe 'docvqa:1' is an open question, which the artifact's layout cannot"
    ):
        write_probes(tmp_path / "p.jsonl", [PROBE], layout="artifact")
