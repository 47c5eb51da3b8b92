"""The one exception that carries a message for the user, and what makes a text from outside safe to print."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

LONGEST_MESSAGE = 2000
"""Characters of a message; the middle of a longer one is left out."""
UNPRINTED = ("Cc", "Cs", "Zl", "Zp")
"""Kinds of characters that a terminal obeys instead of showing, that end lines, or that no encoding takes."""
TURNS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Marks that turn the direction of what follows, so that a line reads otherwise than it is."""


def printable(text: str, keep: str = "") -> str:
    r"""The text with every character that is not to be seen written out, ``\n`` or ``\x1b``; ``keep`` are left alone.

    Names and answers come from files and models: on a terminal they must not move the cursor or change a line that
    stands there already.
    """
    if text.isprintable() and text.isascii():
        return text
    return "".join(_shown(character) if character not in keep else character for character in text)


def _shown(character: str) -> str:
    if unicodedata.category(character) in UNPRINTED or character in TURNS:
        return character.encode("unicode_escape").decode("ascii")
    return character


def first_line(error: BaseException) -> str:
    """What an error of another library says, on one line; its name where it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def yaml_line(error: BaseException) -> str:
    """What a reader of YAML says, and in which line; its first line where it says less."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    return f"line {mark.line + 1}: {problem}" if mark and problem else first_line(error)


def named_line(error: BaseException) -> str:
    """The same behind the error's name: ``ValueError: shapes do not match``."""
    name, line = type(error).__name__, first_line(error)
    return name if line == name else f"{name}: {line}"


def nearest(name: str, known: Iterable[str], otherwise: str, *, most: int = 1) -> str:
    """``did you mean 'target'?``, where names that are known are spelled nearly so; else what ``otherwise`` says."""
    close = difflib.get_close_matches(name, known, n=most)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else otherwise


@contextmanager
def located(where: object) -> Iterator[None]:
    """What goes wrong within it is said with its place, if that has a name: ``words.csv line 3: ...``."""
    try:
        yield
    except SightlineError as problem:
        raise SightlineError(f"{where}: {problem}" if where else problem) from None


class SightlineError(Exception):
    """Something the user can mend. The message is one line: what, where, what to do.

    Whatever it quotes is made printable and kept short. The command line prints it without a traceback (unless
    ``--debug``); everything computed before it stays on disk.
    """

    def __init__(self, message: object = "") -> None:
        line = printable(str(message).strip())
        if len(line) > LONGEST_MESSAGE:
            half = LONGEST_MESSAGE // 2
            line = f"{line[:half]} [...] {line[-half:]}"
        super().__init__(line)


class OutageError(SightlineError):
    """Whoever was asked is not there, or not now: what was asked may be as it should be, and can be asked again."""


def refuse_unknown(name: str, known: Collection[str], said: str, listed: str = "known:") -> None:
    """Refuses a name that is not among those known, with the one that may have been meant, or all of them."""
    if name not in known:
        every = f"{listed} {', '.join(known)}"
        raise SightlineError(f"{said}; {nearest(name, known, every)}")
