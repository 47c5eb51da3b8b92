"""What stands in for published checkpoints, data sets and hours of work when the pages are executed. Nothing else does.

Commands and Python are executed as they are printed. ``stand_ins.yaml`` puts small things under the names that pages
use, replaces words that ask for a large model, adds options that keep a command short, prepares what a page takes for
granted, and lists what no test can run, with the reason.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.docs.pages import Block, Command, blocks_of, documented_pages

MODELS = ("qwen3vl", "llava", "internvl")
"""Tiny checkpoints that ``MODEL``, which is any model, stands for in turn."""
TINY = "tests/data/tiny"


@dataclass(frozen=True)
class Prepared:
    """What a page takes for granted."""

    commands: tuple[str, ...] = ()
    """Run before its first block."""
    files: Mapping[str, str] = field(default_factory=dict)
    images: tuple[str, ...] = ()
    """Images of 1000 x 800 pixels with some drawing on them."""
    python: str = ""
    """Names that its Python speaks of."""
    between: Mapping[str, str] = field(default_factory=dict)
    """Command of the page -> Python that is executed before it."""


_TABLES: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
LAID_OUT: dict[str, str] = _TABLES["laid_out"]
OURS: dict[str, str] = _TABLES["ours"]
SUBSTITUTIONS: list[tuple[str, str]] = list(_TABLES["substitutions"].items())
LIMITS: list[tuple[str, str]] = list(_TABLES["limits"].items())
EXIT_CODES: list[tuple[str, list[int]]] = list(_TABLES["exit_codes"].items())
PREPARED = {page: Prepared(**taken) for page, taken in _TABLES["prepared"].items()}
NOT_EXECUTED: dict[tuple[str, str], str] = {
    (page, begins): why for page, commands in _TABLES["not_executed"].items() for begins, why in commands.items()
}
"""(page, how the command begins) -> why no test executes it."""


def as_executed(command: str) -> str:
    """A command with its substitutions and limits."""
    for pattern, replacement in SUBSTITUTIONS:
        command = re.sub(pattern, replacement, command)
    for pattern, options in LIMITS:
        if re.match(pattern, command):
            for option in re.findall(r"--[\w-]+(?: [^-]\S*)?", options):
                repeated = option.startswith("--arm ")
                if repeated or option.split()[0] not in command.split():
                    command = f"{command} {option}"
    return command


def reason_not_executed(page: str, command: str) -> str | None:
    """Why a command is left out; None for one that is executed."""
    reasons = (why for (where, begins), why in NOT_EXECUTED.items() if where == page and command.startswith(begins))
    return next(reasons, None)


def exit_codes(command: str) -> tuple[int, ...]:
    return next((tuple(codes) for pattern, codes in EXIT_CODES if re.match(pattern, command)), (0,))


def uses_stand_in(command: str) -> bool:
    """Whether a command reads something that only stands in for what the page speaks of."""
    return any(word.rstrip("/") in {*LAID_OUT, "MODEL"} for word in command.split())


ON_ONE_MODEL = ("docs/scale.md",)
"""Pages about something else than models, whose commands take long: several processes that load one each."""


def executed_commands(block: Block) -> list[Command]:
    return [command for command in block.commands if reason_not_executed(block.page, command.text) is None]


def executed_blocks(page: str) -> list[Block]:
    return [block for block in blocks_of(page) if block.kind == "python" or executed_commands(block)]


def models_of(page: str) -> tuple[str, ...]:
    """All three where the page speaks of any model, one where that says as much; nothing where it names its models, or
    needs none."""
    words = {word for block in blocks_of(page) for command in block.commands for word in command.text.split()}
    if "MODEL" not in words:
        return ()
    return MODELS[:1] if page in ON_ONE_MODEL else MODELS


def left_out() -> list[tuple[Block, Command, str]]:
    """Commands that no test executes, with the reason."""
    commands = ((block, each) for page in documented_pages() for block in blocks_of(page) for each in block.commands)
    found = ((block, each, reason_not_executed(block.page, each.text)) for block, each in commands)
    return [(block, each, reason) for block, each, reason in found if reason is not None]
