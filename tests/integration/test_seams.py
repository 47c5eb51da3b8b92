"""Where the work runs and what an answer is are one object each; rows do not depend on the first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from sightline.answering.scorers import SCORERS
from sightline.answering.scorers.spoken import Generation, Utterance
from sightline.auditing.audit import audit
from sightline.auditing.launchers import LAUNCHERS
from sightline.auditing.launchers.here import Inline
from sightline.auditing.shards import Task
from sightline.core.row import TIME_COLUMNS, row_schema
from sightline.errors import SightlineError
from sightline.rows.picture import TEXTS


class Backwards(Inline):
    """The last task first, each arm by itself."""

    name = "backwards"
    handed_out: ClassVar[list[str]] = []

    def run(self, folder: Any, tasks: Sequence[Task], boxes: Any) -> None:
        for task in reversed(tasks):
            for arm in reversed(task.arms):
                self.handed_out.append(f"{task.shard.index} {arm.text}")
                super().run(folder, [Task(task.shard, (arm,))], boxes)


def test_rows_do_not_depend_on_the_launcher(config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LAUNCHERS._entries, "backwards", Backwards)
    settings = {
        "arms": ["full", "target:0.3", "fastv:0.5"],
        "interventions": ["occlusion"],
        "limit": 3,
        "shard_images": 2,
    }
    here = audit(config("llava", **settings, out=tmp_path / "here")).rows
    there = audit(config("llava", **settings, out=tmp_path / "there", launcher="backwards")).rows
    assert Backwards.handed_out[0].startswith("1 ")
    assert len(set(Backwards.handed_out)) == len(Backwards.handed_out) == 2 * 9
    assert there.drop_columns(list(TIME_COLUMNS)).equals(here.drop_columns(list(TIME_COLUMNS)))


@pytest.mark.parametrize(("field", "known"), [("launcher", "inline"), ("scorer", "yes_no")])
def test_an_unknown_one_is_refused_before_any_work(config: Any, field: str, known: str) -> None:
    with pytest.raises(SightlineError, match=f"unknown {field} 'nonsense'.*{known}"):
        audit(config("llava", **{field: "nonsense"}, model="nowhere"))


def test_another_scorer_brings_its_own_columns(config: Any) -> None:
    run = audit(config("llava", arms=["full", "target:0.3", "fastv:0.5"], scorer="generation", limit=2))
    frame = run.frame()
    assert list(frame.columns) == [*row_schema(Generation.columns).names, *TEXTS]
    assert "margin" not in frame
    assert all(isinstance(text, str) for text in frame["answer"])
    assert (frame["answer_tokens"] <= 32).all()
    assert (frame["correct"] == (frame["predicted"] == frame["label"])).all()
    assert run.manifest["scorer"] == "generation"
    with pytest.raises(SightlineError, match="holds a run with scorer generation, this command has yes_no"):
        audit(config("llava", arms=["full"], limit=2))


def test_generated_words_are_read_as_yes_or_no() -> None:
    scorer = Generation()
    probe: Any = type("Asked", (), {"label": "yes"})
    said = {"Yes, it is.": "yes", '"no"': "no", "yesterday": "yesterday", "": ""}
    for text, predicted in said.items():
        judged = scorer.judge(probe, Utterance(text, 3, 0.5), "full")
        assert judged["predicted"] == predicted
        assert judged["correct"] == (predicted == "yes")


def test_every_scorer_names_and_describes_its_columns() -> None:
    for name in SCORERS:
        kind = SCORERS.get(name)
        assert kind.name == name
        assert kind.__doc__
        assert all(column.doc.endswith(".") for column in kind.columns)
        assert "accuracy" in kind.metrics
