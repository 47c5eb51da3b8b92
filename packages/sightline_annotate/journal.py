"""What annotators said, entry by entry, in SQLite: nothing is changed or taken out, what was confirmed is on disk.

An entry is the whole state of one item as one person left it. The next entry of the same person about the same item
names it as superseded; an undo is one more entry, which restores an earlier state. What holds now is a view.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError
from sightline.probes.probe_file import canonical, lines_digest

FIRST, SECOND, ADJUDICATION = "first", "second", "adjudication"
PASSES = (FIRST, SECOND, ADJUDICATION)
OPEN_TIME = timedelta(minutes=10)
"""How long an item that is open before one person is not offered to another."""
_WAIT = 20.0
"""Seconds to wait for another process that writes."""

_SCHEMA = """
CREATE TABLE entries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at TEXT NOT NULL,
    who TEXT NOT NULL,
    pass TEXT NOT NULL CHECK (pass IN ('first', 'second', 'adjudication')),
    item TEXT NOT NULL,
    fields TEXT,
    confirmed INTEGER NOT NULL CHECK (confirmed IN (0, 1)),
    supersedes INTEGER REFERENCES entries (number),
    restores INTEGER REFERENCES entries (number),
    undoes INTEGER REFERENCES entries (number)
);
-- Two windows of one person cannot both go on from the same state, nor two people begin the same item in one pass.
CREATE UNIQUE INDEX one_successor ON entries (supersedes) WHERE supersedes IS NOT NULL;
CREATE UNIQUE INDEX one_beginning ON entries (item, pass) WHERE supersedes IS NULL;
CREATE TRIGGER entries_stay BEFORE UPDATE ON entries BEGIN SELECT RAISE (ABORT, 'the journal is append-only'); END;
CREATE TRIGGER entries_remain BEFORE DELETE ON entries BEGIN SELECT RAISE (ABORT, 'the journal is append-only'); END;
CREATE VIEW current AS SELECT * FROM entries AS e
    WHERE NOT EXISTS (SELECT 1 FROM entries AS later WHERE later.supersedes = e.number);
-- Who has an item open. No judgement, so no part of the journal.
CREATE TABLE leases (item TEXT, pass TEXT, who TEXT NOT NULL, until TEXT NOT NULL, PRIMARY KEY (item, pass));
"""
_COLUMNS = "number, at, who, pass, item, fields, confirmed, supersedes, restores, undoes"


class OutdatedError(SightlineError):
    """Somebody else, or another window, was quicker: nothing was written."""


@dataclass(frozen=True)
class JournalEntry:
    """One line of the journal."""

    number: int
    at: str
    who: str
    pass_: str
    item: str
    fields: dict[str, Any] | None
    """None: undone to where nothing had been said."""
    confirmed: bool
    """Whether it is the person's answer, or a draft that was saved on the way."""
    supersedes: int | None
    restores: int | None
    undoes: int | None


class Journal:
    """The journal of one campaign. Every call opens the file anew: several processes write, and any may be killed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path) -> Journal:
        journal = cls(path)
        with journal._opened() as database:
            database.execute("PRAGMA journal_mode = WAL")
            database.executescript(_SCHEMA)
        return journal

    @contextmanager
    def _opened(self, *, writes: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection whose commit is on disk when it returns."""
        try:
            database = sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None)
        except sqlite3.Error as problem:
            raise SightlineError(f"cannot open {self.path}: {problem}") from None
        try:
            database.execute("PRAGMA synchronous = FULL")
            if not writes:
                yield database
                return
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise
        except sqlite3.IntegrityError:
            raise OutdatedError("this item was changed elsewhere meanwhile; nothing was saved") from None
        except sqlite3.Error as problem:
            raise SightlineError(f"the journal {self.path} cannot be used: {problem}") from None
        finally:
            database.close()

    def append(
        self, who: str, pass_: str, item: str, fields: dict[str, Any], *, confirmed: bool, supersedes: int | None
    ) -> JournalEntry:
        """Saves what a person says now; ``supersedes`` is the entry that they saw. On disk when this returns."""
        with self._opened(writes=True) as database:
            self._refuse_same_person(database, who, pass_, item)
            seen = "SELECT who, pass, item FROM entries WHERE number = ?"
            if supersedes is not None and database.execute(seen, (supersedes,)).fetchone() != (who, pass_, item):
                raise SightlineError(f"entry {supersedes} is not an entry of {who} about {item!r}")
            return _insert(database, who, pass_, item, fields, confirmed, supersedes)

    def append_all(self, answers: Iterable[tuple[str, str, str, dict[str, Any]]]) -> None:
        """Confirmed answers (pass, who, item, fields) about items that nobody has begun in that pass: all or none."""
        with self._opened(writes=True) as database:
            for pass_, who, item, fields in answers:
                self._refuse_same_person(database, who, pass_, item)
                _insert(database, who, pass_, item, fields, True, None)

    def undo(self, who: str, pass_: str) -> JournalEntry | None:
        """Takes back the person's latest change that still holds, whichever item it was on; None if there is none."""
        with self._opened(writes=True) as database:
            entries = {entry.number: entry for entry in _read(database, "entries", who, pass_)}
            heads = {entry.number for entry in _read(database, "current", who, pass_)}
            standing = [(state.number, head) for head in heads if (state := _state(entries, entries[head])) is not None]
            if not standing:
                return None
            latest, head = max(standing)
            before = entries[latest].supersedes
            back = None if before is None else _state(entries, entries[before])
            fields, confirmed, number = (
                (None, False, None) if back is None else (back.fields, back.confirmed, back.number)
            )
            return _insert(database, who, pass_, entries[head].item, fields, confirmed, head, number, latest)

    def current(self, pass_: str | None = None, who: str | None = None) -> list[JournalEntry]:
        """The latest entry of every person about every item, drafts and undone ones included."""
        with self._opened() as database:
            return _read(database, "current", who, pass_)

    def entries(self) -> list[JournalEntry]:
        """All of it, in order."""
        with self._opened() as database:
            return _read(database, "entries", None, None)

    def digest(self) -> str:
        """``sha256:`` over one canonical line per entry; not of the file, whose bytes are SQLite's affair."""
        return lines_digest(list(vars(entry).values()) for entry in self.entries())

    def mark_open(self, item: str, pass_: str, who: str) -> None:
        """Notes that a person has an item open, so that others are offered another one."""
        with self._opened(writes=True) as database:
            database.execute(
                "INSERT INTO leases VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET who = excluded.who, "
                "until = excluded.until WHERE leases.who = excluded.who OR leases.until < ?",
                (item, pass_, who, _now(OPEN_TIME), _now()),
            )

    def open_elsewhere(self, pass_: str, who: str) -> set[str]:
        with self._opened() as database:
            found = database.execute(
                "SELECT item FROM leases WHERE pass = ? AND who != ? AND until >= ?", (pass_, who, _now())
            )
            return {item for (item,) in found}

    @staticmethod
    def _refuse_same_person(database: sqlite3.Connection, who: str, pass_: str, item: str) -> None:
        """A second reading by the first reader is none."""
        other = {FIRST: SECOND, SECOND: FIRST}.get(pass_)
        found = database.execute(
            "SELECT 1 FROM entries WHERE item = ? AND pass = ? AND who = ? LIMIT 1", (item, other, who)
        ).fetchone()
        if found:
            raise OutdatedError(f"{who} is the {other} annotator of {item!r} and cannot be the {pass_} one too")


def _insert(
    database: sqlite3.Connection,
    who: str,
    pass_: str,
    item: str,
    fields: dict[str, Any] | None,
    confirmed: bool,
    supersedes: int | None,
    restores: int | None = None,
    undoes: int | None = None,
) -> JournalEntry:
    text, at = None if fields is None else canonical(fields), _now()
    made = database.execute(
        f"INSERT INTO entries ({_COLUMNS}) VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (at, who, pass_, item, text, int(confirmed), supersedes, restores, undoes),
    )
    number = made.lastrowid
    assert number is not None
    return JournalEntry(number, at, who, pass_, item, fields, confirmed, supersedes, restores, undoes)


def _read(database: sqlite3.Connection, table: str, who: str | None, pass_: str | None) -> list[JournalEntry]:
    rows = database.execute(
        f"SELECT {_COLUMNS} FROM {table} WHERE (? IS NULL OR who = ?) AND (? IS NULL OR pass = ?) ORDER BY number",
        (who, who, pass_, pass_),
    )
    return [
        JournalEntry(row[0], row[1], row[2], row[3], row[4], None if row[5] is None else json.loads(row[5]),
                     bool(row[6]), *row[7:])
        for row in rows
    ]  # fmt: skip


def _state(entries: dict[int, JournalEntry], entry: JournalEntry) -> JournalEntry | None:
    """The change whose state holds at an entry: itself, or what an undo went back to; None for nothing said."""
    while entry.undoes is not None:
        if entry.restores is None:
            return None
        entry = entries[entry.restores]
    return entry


def _now(later: timedelta = timedelta()) -> str:
    return (datetime.now(UTC) + later).isoformat(timespec="milliseconds")
