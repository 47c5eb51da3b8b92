"""The journal: it only grows, undo is one more entry, and nobody overwrites anybody."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from sightline.annotate.journal import FIRST, SECOND, Journal, OutdatedError
from sightline.errors import SightlineError


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.create(tmp_path / "journal.sqlite")


def say(journal: Journal, item: str, value: str, supersedes: int | None = None, who: str = "ann") -> int:
    return journal.append(
        who, FIRST, item, {"a": value}, confirmed=False, supersedes=supersedes
    ).number  # fmt: skip


def now(journal: Journal, item: str) -> object:
    return next(entry.fields for entry in journal.current() if entry.item == item)


def test_it_writes_ahead_and_waits_for_the_disk(journal: Journal) -> None:
    with sqlite3.connect(journal.path) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with journal._opened() as own:
        assert own.execute("PRAGMA synchronous").fetchone() == (2,), "2 is FULL"


@pytest.mark.parametrize("change", ["UPDATE entries SET who = 'eve'", "DELETE FROM entries"])
def test_nothing_can_be_changed_or_taken_out(journal: Journal, change: str) -> None:
    say(journal, "x", "1")
    with sqlite3.connect(journal.path) as database, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        database.execute(change)
    assert now(journal, "x") == {"a": "1"}


def test_undo_goes_back_step_by_step_and_each_step_is_an_entry(journal: Journal) -> None:
    first = say(journal, "x", "1")
    second = say(journal, "x", "2", first)
    say(journal, "x", "3", second)
    assert [journal.undo("ann", FIRST) is not None and now(journal, "x") for _ in range(3)] == [
        {"a": "2"},
        {"a": "1"},
        None,
    ]
    assert journal.undo("ann", FIRST) is None
    assert [entry.number for entry in journal.entries()] == [1, 2, 3, 4, 5, 6]


def test_undo_after_undo_and_a_new_change_goes_back_through_the_new_one(journal: Journal) -> None:
    say(journal, "x", "2", say(journal, "x", "1"))
    undone = journal.undo("ann", FIRST)
    assert undone is not None
    say(journal, "x", "4", undone.number)
    journal.undo("ann", FIRST)
    assert now(journal, "x") == {"a": "1"}
    journal.undo("ann", FIRST)
    assert now(journal, "x") is None


def test_undo_takes_the_latest_change_on_whichever_item(journal: Journal) -> None:
    say(journal, "x", "1")
    say(journal, "y", "1")
    assert [entry.item for _ in range(2) if (entry := journal.undo("ann", FIRST))] == ["y", "x"]


def test_undo_brings_a_confirmation_back_too(journal: Journal) -> None:
    done = journal.append("ann", FIRST, "x", {"a": "1"}, confirmed=True, supersedes=None)
    say(journal, "x", "2", done.number)
    restored = journal.undo("ann", FIRST)
    assert restored is not None
    assert (restored.confirmed, restored.fields, restored.restores) == (True, {"a": "1"}, done.number)


def test_undo_is_of_ones_own_changes(journal: Journal) -> None:
    say(journal, "x", "1", who="bob")
    assert journal.undo("ann", FIRST) is None


def test_two_windows_cannot_both_go_on_from_one_state(journal: Journal) -> None:
    first = say(journal, "x", "1")
    say(journal, "x", "2", first)
    with pytest.raises(OutdatedError, match="changed elsewhere"):
        say(journal, "x", "3", first)
    assert now(journal, "x") == {"a": "2"}


def test_two_people_cannot_begin_one_item_in_one_pass(journal: Journal) -> None:
    say(journal, "x", "1")
    with pytest.raises(OutdatedError):
        say(journal, "x", "1", who="bob")


def test_the_first_reader_cannot_be_the_second(journal: Journal) -> None:
    say(journal, "x", "1")
    with pytest.raises(OutdatedError, match="first annotator"):
        journal.append("ann", SECOND, "x", {"a": "1"}, confirmed=True, supersedes=None)
    assert journal.append("bob", SECOND, "x", {"a": "1"}, confirmed=True, supersedes=None).number == 2


def test_an_entry_supersedes_one_of_its_own_line_alone(journal: Journal) -> None:
    other = say(journal, "x", "1")
    with pytest.raises(SightlineError, match="is not an entry of ann about 'y'"):
        say(journal, "y", "1", other)


def test_many_answers_are_written_all_or_none(journal: Journal) -> None:
    say(journal, "z", "1")
    answers = [(FIRST, "bob", name, {"a": "1"}) for name in ("x", "y", "z")]
    with pytest.raises(OutdatedError):
        journal.append_all(answers)
    assert [entry.item for entry in journal.entries()] == ["z"]


def test_the_digest_is_of_what_was_said(journal: Journal) -> None:
    empty = journal.digest()
    say(journal, "x", "1")
    once = journal.digest()
    assert once != empty
    assert journal.digest() == once
    journal.undo("ann", FIRST)
    assert journal.digest() not in (empty, once)


def test_an_open_item_is_not_offered_to_others(journal: Journal) -> None:
    journal.lease("x", FIRST, "ann")
    journal.lease("x", FIRST, "bob")
    assert journal.leased_by_others(FIRST, "bob") == {"x"}
    assert journal.leased_by_others(FIRST, "ann") == set()
    assert journal.leased_by_others(SECOND, "bob") == set()


def test_a_damaged_file_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    path.write_bytes(b"no database at all, but long enough to have a header" * 40)
    with pytest.raises(SightlineError, match="cannot be used: file is not a database"):
        Journal(path).current()
