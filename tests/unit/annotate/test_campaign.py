"""Who is offered what: blind, never twice, a third person for what two differ about."""

import sqlite3
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.errors import SightlineError
from sightline_annotate.campaign import Campaign, WorkQueue, read_judgements, status_lines
from sightline_annotate.items import CampaignKind, hashed
from sightline_annotate.journal import ADJUDICATION, FIRST, SECOND, Journal, OutdatedError
from sightline_annotate.make import SamplingRule, apportioned, drawn_items, first_items, second_sample
from tests.refusals import Refused
from tests.unit.annotate.sample_campaign import (
    DIFFICULTIES,
    EVIDENCE,
    HARD_NEGATIVES,
    boxed,
    said,
    sample_items,
    sample_task,
)


@pytest.fixture
def task(tmp_path: Path) -> Campaign:
    return sample_task(tmp_path / "task")


@pytest.fixture
def twice(task: Campaign) -> list[str]:
    """What two people read."""
    return [item.id for item in task.items if item.second]


def answer_all(task: Campaign, who: str, pass_: str, unclear: str = "") -> None:
    """Everything that is offered, as valid but for one item."""
    queue = WorkQueue(task, who, pass_)
    for item in queue.items():
        queue.save(item.id, said(task.kind, "unclear" * (item.id == unclear)), confirmed=True, supersedes=None)


def test_a_draft_is_not_an_answer(task: Campaign, twice: list[str], refused: Refused) -> None:
    queue = WorkQueue(task, "ann")
    draft = {"qc_decision": "unclear"}
    entry = queue.save(twice[0], draft, confirmed=False, supersedes=None)
    assert queue.progress()["done"] == 0
    refused("'Can you read", queue.save, twice[0], draft, confirmed=True, supersedes=entry.number)
    queue.save(twice[0], said(), confirmed=True, supersedes=entry.number)
    assert queue.progress()["done"] == 1


def test_passes_offer_their_items_to_each_person_once(task: Campaign, twice: list[str], refused: Refused) -> None:
    queue, second = WorkQueue(task, "ann"), WorkQueue(task, "ann", SECOND)
    assert len(queue.items()) == 6
    assert [item.id for item in WorkQueue(task, "bob", SECOND).items()] == twice
    assert len(twice) == 3
    queue.save(twice[0], said(), confirmed=True, supersedes=None)
    assert twice[0] not in [item.id for item in second.items()]
    refused("is not one of ann's", second.save, twice[0], said(), confirmed=True, supersedes=None)


def test_a_name_can_be_read_and_is_not_too_long(task: Campaign, refused: Refused) -> None:
    for name in ("", " ann", "a\nb", "x" * 81):
        refused(f"--as {name!r} is not a name", WorkQueue, task, name)


def test_an_open_item_is_skipped_by_others(task: Campaign) -> None:
    ann, bob = WorkQueue(task, "ann"), WorkQueue(task, "bob")
    item = ann.next_item()
    assert item is not None
    for who in ("ann", "bob"):
        task.journal.mark_open(item.id, FIRST, who)
    assert task.journal.open_elsewhere(FIRST, "bob") == {item.id}
    assert task.journal.open_elsewhere(FIRST, "ann") == task.journal.open_elsewhere(SECOND, "bob") == set()
    other = bob.next_item()
    assert other is not None
    assert other.id != item.id


def test_several_people_share_one_pass(task: Campaign) -> None:
    ann, bob = WorkQueue(task, "ann"), WorkQueue(task, "bob")
    seen: list[str] = []
    for queue in (ann, bob) * 3:
        item = queue.next_item()
        assert item is not None
        task.journal.mark_open(item.id, FIRST, queue.who)
        queue.save(item.id, said(), confirmed=True, supersedes=None)
        seen.append(item.id)
    assert sorted(seen) == sorted(item.id for item in task.items)
    assert ann.next_item() is None
    assert ann.progress() == {"done": 3, "all": 3}


def test_annotators_get_no_readings_of_others_and_the_status_only_counts(task: Campaign, twice: list[str]) -> None:
    answer_all(task, "ann", FIRST)
    bob = WorkQueue(task, "bob", SECOND)
    assert bob.both_judgements(task.items[0].id) is None
    assert bob.own() == {}
    assert set(task.items[0].shown) == {"id", "question", "source_text", "target_text", "answers", "views"}
    bob.save(twice[0], {"qc_decision": "unclear"}, confirmed=False, supersedes=None)
    lines = dict(status_lines(task))
    assert lines["first pass"] == "6 of 6 done, 0 begun (ann 6)"
    assert lines["second pass"] == "0 of 3 done, 1 begun"
    assert lines["final"] == "3 of 6"
    assert "valid_negative" not in str(lines)


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        (HARD_NEGATIVES, {"qc_decision": "maybe"}, "' is 'maybe', not one of valid_negative"),
        (HARD_NEGATIVES, {"verdict": "yes"}, "unknown field 'verdict'"),
        (HARD_NEGATIVES, {"annotator_notes": 7}, "'Notes' is not a text"),
        (HARD_NEGATIVES, {"annotator_notes": "a\x00b"}, "'Notes' holds a character"),
        (HARD_NEGATIVES, {"invalid_reason": "\u202eodd"}, "'Why it is not valid' holds"),
        (HARD_NEGATIVES, [], "an answer must be an object"),
        (EVIDENCE, {"boxes": [{"region": [0.5, 0.1, 0.4, 0.2], "role": "context"}]}, "is not x1 < x2"),
        (EVIDENCE, {"boxes": [{"region": [0.1, 0.1, 1.4, 0.2], "role": "context"}]}, "within the image"),
        (EVIDENCE, {"boxes": [{"region": [0.1, 0.1, 0.4, 0.2], "role": "title"}]}, "is not one of"),
        (EVIDENCE, {"boxes": [{"region": ["a", 0, 1, 1], "role": "context"}]}, "region of four numbers"),
        (EVIDENCE, {"boxes": [7]}, "box 7 is not an object with a region"),
    ],
)
def test_what_nobody_may_say_is_refused(kind: CampaignKind, fields: object, words: str, refused: Refused) -> None:
    refused(words, kind.check, fields, confirmed=False)


def test_a_valid_decision_stands_on_valid_answers_and_evidence_on_a_box(refused: Refused) -> None:
    contradicting = said(source_bbox_matches_source_text="no")
    words = "you decided 'valid negative', but answered 'no' to 'Does the box enclose the word?'; change one"
    refused(words, HARD_NEGATIVES.check, contradicting, confirmed=True)
    assert HARD_NEGATIVES.check(contradicting, confirmed=False)
    refused("annotated without a box", EVIDENCE.check, boxed(), confirmed=True)
    assert EVIDENCE.check(boxed(status="not_visible"), confirmed=True)["boxes"] == []


def test_only_what_two_people_differ_about_goes_to_a_third_who_is_neither_unless_told(
    task: Campaign, twice: list[str], refused: Refused
) -> None:
    answer_all(task, "ann", FIRST)
    answer_all(task, "bob", SECOND, unclear=twice[1])
    for party in ("ann", "bob"):
        refused(f"{party} is one of the two who differ", WorkQueue, task, party, ADJUDICATION)
        assert [item.id for item in WorkQueue(task, party, ADJUDICATION, allow_party=True).items()] == [twice[1]]
    queue = WorkQueue(task, "carol", ADJUDICATION)
    assert [item.id for item in queue.items()] == [twice[1]]
    shown = queue.both_judgements(twice[1])
    assert shown is not None
    assert {reading["qc_decision"] for reading in shown["readings"]} == {"valid_negative", "unclear"}
    assert "ann" not in str(shown)
    assert "bob" not in str(shown)
    queue.save(twice[1], said(), confirmed=True, supersedes=None)
    final = {each.item.id: each.final for each in read_judgements(task)}
    assert final[twice[1]] == (said(), "adjudicated")
    assert {provenance for _, provenance in filter(None, final.values())} == {"adjudicated", "agreement", "first_only"}


def test_boxes_that_overlap_well_with_the_same_roles_agree(tmp_path: Path) -> None:
    task = sample_task(tmp_path / "evidence", 2, EVIDENCE, second=1.0)
    near, far = (0.1, 0.1, 0.5, 0.5), (0.6, 0.6, 0.9, 0.9)
    for who, pass_, boxes in (("ann", FIRST, (near, near)), ("bob", SECOND, ((0.1, 0.1, 0.5, 0.48), far))):
        queue = WorkQueue(task, who, pass_)
        for item, box in zip(task.items, boxes, strict=True):
            queue.save(item.id, boxed(("context", box)), confirmed=True, supersedes=None)
    assert [each.differing for each in read_judgements(task)] == [(), ("boxes",)]


def test_items_are_drawn_by_suspicion_and_stratum_and_read_twice_in_proportion_to_difficulty(tmp_path: Path) -> None:
    items = sample_items(tmp_path, 40)
    few = [replace(item, suspicion=("odd",)) if item.id in ("item-004", "item-001") else item for item in items[5::-1]]
    drawn = [item.id for item in drawn_items(few, SamplingRule())]
    assert drawn == ["item-001", "item-004", "item-005", "item-003", "item-002", "item-000"], "the rest as it came"
    chosen = first_items(items, 14)
    assert Counter(item.stratum for item in chosen) == dict.fromkeys((f"stratum {n}" for n in range(7)), 2)
    assert [item.id for item in chosen[:7]] == [f"item-{n:03d}" for n in range(7)]
    many = drawn_items(sample_items(tmp_path, 500), SamplingRule(second=0.2, seed="any"))
    twice = Counter((item.batch, item.difficulty) for item in many if item.second)
    assert twice == {(batch, name): 5 for batch in range(5) for name in DIFFICULTIES}, "twenty of each hundred"
    second = second_sample(items, 0.2, "seed")
    for name in {item.difficulty for item in items}:
        own = sorted((item.id for item in items if item.difficulty == name), key=lambda id_: hashed("seed", id_))
        assert second & set(own) == set(own[:2])
    assert second != second_sample(items, 0.2, "another seed")
    for count, taken in ((2, 0), (3, 1), (5, 1), (12, 2), (13, 3)):
        assert len(second_sample(items[:count], 0.2, "seed")) == taken
    assert apportioned({"b": 1, "a": 1, "c": 1}, 1) == {"b": 0, "a": 1, "c": 0}
    # printf '%s' 'hard-negative-secondary-100-v1|a' | sha256sum
    assert hashed("hard-negative-secondary-100-v1", "a").startswith("05779fecf2901991")
    for wrong in ({"n": 0}, {"second": 1.5}, {"batch": 0}):
        with pytest.raises(SightlineError):
            SamplingRule(**wrong)


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.integers(1, 60), min_size=1, max_size=6), st.data())
def test_seats_are_shared_out_exactly_and_nearly_in_proportion(sizes: dict[str, int], data: st.DataObject) -> None:
    total = data.draw(st.integers(0, sum(sizes.values())))
    seats = apportioned(sizes, total)
    assert sum(seats.values()) == total
    for name, size in sizes.items():
        assert abs(seats[name] - total * size / sum(sizes.values())) < 1
        assert seats[name] <= size


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.create(tmp_path / "journal.sqlite")


def say(journal: Journal, item: str, value: str, supersedes: int | None = None, who: str = "ann") -> int:
    return journal.append(who, FIRST, item, {"a": value}, confirmed=False, supersedes=supersedes).number


def now(journal: Journal, item: str) -> object:
    return next(entry.fields for entry in journal.current() if entry.item == item)


def test_nothing_in_the_journal_can_be_changed_or_taken_out(journal: Journal) -> None:
    say(journal, "x", "1")
    with sqlite3.connect(journal.path) as database:
        for change in ("UPDATE entries SET who = 'eve'", "DELETE FROM entries"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                database.execute(change)
    assert now(journal, "x") == {"a": "1"}


def test_the_journal_writes_ahead_and_waits_for_the_disk(journal: Journal) -> None:
    with journal._opened() as own:
        assert own.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert own.execute("PRAGMA synchronous").fetchone() == (2,), "2 is FULL"


def test_a_journal_that_is_no_database_is_refused(tmp_path: Path, refused: Refused) -> None:
    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(b"no database at all, but long enough to have a header" * 40)
    refused("cannot be used: file is not a database", Journal(damaged).current)


def test_undo_goes_back_step_by_step_and_each_step_is_an_entry_of_the_digest(journal: Journal) -> None:
    digests = [journal.digest()]
    first = say(journal, "x", "1")
    second = say(journal, "x", "2", first)
    say(journal, "x", "3", second)
    for left in ({"a": "2"}, {"a": "1"}, None):
        digests += [journal.digest()]
        assert journal.digest() == digests[-1]
        assert journal.undo("ann", FIRST) is not None
        assert now(journal, "x") == left
    assert journal.undo("ann", FIRST) is None
    assert [entry.number for entry in journal.entries()] == [1, 2, 3, 4, 5, 6]
    assert len({*digests, journal.digest()}) == 5


def test_undo_takes_ones_own_latest_change_on_whichever_item(journal: Journal) -> None:
    for item, who in (("x", "ann"), ("y", "ann"), ("z", "bob")):
        say(journal, item, "1", who=who)
    assert [entry.item for _ in range(3) if (entry := journal.undo("ann", FIRST))] == ["y", "x"]


def test_undo_goes_on_behind_what_was_said_after_it(journal: Journal) -> None:
    say(journal, "v", "2", say(journal, "v", "1"))
    undone = journal.undo("ann", FIRST)
    assert undone is not None
    say(journal, "v", "4", undone.number)
    for left in ({"a": "1"}, None):
        journal.undo("ann", FIRST)
        assert now(journal, "v") == left


def test_undo_brings_back_what_was_confirmed(journal: Journal) -> None:
    done = journal.append("ann", FIRST, "w", {"a": "1"}, confirmed=True, supersedes=None)
    say(journal, "w", "2", done.number)
    restored = journal.undo("ann", FIRST)
    assert restored is not None
    assert (restored.confirmed, restored.fields, restored.restores) == (True, {"a": "1"}, done.number)


def test_nobody_writes_over_anybody(journal: Journal, refused: Refused) -> None:
    first = say(journal, "x", "1")
    say(journal, "x", "2", first)
    with pytest.raises(OutdatedError, match="changed elsewhere"):  # two windows from one state
        say(journal, "x", "3", first)
    with pytest.raises(OutdatedError):  # two people on one item in one pass
        say(journal, "x", "1", who="bob")
    refused("is not an entry of ann about 'y'", say, journal, "y", "1", first)
    with pytest.raises(OutdatedError, match="first annotator"):
        journal.append("ann", SECOND, "x", {"a": "1"}, confirmed=True, supersedes=None)
    with pytest.raises(OutdatedError):  # many answers are written all or none
        journal.append_all([(FIRST, "bob", name, {"a": "1"}) for name in ("v", "w", "x")])
    assert now(journal, "x") == {"a": "2"}
    assert [entry.item for entry in journal.entries()] == ["x", "x"]
    assert journal.append("bob", SECOND, "x", {"a": "1"}, confirmed=True, supersedes=None).number == 3
