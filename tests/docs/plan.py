"""Which blocks are executed, and with which models."""

from __future__ import annotations

from tests.docs.pages import Block, Command, blocks_of, documented_pages
from tests.docs.stand_ins import MODELS, reason_not_executed

ON_ONE_MODEL = ("docs/scale.md",)
"""Pages about something else than models, whose commands take long: several processes that load one each."""


def executed_commands(block: Block) -> list[Command]:
    return [command for command in block.commands if reason_not_executed(block.page, command.text) is None]


def is_executed(block: Block) -> bool:
    return block.kind == "python" or bool(executed_commands(block))


def executed_blocks(page: str) -> list[Block]:
    return [block for block in blocks_of(page) if is_executed(block)]


def models_of(page: str) -> tuple[str, ...]:
    """All three where the page speaks of any model, one where that says as much; nothing where it names its models, or
    needs none."""
    words = {word for block in blocks_of(page) for command in block.commands for word in command.text.split()}
    if "MODEL" not in words:
        return ()
    return MODELS[:1] if page in ON_ONE_MODEL else MODELS


def left_out() -> list[tuple[Block, Command, str]]:
    """Commands that no test executes, with the reason."""
    found = []
    for page in documented_pages():
        for block in blocks_of(page):
            for command in block.commands:
                reason = reason_not_executed(page, command.text)
                if reason is not None:
                    found.append((block, command, reason))
    return found
