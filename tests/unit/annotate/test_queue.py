"""Who is offered what: blind, never twice, a third person for what two differ about."""

from __future__ import annotations

from pathlib import Path

import pytest

from sightline.annotate.journal import ADJUDICATION, FIRST, SECOND
from sightline.annotate.tasks import TaskFolder
from sightline.annotate.work import WorkQueue, all_readings, status_lines
from sightline.errors import SightlineError
from tests.unit.annotate.sample_task import EVIDENCE, boxed, said, sample_task


@pytest.fixture
def task(tmp_path: Path) -> TaskFolder:
    return sample_task(tmp_path / "task")


def answer_all(task: TaskFolder, who: str, pass_: str, **changes: str) -> None:
    """Everything that is offered; ``item_001=decision`` for another decision."""
    queue = WorkQueue(task, who, pass_)
    for item in queue.items():
        queue.save(
            item.id, said(task.kind, changes.get(item.id.replace("-", "_"), "")), confirmed=True, supersedes=None
        )


def test_the_first_pass_offers_all_and_the_second_its_sample(task: TaskFolder) -> None:
    assert len(WorkQueue(task, "ann").items()) == 6
    second = WorkQueue(task, "bob", SECOND).items()
    assert [item.id for item in second] == [item.id for item in task.items if item.second]
    assert len(second) == 3


def test_one_person_never_reads_an_item_twice(task: TaskFolder) -> None:
    twice = next(item.id for item in task.items if item.second)
    WorkQueue(task, "ann").save(twice, said(), confirmed=True, supersedes=None)
    assert twice not in [item.id for item in WorkQueue(task, "ann", SECOND).items()]
    with pytest.raises(SightlineError, match="is not one of ann's in the second pass"):
        WorkQueue(task, "ann", SECOND).save(twice, said(), confirmed=True, supersedes=None)


def test_several_people_share_one_pass_without_colliding(task: TaskFolder) -> None:
    ann, bob = WorkQueue(task, "ann"), WorkQueue(task, "bob")
    seen = []
    for queue in (ann, bob) * 3:
        item = queue.next_item()
        assert item is not None
        task.journal.lease(item.id, FIRST, queue.who)
        queue.save(item.id, said(), confirmed=True, supersedes=None)
        seen.append(item.id)
    assert sorted(seen) == sorted(item.id for item in task.items)
    assert ann.next_item() is None
    assert ann.progress() == {"done": 3, "all": 3}


def test_an_open_item_is_skipped_by_others_until_it_is_answered(task: TaskFolder) -> None:
    opened = WorkQueue(task, "ann").next_item()
    assert opened is not None
    task.journal.lease(opened.id, FIRST, "ann")
    other = WorkQueue(task, "bob").next_item()
    assert other is not None
    assert other.id != opened.id


def test_a_draft_is_not_an_answer(task: TaskFolder) -> None:
    queue = WorkQueue(task, "ann")
    first = task.items[0].id
    entry = queue.save(first, {"qc_decision": "unclear"}, confirmed=False, supersedes=None)
    assert queue.progress()["done"] == 0
    with pytest.raises(SightlineError, match=r"'Can you read the word in the picture.' is not answered yet"):
        queue.save(first, {"qc_decision": "unclear"}, confirmed=True, supersedes=entry.number)
    queue.save(first, said(), confirmed=True, supersedes=entry.number)
    assert queue.progress()["done"] == 1


def test_a_valid_decision_stands_on_valid_answers(task: TaskFolder) -> None:
    with pytest.raises(
        SightlineError,
        match=r"you decided 'valid negative', but answered 'no' to 'Does the box enclose the word.'; change one",
    ):
        task.kind.check(said(source_bbox_matches_source_text="no"), confirmed=True)
    assert task.kind.check(said(source_bbox_matches_source_text="no"), confirmed=False)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"qc_decision": "maybe"}, "'What is this item.' is 'maybe', not one of valid_negative"),
        ({"verdict": "yes"}, "unknown field 'verdict'"),
        ({"annotator_notes": 7}, "'Notes' is not a text"),
        ({"annotator_notes": "a\x00b"}, r"'Notes' holds a character that is not to be seen, U\+0000"),
        ({"invalid_reason": "\u202eodd"}, r"'Why it is not valid' holds .*, U\+202E"),
        ([], "an answer is an object"),
    ],
)
def test_what_nobody_may_say_is_refused(task: TaskFolder, wrong: object, words: str) -> None:
    with pytest.raises(SightlineError, match=words):
        task.kind.check(wrong, confirmed=False)


@pytest.mark.parametrize(
    ("box", "words"),
    [
        ({"region": [0.5, 0.1, 0.4, 0.2], "role": "context"}, "is not x1 < x2"),
        ({"region": [0.1, 0.1, 1.4, 0.2], "role": "context"}, "within the image"),
        ({"region": [0.1, 0.1, 0.4, 0.2], "role": "title"}, "role 'title' is not one of answer_value"),
        ({"region": ["a", 0, 1, 1], "role": "context"}, "region of four numbers"),
        (7, "region of four numbers"),
    ],
)
def test_what_is_no_box_is_refused(box: object, words: str) -> None:
    with pytest.raises(SightlineError, match=words):
        EVIDENCE.check({"boxes": [box]}, confirmed=False)


def test_evidence_without_a_box_is_no_evidence() -> None:
    with pytest.raises(SightlineError, match="annotated without a box"):
        EVIDENCE.check(boxed(), confirmed=True)
    assert EVIDENCE.check(boxed(status="not_visible"), confirmed=True)["boxes"] == []


def test_only_what_two_people_differ_about_goes_to_the_third(task: TaskFolder) -> None:
    twice = [item.id for item in task.items if item.second]
    answer_all(task, "ann", FIRST)
    answer_all(task, "bob", SECOND, **{twice[1].replace("-", "_"): "unclear"})
    queue = WorkQueue(task, "carol", ADJUDICATION)
    assert [item.id for item in queue.items()] == [twice[1]]
    shown = queue.both_readings(twice[1])
    assert shown is not None
    assert {reading["qc_decision"] for reading in shown["readings"]} == {"valid_negative", "unclear"}
    assert "ann" not in str(shown)
    assert "bob" not in str(shown)
    queue.save(twice[1], said(), confirmed=True, supersedes=None)
    final = {each.item.id: each.final for each in all_readings(task)}
    assert final[twice[1]] == (said(), "adjudicated")
    assert {provenance for _, provenance in filter(None, final.values())} == {"adjudicated", "agreement", "first_only"}


@pytest.mark.parametrize("party", ["ann", "bob"])
def test_neither_of_the_two_decides_unless_told(task: TaskFolder, party: str) -> None:
    twice = next(item.id for item in task.items if item.second)
    answer_all(task, "ann", FIRST)
    answer_all(task, "bob", SECOND, **{twice.replace("-", "_"): "unclear"})
    with pytest.raises(SightlineError, match=f"{party} is one of the two who differ .* third person"):
        WorkQueue(task, party, ADJUDICATION)
    assert [item.id for item in WorkQueue(task, party, ADJUDICATION, allow_party=True).items()] == [twice]


def test_annotators_get_no_readings_of_others(task: TaskFolder) -> None:
    answer_all(task, "ann", FIRST)
    assert WorkQueue(task, "bob", SECOND).both_readings(task.items[0].id) is None
    assert WorkQueue(task, "bob", SECOND).own() == {}


def test_what_is_shown_says_nothing_about_why_it_was_chosen(task: TaskFolder) -> None:
    shown = task.items[0].shown
    assert set(shown) == {"id", "question", "source_text", "target_text", "answers", "views"}


@pytest.mark.parametrize("name", ["", " ann", "a\nb", "x" * 81])
def test_a_name_is_a_name(task: TaskFolder, name: str) -> None:
    with pytest.raises(SightlineError, match="is not a name"):
        WorkQueue(task, name)


def test_boxes_that_overlap_well_with_the_same_roles_agree(tmp_path: Path) -> None:
    task = sample_task(tmp_path / "evidence", 2, EVIDENCE, second=1.0)
    near, far = (0.1, 0.1, 0.5, 0.5), (0.6, 0.6, 0.9, 0.9)
    for who, pass_, boxes in (("ann", FIRST, (near, near)), ("bob", SECOND, ((0.1, 0.1, 0.5, 0.48), far))):
        queue = WorkQueue(task, who, pass_)
        for item, box in zip(task.items, boxes, strict=True):
            queue.save(item.id, boxed(("context", box)), confirmed=True, supersedes=None)
    assert [each.differing for each in all_readings(task)] == [(), ("boxes",)]


def test_the_status_counts_and_tells_nothing_else(task: TaskFolder) -> None:
    answer_all(task, "ann", FIRST)
    WorkQueue(task, "bob", SECOND).save(
        next(item.id for item in task.items if item.second),
        {"qc_decision": "unclear"},
        confirmed=False,
        supersedes=None,
    )
    lines = dict(status_lines(task))
    assert lines["first pass"] == "6 of 6 done, 0 begun (ann 6)"
    assert lines["second pass"] == "0 of 3 done, 1 begun"
    assert lines["final"] == "3 of 6"
    assert "valid_negative" not in str(lines)
