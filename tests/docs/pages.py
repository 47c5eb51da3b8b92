"""Blocks of a Markdown page: commands with what they print, Python, and files that the page spells out."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

REPOSITORY = Path(__file__).resolve().parents[2]
SHELLS = ("console", "bash", "sh", "shell")
"""Languages of fences that hold commands, whatever the first word is."""
PROGRAMS = re.compile(r"\$ |(sightline|make|pip|python3?|pytest|\.venv/bin/\S+)(\s|$)")
"""How a block without a language begins if it holds commands."""
COMMENT = re.compile(r"\s+# .*$")
NAMED = re.compile(r"^`([\w./-]+)`:$")
"""The line above a block that is the content of a file."""

Kind = Literal["commands", "python", "file", "entry points", "text"]


@dataclass(frozen=True)
class Command:
    """One command: a line, or several that a backslash joins."""

    line: int
    """Where it begins on its page, from 1."""
    text: str
    """Without a comment behind it."""
    shown: str = ""
    """What the page says it prints; empty where it says nothing."""


@dataclass(frozen=True)
class Block:
    """A fenced or an indented block."""

    page: str
    """Path of the page in the repository."""
    line: int
    """Of its first line of content, from 1."""
    kind: Kind
    text: str
    commands: tuple[Command, ...] = ()
    name: str = ""
    """Of a file: what the page calls it."""
    prints: str = ""
    """Of Python: the indented lines that follow it, which are what it prints."""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def title(self) -> str:
        """One line of Python, or of a file, that tells people which block this is."""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        return self.name or next((line for line in lines if not line.startswith(("import ", "from "))), lines[0])


@dataclass
class _Raw:
    line: int
    language: str | None
    """None for an indented block, empty for a fence that names none."""
    above: str
    """The last line of text before it."""
    lines: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.lines).strip("\n") + "\n"


def documented_pages() -> list[str]:
    """Pages that people write; those under docs/reference are made from the code."""
    found = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
    return [path.relative_to(REPOSITORY).as_posix() for path in found]


def blocks_of(page: str) -> list[Block]:
    return blocks_in(page, (REPOSITORY / page).read_text(encoding="utf-8"))


def blocks_in(page: str, text: str) -> list[Block]:
    """All blocks of a page's text, in order."""
    found: list[Block] = []
    raws = list(_raw_blocks(text.splitlines()))
    for number, raw in enumerate(raws):
        block = _understood(page, raw)
        if block.kind == "python" and number + 1 < len(raws):
            after = raws[number + 1]
            follows = after.line - (raw.line + len(raw.lines)) <= 2
            if after.language is None and follows and not PROGRAMS.match(after.lines[0]):
                block = Block(page, raw.line, "python", raw.text, prints=after.text)
        found.append(block)
    return found


def _raw_blocks(lines: list[str]) -> Iterator[_Raw]:
    above, number = "", 0
    while number < len(lines):
        line = lines[number]
        fence = re.match(r"^( *)(`{3,}|~{3,})\s*(\w*)", line)
        if fence:
            raw = _Raw(number + 2, fence[3], above)
            number += 1
            while number < len(lines) and lines[number].strip() != fence[2]:
                raw.lines.append(lines[number].removeprefix(fence[1]))
                number += 1
            yield raw
            above = ""
        elif line.startswith("    ") and not lines[number - 1].strip() and not _within_list(above):
            raw = _Raw(number + 1, None, above)
            while number < len(lines) and (lines[number].startswith("    ") or not lines[number].strip()):
                raw.lines.append(lines[number][4:])
                number += 1
            yield raw
            continue
        elif line.strip():
            above = line
        number += 1


def _within_list(above: str) -> bool:
    """Indented text below an item of a list belongs to the item."""
    return re.match(r"^\s*([-*]|\d+\.) |^ +\S", above) is not None


def _understood(page: str, raw: _Raw) -> Block:
    if raw.language == "python":
        return Block(page, raw.line, "python", raw.text)
    if raw.language in SHELLS or (not raw.language and raw.lines and PROGRAMS.match(raw.lines[0])):
        return Block(page, raw.line, "commands", raw.text, tuple(_commands(raw)))
    named = NAMED.match(raw.above)
    if named and raw.language is not None:
        return Block(page, raw.line, "file", raw.text, name=named[1])
    if raw.language == "toml" and raw.lines[0].startswith("[project.entry-points."):
        return Block(page, raw.line, "entry points", raw.text)
    return Block(page, raw.line, "text", raw.text)


def _commands(raw: _Raw) -> Iterator[Command]:
    """Lines behind ``$`` where a block has any, with what stands below each; otherwise every line."""
    prompted = any(line.startswith("$ ") for line in raw.lines)
    number = 0
    while number < len(raw.lines):
        line, begin = raw.lines[number], number
        number += 1
        if not line.strip() or line.startswith("#"):
            continue
        typed = [line.removeprefix("$ ")]
        while typed[-1].endswith("\\") and number < len(raw.lines):
            typed[-1] = typed[-1].removesuffix("\\")
            typed.append(raw.lines[number].strip())
            number += 1
        shown = []
        while prompted and number < len(raw.lines) and not raw.lines[number].startswith("$ "):
            shown.append(raw.lines[number])
            number += 1
        text = COMMENT.sub("", "".join(typed))
        yield Command(raw.line + begin, text, "".join(f"{text}\n" for text in shown))
